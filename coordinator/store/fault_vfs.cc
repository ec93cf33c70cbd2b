#include "coordinator/store/fault_vfs.h"

#include <sqlite3.h>

#include "absl/status/status.h"
#include "common/fault/fault.h"

namespace hearth::coordinator {
namespace {

// Followed in memory by the file of the real VFS.
struct FaultFile {
  sqlite3_file base;

  static sqlite3_file* Real(sqlite3_file* file) {
    return reinterpret_cast<sqlite3_file*>(reinterpret_cast<FaultFile*>(file) + 1);
  }
};

sqlite3_vfs* RealVfs(sqlite3_vfs* vfs) {
  return static_cast<sqlite3_vfs*>(vfs->pAppData);
}

int CodeOf(const absl::Status& status, int error) {
  return status.ok() ? SQLITE_OK : absl::IsResourceExhausted(status) ? SQLITE_FULL : error;
}

// A call to the real file's method of the same name.
template <auto Method, typename... Args>
int Pass(sqlite3_file* file, Args... args) {
  sqlite3_file* real = FaultFile::Real(file);
  return (real->pMethods->*Method)(real, args...);
}

int Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  const int fault = CodeOf(fault::Check("store.db_write"), SQLITE_IOERR_WRITE);
  return fault != SQLITE_OK ? fault : Pass<&sqlite3_io_methods::xWrite>(file, data, bytes, offset);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  const int fault = CodeOf(fault::Check("store.db_truncate"), SQLITE_IOERR_TRUNCATE);
  return fault != SQLITE_OK ? fault : Pass<&sqlite3_io_methods::xTruncate>(file, size);
}

int Sync(sqlite3_file* file, int flags) {
  const int fault = CodeOf(fault::Check("store.db_sync"), SQLITE_IOERR_FSYNC);
  return fault != SQLITE_OK ? fault : Pass<&sqlite3_io_methods::xSync>(file, flags);
}

void ShmBarrier(sqlite3_file* file) {
  sqlite3_file* real = FaultFile::Real(file);
  real->pMethods->xShmBarrier(real);
}

// Version 2: without memory maps, through which writes would pass unseen.
constexpr sqlite3_io_methods kMethods = {
    .iVersion = 2,
    .xClose = Pass<&sqlite3_io_methods::xClose>,
    .xRead = Pass<&sqlite3_io_methods::xRead, void*, int, sqlite3_int64>,
    .xWrite = Write,
    .xTruncate = Truncate,
    .xSync = Sync,
    .xFileSize = Pass<&sqlite3_io_methods::xFileSize, sqlite3_int64*>,
    .xLock = Pass<&sqlite3_io_methods::xLock, int>,
    .xUnlock = Pass<&sqlite3_io_methods::xUnlock, int>,
    .xCheckReservedLock = Pass<&sqlite3_io_methods::xCheckReservedLock, int*>,
    .xFileControl = Pass<&sqlite3_io_methods::xFileControl, int, void*>,
    .xSectorSize = Pass<&sqlite3_io_methods::xSectorSize>,
    .xDeviceCharacteristics = Pass<&sqlite3_io_methods::xDeviceCharacteristics>,
    .xShmMap = Pass<&sqlite3_io_methods::xShmMap, int, int, int, void volatile**>,
    .xShmLock = Pass<&sqlite3_io_methods::xShmLock, int, int, int>,
    .xShmBarrier = ShmBarrier,
    .xShmUnmap = Pass<&sqlite3_io_methods::xShmUnmap, int>,
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  sqlite3_file* real = FaultFile::Real(file);
  const int code = RealVfs(vfs)->xOpen(RealVfs(vfs), path, real, flags, out_flags);
  // SQLite closes a file whose methods are set, also one that could not be opened.
  file->pMethods = real->pMethods == nullptr ? nullptr : &kMethods;
  return code;
}

int Remove(sqlite3_vfs* vfs, const char* path, int sync_folder) {
  const int fault = CodeOf(fault::Check("store.db_remove"), SQLITE_IOERR_DELETE);
  return fault != SQLITE_OK ? fault : RealVfs(vfs)->xDelete(RealVfs(vfs), path, sync_folder);
}

std::string Register() {
  static sqlite3_vfs vfs = *sqlite3_vfs_find(nullptr);
  vfs.pAppData = sqlite3_vfs_find(nullptr);
  vfs.szOsFile += static_cast<int>(sizeof(FaultFile));
  vfs.zName = "hearth-faults";
  vfs.pNext = nullptr;
  vfs.xOpen = Open;
  vfs.xDelete = Remove;
  sqlite3_vfs_register(&vfs, 0);
  return vfs.zName;
}

}  // namespace

const std::string& FaultVfs() {
  static const std::string* const name = new std::string(Register());
  return *name;
}

}  // namespace hearth::coordinator
