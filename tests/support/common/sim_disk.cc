#include "tests/support/common/sim_disk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth {
namespace {

constexpr size_t kSectorBytes = 512;

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool IsUnder(const std::string& path, const std::string& dir) {
  return path.size() > dir.size() && path[dir.size()] == '/' && absl::StartsWith(path, dir);
}

void Put(std::string& bytes, int64_t offset, std::string_view data) {
  const auto begin = static_cast<size_t>(offset);
  if (bytes.size() < begin + data.size()) {
    bytes.resize(begin + data.size());
  }
  std::copy(data.begin(), data.end(), bytes.begin() + offset);
}

void Redo(const SimDisk::Node::Write& write, std::string& bytes) {
  if (write.truncate) {
    bytes.resize(static_cast<size_t>(write.offset));
  } else {
    Put(bytes, write.offset, write.data);
  }
}

// Each write is lost, whole, or torn: some of its sectors are there.
void RedoSome(const SimDisk::Node::Write& write, std::string& bytes, std::mt19937_64& random) {
  const auto chance = [&random](int of) { return random() % static_cast<uint64_t>(of) == 0; };
  if (chance(2)) {
    return;
  }
  if (write.truncate || chance(2)) {
    Redo(write, bytes);
    return;
  }
  size_t at = 0;
  while (at < write.data.size()) {
    const size_t place = static_cast<size_t>(write.offset) + at;
    const size_t length = std::min(kSectorBytes - place % kSectorBytes, write.data.size() - at);
    if (chance(2)) {
      Put(bytes, static_cast<int64_t>(place), std::string_view(write.data).substr(at, length));
    }
    at += length;
  }
}

class BytesInMemory : public MappedFile {
 public:
  explicit BytesInMemory(std::string bytes) : bytes_(std::move(bytes)) {}
  absl::Span<const uint8_t> bytes() const override {
    return {reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()};
  }

 private:
  const std::string bytes_;
};

absl::Status NotFound(const std::string& path) {
  return absl::NotFoundError(path + ": no such file or folder");
}

}  // namespace

class SimDisk::File : public WritableFile {
 public:
  File(SimDisk& disk, Handle handle) : disk_(disk), handle_(std::move(handle)) {}

  absl::Status Append(std::string_view data) override {
    HEARTH_ASSIGN_OR_RETURN(const int64_t size, disk_.SizeOf(handle_));
    return disk_.WriteAt(handle_, size, data);
  }
  absl::Status Allocate(int64_t bytes) override { return disk_.Resize(handle_, bytes); }
  absl::Status WriteAt(int64_t offset, std::string_view data) override {
    return disk_.WriteAt(handle_, offset, data);
  }
  absl::Status Sync() override { return disk_.Sync(handle_); }
  absl::Status Close() override { return disk_.SizeOf(handle_).status(); }

 private:
  SimDisk& disk_;
  const Handle handle_;
};

SimDisk::SimDisk() {
  now_[""] = durable_[""] = std::make_shared<Node>(Node{.folder = true});
}

std::unique_ptr<SimDisk> SimDisk::Copy() const {
  auto copy = std::make_unique<SimDisk>();
  absl::MutexLock lock(&mu_);
  absl::MutexLock lock_copy(&copy->mu_);
  for (const auto& [path, node] : now_) {
    copy->now_[path] = std::make_shared<Node>(
        Node{.folder = node->folder, .now = node->now, .durable = node->now});
  }
  copy->durable_ = copy->now_;
  return copy;
}

int64_t SimDisk::operations() const {
  absl::MutexLock lock(&mu_);
  return operations_;
}

void SimDisk::PowerFailsAt(int64_t n) {
  absl::MutexLock lock(&mu_);
  fails_at_ = operations_ + n;
}

bool SimDisk::off() const {
  absl::MutexLock lock(&mu_);
  return off_;
}

void SimDisk::IgnoreSyncs() {
  absl::MutexLock lock(&mu_);
  lies_ = true;
}

void SimDisk::ProgramEnds() {
  absl::MutexLock lock(&mu_);
  ++boot_;
  fails_at_ = INT64_MAX;
  off_ = false;
}

void SimDisk::PowerOn(Unsynced unsynced, std::mt19937_64& random) {
  absl::MutexLock lock(&mu_);
  size_t kept = unsynced == Unsynced::kKept ? unsynced_names_.size() : 0;
  if (unsynced == Unsynced::kSome) {
    kept = random() % (unsynced_names_.size() + 1);
  }
  for (size_t i = 0; i < kept; ++i) {
    Apply(unsynced_names_[i], durable_);
  }
  unsynced_names_.clear();
  // A name whose folder is gone cannot be found any more.
  for (auto it = durable_.begin(); it != durable_.end();) {
    const bool lost = !it->first.empty() && !durable_.contains(ParentOf(it->first));
    it = lost ? durable_.erase(it) : std::next(it);
  }
  for (const auto& [path, node] : durable_) {
    for (const Node::Write& write : node->unsynced) {
      if (unsynced == Unsynced::kKept) {
        Redo(write, node->durable);
      } else if (unsynced == Unsynced::kSome) {
        RedoSome(write, node->durable, random);
      }
    }
    node->unsynced.clear();
    node->now = node->durable;
  }
  now_ = durable_;
  ++boot_;
  fails_at_ = INT64_MAX;
  off_ = false;
}

absl::Status SimDisk::On() const {
  return off_ ? absl::InternalError("the power is off") : absl::OkStatus();
}

absl::Status SimDisk::Change() {
  HEARTH_RETURN_IF_ERROR(On());
  off_ = ++operations_ >= fails_at_;
  return On();
}

absl::Status SimDisk::Alive(const Handle& file) const {
  HEARTH_RETURN_IF_ERROR(On());
  return file.boot == boot_ ? absl::OkStatus()
                            : absl::InternalError("opened before the power failed");
}

absl::StatusOr<SimDisk::NodePtr> SimDisk::Find(const std::string& path) const {
  HEARTH_RETURN_IF_ERROR(On());
  const auto found = now_.find(path);
  return found == now_.end() ? absl::StatusOr<NodePtr>(NotFound(path)) : found->second;
}

void SimDisk::Apply(const NameChange& change, Names& names) {
  if (change.to.empty()) {
    if (change.node != nullptr) {
      names[change.path] = change.node;
    } else {
      names.erase(change.path);
    }
    return;
  }
  Names moved;
  for (auto it = names.begin(); it != names.end();) {
    const bool moves = it->first == change.path || IsUnder(it->first, change.path);
    if (moves) {
      moved[change.to + it->first.substr(change.path.size())] = it->second;
    }
    it = moves ? names.erase(it) : std::next(it);
  }
  // What was made under the old name and has never been durable there is durable now: the move
  // writes a new entry.
  moved.emplace(change.to, change.node);
  for (auto& [path, node] : moved) {
    names[path] = std::move(node);
  }
}

void SimDisk::Note(NameChange change) {
  Apply(change, now_);
  unsynced_names_.push_back(std::move(change));
}

absl::StatusOr<SimDisk::Handle> SimDisk::Open(const std::string& path, bool create, bool truncate) {
  absl::MutexLock lock(&mu_);
  absl::StatusOr<NodePtr> node = Find(path);
  if (absl::IsNotFound(node.status()) && create) {
    HEARTH_RETURN_IF_ERROR(Find(ParentOf(path)).status());
    HEARTH_RETURN_IF_ERROR(Change());
    node = std::make_shared<Node>();
    Note({path, "", *node});
  }
  HEARTH_RETURN_IF_ERROR(node.status());
  if (truncate && !(*node)->now.empty()) {
    HEARTH_RETURN_IF_ERROR(Change());
    (*node)->now.clear();
    (*node)->unsynced.push_back({0, "", true});
  }
  return Handle{*node, boot_};
}

absl::StatusOr<std::string> SimDisk::ReadAt(const Handle& file, int64_t offset, size_t bytes) {
  absl::MutexLock lock(&mu_);
  HEARTH_RETURN_IF_ERROR(Alive(file));
  const auto begin = std::min(static_cast<size_t>(offset), file.node->now.size());
  return file.node->now.substr(begin, bytes);
}

absl::Status SimDisk::WriteAt(const Handle& file, int64_t offset, std::string_view data) {
  absl::MutexLock lock(&mu_);
  HEARTH_RETURN_IF_ERROR(Alive(file));
  HEARTH_RETURN_IF_ERROR(Change());
  Put(file.node->now, offset, data);
  file.node->unsynced.push_back({offset, std::string(data), false});
  return absl::OkStatus();
}

absl::Status SimDisk::Resize(const Handle& file, int64_t size) {
  absl::MutexLock lock(&mu_);
  HEARTH_RETURN_IF_ERROR(Alive(file));
  HEARTH_RETURN_IF_ERROR(Change());
  file.node->now.resize(static_cast<size_t>(size));
  file.node->unsynced.push_back({size, "", true});
  return absl::OkStatus();
}

absl::Status SimDisk::Sync(const Handle& file) {
  absl::MutexLock lock(&mu_);
  HEARTH_RETURN_IF_ERROR(Alive(file));
  HEARTH_RETURN_IF_ERROR(Change());
  if (!lies_) {
    file.node->durable = file.node->now;
    file.node->unsynced.clear();
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SimDisk::SizeOf(const Handle& file) {
  absl::MutexLock lock(&mu_);
  HEARTH_RETURN_IF_ERROR(Alive(file));
  return static_cast<int64_t>(file.node->now.size());
}

absl::StatusOr<std::unique_ptr<WritableFile>> SimDisk::NewWritableFile(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(Handle handle, Open(path, true, true));
  return std::unique_ptr<WritableFile>(new File(*this, std::move(handle)));
}

absl::StatusOr<std::unique_ptr<WritableFile>> SimDisk::NewAppendableFile(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(Handle handle, Open(path, true, false));
  return std::unique_ptr<WritableFile>(new File(*this, std::move(handle)));
}

absl::StatusOr<std::unique_ptr<MappedFile>> SimDisk::Map(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  return std::unique_ptr<MappedFile>(new BytesInMemory(std::move(bytes)));
}

absl::StatusOr<std::string> SimDisk::ReadFile(const std::string& path) {
  absl::MutexLock lock(&mu_);
  HEARTH_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  return node->now;
}

absl::Status SimDisk::WriteFileAtomically(const std::string& path, std::string_view data) {
  return WriteFileAtomicallyWith(*this, path, data);
}

absl::Status SimDisk::Rename(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&mu_);
  HEARTH_ASSIGN_OR_RETURN(NodePtr node, Find(from));
  HEARTH_RETURN_IF_ERROR(Find(ParentOf(to)).status());
  HEARTH_RETURN_IF_ERROR(Change());
  Note({from, to, std::move(node)});
  return absl::OkStatus();
}

absl::Status SimDisk::SyncDir(const std::string& dir) {
  absl::MutexLock lock(&mu_);
  HEARTH_RETURN_IF_ERROR(Find(dir).status());
  HEARTH_RETURN_IF_ERROR(Change());
  if (lies_) {
    return absl::OkStatus();
  }
  std::vector<NameChange> rest;
  for (NameChange& change : unsynced_names_) {
    const bool here =
        ParentOf(change.path) == dir || (!change.to.empty() && ParentOf(change.to) == dir);
    if (here) {
      Apply(change, durable_);
    } else {
      rest.push_back(std::move(change));
    }
  }
  unsynced_names_ = std::move(rest);
  return absl::OkStatus();
}

absl::Status SimDisk::CreateDirs(const std::string& dir) {
  absl::MutexLock lock(&mu_);
  HEARTH_RETURN_IF_ERROR(On());
  for (size_t slash = dir.find('/', 1);; slash = dir.find('/', slash + 1)) {
    const std::string path = dir.substr(0, slash);
    if (!now_.contains(path)) {
      HEARTH_RETURN_IF_ERROR(Change());
      Note({path, "", std::make_shared<Node>(Node{.folder = true})});
    }
    if (slash == std::string::npos) {
      return absl::OkStatus();
    }
  }
}

absl::Status SimDisk::RemoveAll(const std::string& path) {
  absl::MutexLock lock(&mu_);
  HEARTH_RETURN_IF_ERROR(On());
  std::vector<std::string> gone;
  for (const auto& [name, node] : now_) {
    if (name == path || IsUnder(name, path)) {
      gone.push_back(name);
    }
  }
  std::reverse(gone.begin(), gone.end());  // what is in a folder goes before it
  for (const std::string& name : gone) {
    HEARTH_RETURN_IF_ERROR(Change());
    Note({name, "", nullptr});
  }
  return absl::OkStatus();
}

absl::Status SimDisk::Truncate(const std::string& path, int64_t size) {
  HEARTH_ASSIGN_OR_RETURN(const Handle handle, Open(path, false, false));
  return Resize(handle, size);
}

absl::StatusOr<int64_t> SimDisk::FileSize(const std::string& path) {
  absl::MutexLock lock(&mu_);
  HEARTH_ASSIGN_OR_RETURN(const NodePtr node, Find(path));
  return static_cast<int64_t>(node->now.size());
}

bool SimDisk::Exists(const std::string& path) {
  absl::MutexLock lock(&mu_);
  return Find(path).ok();
}

bool SimDisk::IsDirectory(const std::string& path) {
  absl::MutexLock lock(&mu_);
  const absl::StatusOr<NodePtr> node = Find(path);
  return node.ok() && (*node)->folder;
}

absl::StatusOr<std::vector<std::string>> SimDisk::ListDir(const std::string& dir) {
  absl::MutexLock lock(&mu_);
  HEARTH_RETURN_IF_ERROR(Find(dir).status());
  std::vector<std::string> names;
  for (const auto& [path, node] : now_) {
    if (!path.empty() && ParentOf(path) == dir) {
      names.push_back(path.substr(dir.size() + 1));
    }
  }
  return names;
}

}  // namespace hearth
