#include "tests/support/coordinator/sim_disk_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hearth::coordinator {
namespace {

constexpr int kPathMax = 512;
constexpr int kSectorBytes = 4096;

SimDisk& DiskOf(sqlite3_vfs* vfs) {
  return *static_cast<SimDisk*>(vfs->pAppData);
}

// SQLite allocates it as szOsFile bytes that begin with sqlite3_file.
struct SimFile {
  sqlite3_file base;
  SimDisk* disk;
  SimDisk::Handle handle;
  std::string path;
  bool folder_unsynced;
  std::vector<std::unique_ptr<char[]>> shared;  // the index of the WAL, which no disk has

  static SimFile& Of(sqlite3_file* file) { return *reinterpret_cast<SimFile*>(file); }
};

int Close(sqlite3_file* file) {
  SimFile::Of(file).~SimFile();
  return SQLITE_OK;
}

int Read(sqlite3_file* file, void* out, int bytes, sqlite3_int64 offset) {
  const SimFile& self = SimFile::Of(file);
  const auto data = self.disk->ReadAt(self.handle, offset, static_cast<size_t>(bytes));
  if (!data.ok()) {
    return SQLITE_IOERR_READ;
  }
  std::memcpy(out, data->data(), data->size());
  std::memset(static_cast<char*>(out) + data->size(), 0, static_cast<size_t>(bytes) - data->size());
  return data->size() == static_cast<size_t>(bytes) ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

int Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  const SimFile& self = SimFile::Of(file);
  const std::string_view view(static_cast<const char*>(data), static_cast<size_t>(bytes));
  return self.disk->WriteAt(self.handle, offset, view).ok() ? SQLITE_OK : SQLITE_IOERR_WRITE;
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  const SimFile& self = SimFile::Of(file);
  return self.disk->Resize(self.handle, size).ok() ? SQLITE_OK : SQLITE_IOERR_TRUNCATE;
}

// As SQLite's own file system does: a new journal's first sync also syncs its folder.
int Sync(sqlite3_file* file, int /*flags*/) {
  SimFile& self = SimFile::Of(file);
  if (!self.disk->Sync(self.handle).ok()) {
    return SQLITE_IOERR_FSYNC;
  }
  if (std::exchange(self.folder_unsynced, false)) {
    const std::string folder = self.path.substr(0, self.path.rfind('/'));
    return self.disk->SyncDir(folder).ok() ? SQLITE_OK : SQLITE_IOERR_DIR_FSYNC;
  }
  return SQLITE_OK;
}

int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  const SimFile& self = SimFile::Of(file);
  const auto bytes = self.disk->SizeOf(self.handle);
  *size = bytes.value_or(0);
  return bytes.ok() ? SQLITE_OK : SQLITE_IOERR_FSTAT;
}

int Lock(sqlite3_file* /*file*/, int /*level*/) {
  return SQLITE_OK;
}

int IsReserved(sqlite3_file* /*file*/, int* out) {
  *out = 0;
  return SQLITE_OK;
}

int Control(sqlite3_file* /*file*/, int /*op*/, void* /*arg*/) {
  return SQLITE_NOTFOUND;
}

int SectorSize(sqlite3_file* /*file*/) {
  return kSectorBytes;
}

// As of real disks: a write changes no bytes beside it.
int Characteristics(sqlite3_file* /*file*/) {
  return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

int ShmMap(sqlite3_file* file, int region, int bytes, int extend, void volatile** out) {
  SimFile& self = SimFile::Of(file);
  const auto index = static_cast<size_t>(region);
  while (extend != 0 && self.shared.size() <= index) {
    self.shared.push_back(std::make_unique<char[]>(static_cast<size_t>(bytes)));
  }
  *out = index < self.shared.size() ? self.shared[index].get() : nullptr;
  return SQLITE_OK;
}

int ShmLock(sqlite3_file* /*file*/, int /*offset*/, int /*n*/, int /*flags*/) {
  return SQLITE_OK;
}

void ShmBarrier(sqlite3_file* /*file*/) {}

int ShmUnmap(sqlite3_file* file, int /*remove*/) {
  SimFile::Of(file).shared.clear();
  return SQLITE_OK;
}

constexpr sqlite3_io_methods kMethods = {
    2,        Close,      Read,    Write,      Truncate,        Sync,   FileSize, Lock,
    Lock,     IsReserved, Control, SectorSize, Characteristics, ShmMap, ShmLock,  ShmBarrier,
    ShmUnmap, nullptr,    nullptr};

int OpenFile(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  SimDisk& disk = DiskOf(vfs);
  file->pMethods = nullptr;
  const bool create = (flags & SQLITE_OPEN_CREATE) != 0;
  if (path == nullptr) {
    return SQLITE_CANTOPEN;  // temporary files stay in memory (SQLITE_TEMP_STORE)
  }
  const bool is_new = !disk.Exists(path);
  auto handle = disk.Open(path, create, false);
  if (!handle.ok()) {
    return SQLITE_CANTOPEN;
  }
  auto* self = new (file) SimFile{{}, &disk, *std::move(handle), path, false, {}};
  self->folder_unsynced = is_new && (flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL)) != 0;
  self->base.pMethods = &kMethods;
  if (out_flags != nullptr) {
    *out_flags = flags;
  }
  return SQLITE_OK;
}

int Delete(sqlite3_vfs* vfs, const char* path, int sync_folder) {
  SimDisk& disk = DiskOf(vfs);
  if (!disk.Exists(path)) {
    return disk.off() ? SQLITE_IOERR_DELETE : SQLITE_IOERR_DELETE_NOENT;
  }
  if (!disk.RemoveAll(path).ok()) {
    return SQLITE_IOERR_DELETE;
  }
  const std::string name = path;
  const bool synced = sync_folder == 0 || disk.SyncDir(name.substr(0, name.rfind('/'))).ok();
  return synced ? SQLITE_OK : SQLITE_IOERR_DIR_FSYNC;
}

int Access(sqlite3_vfs* vfs, const char* path, int /*flags*/, int* out) {
  *out = DiskOf(vfs).Exists(path) ? 1 : 0;
  return SQLITE_OK;
}

int FullPath(sqlite3_vfs* /*vfs*/, const char* path, int bytes, char* out) {
  return sqlite3_snprintf(bytes, out, "%s", path) == nullptr ? SQLITE_CANTOPEN : SQLITE_OK;
}

// Salts of the WAL: other ones each time, the same in each run.
int Randomness(sqlite3_vfs* /*vfs*/, int bytes, char* out) {
  static std::atomic<uint32_t> next{1};
  for (int i = 0; i < bytes; ++i) {
    out[i] = static_cast<char>((next++ * 2654435761U) >> 24);
  }
  return bytes;
}

int Sleep(sqlite3_vfs* /*vfs*/, int microseconds) {
  return microseconds;
}

int CurrentTime(sqlite3_vfs* /*vfs*/, double* days) {
  *days = 2460000.5;
  return SQLITE_OK;
}

int LastError(sqlite3_vfs* /*vfs*/, int /*bytes*/, char* /*out*/) {
  return 0;
}

}  // namespace

struct SimDiskVfs::Registration {
  std::string name;
  sqlite3_vfs vfs{};
};

SimDiskVfs::SimDiskVfs(SimDisk& disk) : registration_(std::make_unique<Registration>()) {
  static std::atomic<int> count{0};
  registration_->name = absl::StrCat("sim-disk-", ++count);
  sqlite3_vfs& vfs = registration_->vfs;
  vfs.iVersion = 1;
  vfs.szOsFile = sizeof(SimFile);
  vfs.mxPathname = kPathMax;
  vfs.zName = registration_->name.c_str();
  vfs.pAppData = &disk;
  vfs.xOpen = OpenFile;
  vfs.xDelete = Delete;
  vfs.xAccess = Access;
  vfs.xFullPathname = FullPath;
  vfs.xRandomness = Randomness;
  vfs.xSleep = Sleep;
  vfs.xCurrentTime = CurrentTime;
  vfs.xGetLastError = LastError;
  sqlite3_vfs_register(&vfs, 0);
}

SimDiskVfs::~SimDiskVfs() {
  sqlite3_vfs_unregister(&registration_->vfs);
}

const std::string& SimDiskVfs::name() const {
  return registration_->name;
}

}  // namespace hearth::coordinator
