#include "common/io/verified_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/fd.h"
#include "common/base/status_macros.h"
#include "common/io/home.h"

namespace hearth {
namespace {

constexpr absl::string_view kTitle = "hearth verified files 1";
// Lines kept, newest last.
constexpr size_t kMostLines = 20000;
constexpr int kLocks = 64;
constexpr absl::Duration kLockPause = absl::Milliseconds(20);
constexpr absl::Duration kKeepEvery = absl::Seconds(2);
// If a file changed this shortly before it was read, another change may leave its times equal: file
// systems take them from a clock that ticks every 1 to 10 ms.
constexpr absl::Duration kTooFresh = absl::Milliseconds(100);

int64_t Nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::string VerifiedFilesFolder() {
  const std::string home = HearthHome();
  return home.empty() ? "" : absl::StrCat(home, "/verified");
}

// The facts by which a changed file is recognised.
struct FileVerifier::Identity {
  int64_t size = 0;
  int64_t modified = 0;  // ns
  int64_t changed = 0;   // ns, of the inode: a restored modification time does not hide a change
  uint64_t device = 0;
  uint64_t inode = 0;

  static std::optional<Identity> Of(const std::string& path) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      return std::nullopt;
    }
    return Identity{info.st_size, Nanoseconds(info.st_mtim), Nanoseconds(info.st_ctim), info.st_dev,
                    info.st_ino};
  }
  bool operator==(const Identity&) const = default;
  std::string Line(const RecordedFile& file) const {
    // A line with the digest alone is of SHA-256: older versions know no other.
    const std::string kind = file.checksum.kind == ChecksumKind::kSha256
                                 ? ""
                                 : absl::StrCat(KeyOf(file.checksum.kind), ":");
    return absl::StrCat(kind, file.checksum.hex, " ", size, " ", modified, " ", changed, " ",
                        device, " ", inode, " ", file.path);
  }
};

// A file to verify, with its facts from when verification began.
struct FileVerifier::Found {
  RecordedFile file;
  Identity identity;
  std::string Line() const { return identity.Line(file); }
};

// An advisory lock among this machine's processes and threads. Has no effect if it is not
// available, or if `stop` became true first.
class FileVerifier::Lock {
 public:
  Lock(Env& env,
       const std::string& folder,
       const std::string& name,
       const std::atomic<bool>* stop = nullptr) {
    if (folder.empty() || !env.CreateDirs(folder).ok()) {
      return;
    }
    fd_.Reset(open(absl::StrCat(folder, "/", name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    while (fd_.valid() && flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if ((errno != EWOULDBLOCK && errno != EINTR) || (stop != nullptr && stop->load())) {
        return;
      }
      waited_ = true;
      absl::SleepFor(kLockPause);
    }
  }

  bool waited() const { return waited_; }

 private:
  Fd fd_;
  bool waited_ = false;
};

// The lines of the folder's file.
class FileVerifier::Known {
 public:
  Known(Env& env, const std::string& folder) : env_(env), file_(absl::StrCat(folder, "/files")) {
    const absl::StatusOr<std::string> text =
        folder.empty() ? absl::NotFoundError("no folder") : env_.ReadFile(file_);
    if (!text.ok()) {
      return;
    }
    lines_ = absl::StrSplit(*text, '\n', absl::SkipEmpty());
    if (lines_.empty() || lines_.front() != kTitle) {
      lines_.clear();  // of another version, or damaged
      return;
    }
    lines_.erase(lines_.begin());
    std::erase_if(lines_, [](const std::string& line) { return PathOf(line).empty(); });
    set_.insert(lines_.begin(), lines_.end());
  }

  bool Has(const std::string& line) const { return set_.count(line) > 0; }

  // Replaces what is known about their paths.
  absl::Status Add(const std::vector<Found>& found) const {
    std::set<std::string, std::less<>> paths;
    for (const Found& one : found) {
      paths.insert(one.file.path);
    }
    std::vector<std::string> lines;
    for (const std::string& line : lines_) {
      if (paths.find(PathOf(line)) == paths.end()) {
        lines.push_back(line);
      }
    }
    for (const Found& one : found) {
      lines.push_back(one.Line());
    }
    std::string text = absl::StrCat(kTitle, "\n");
    for (size_t i = lines.size() - std::min(lines.size(), kMostLines); i < lines.size(); ++i) {
      absl::StrAppend(&text, lines[i], "\n");
    }
    return env_.WriteFileAtomically(file_, text);
  }

 private:
  // Empty: not a line of ours.
  static std::string_view PathOf(std::string_view line) {
    constexpr int kFieldsBefore = 6;
    for (int i = 0; i < kFieldsBefore; ++i) {
      const size_t space = line.find(' ');
      if (space == std::string_view::npos) {
        return "";
      }
      line.remove_prefix(space + 1);
    }
    return line;
  }

  Env& env_;
  const std::string file_;
  std::vector<std::string> lines_;
  std::unordered_set<std::string> set_;
};

// One call of Verify, shared by its threads.
class FileVerifier::Round {
 public:
  Round(const FileVerifier& verifier, std::vector<Found> files, const std::atomic<bool>* stop)
      : verifier_(verifier), files_(std::move(files)), stop_(stop) {
    kept_until_ = verifier_.clock_.Monotonic();
  }

  absl::Status Run() {
    std::vector<std::thread> helpers;
    const size_t threads = std::min(static_cast<size_t>(verifier_.threads_), files_.size());
    for (size_t i = 1; i < threads; ++i) {
      helpers.emplace_back([this] { Work(); });
    }
    Work();
    for (std::thread& helper : helpers) {
      helper.join();
    }
    absl::MutexLock lock(&mu_);
    verifier_.Remember(good_);
    return bad_;
  }

 private:
  void Work() {
    for (size_t i = next_.fetch_add(1); i < files_.size(); i = next_.fetch_add(1)) {
      absl::Status status = verifier_.Check(files_[i], stop_);
      absl::MutexLock lock(&mu_);
      if (status.ok()) {
        Keep(files_[i]);
      } else if (i < first_bad_) {
        // The first file in their order is reported, whichever thread came upon one.
        first_bad_ = i;
        bad_ = std::move(status);
        next_ = files_.size();
      }
    }
  }

  // Saves the results from time to time, because this process may be killed.
  void Keep(const Found& found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    good_.push_back(found);
    if (verifier_.clock_.Monotonic() - kept_until_ >= kKeepEvery) {
      verifier_.Remember(good_);
      good_.clear();
      kept_until_ = verifier_.clock_.Monotonic();
    }
  }

  const FileVerifier& verifier_;
  const std::vector<Found> files_;
  const std::atomic<bool>* const stop_;
  std::atomic<size_t> next_{0};
  absl::Mutex mu_;
  std::vector<Found> good_ ABSL_GUARDED_BY(mu_);  // not saved yet
  absl::Duration kept_until_ ABSL_GUARDED_BY(mu_);
  size_t first_bad_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<size_t>::max();
  absl::Status bad_ ABSL_GUARDED_BY(mu_);
};

FileVerifier::FileVerifier(std::string folder, int threads, Env& env, Clock& clock)
    : folder_(std::move(folder)), threads_(std::max(1, threads)), env_(env), clock_(clock) {}

std::vector<FileVerifier::Found> FileVerifier::NotKnown(
    absl::Span<const RecordedFile> files) const {
  const Known known(env_, folder_);
  std::vector<Found> out;
  for (const RecordedFile& file : files) {
    const std::optional<Identity> identity = Identity::Of(file.path);
    if (identity.has_value() && !known.Has(identity->Line(file))) {
      out.push_back({file, *identity});
    }
  }
  return out;
}

void FileVerifier::Remember(const std::vector<Found>& found) const {
  std::vector<Found> sure;
  for (const Found& one : found) {
    const absl::Time changed =
        absl::FromUnixNanos(std::max(one.identity.modified, one.identity.changed));
    // Only what surely did not change while it was read.
    if (one.file.path.find('\n') == std::string::npos &&
        Identity::Of(one.file.path) == one.identity && clock_.Now() - changed >= kTooFresh) {
      sure.push_back(one);
    }
  }
  if (!sure.empty() && !folder_.empty()) {
    const Lock lock(env_, folder_, "lock");
    // Read again under the lock: another process may have added lines.
    Known(env_, folder_).Add(sure).IgnoreError();  // they are read once more then
  }
}

absl::Status FileVerifier::Check(const Found& found, const std::atomic<bool>* stop) const {
  HEARTH_ASSIGN_OR_RETURN(
      const Checksum sum,
      ChecksumOfFile(env_, found.file.path, found.file.checksum.kind, threads_, stop));
  if (!(sum == found.file.checksum)) {
    return absl::DataLossError(
        absl::StrCat(found.file.path, ": ", LabelOf(sum.kind), " is ", sum.hex, ", recorded ",
                     found.file.checksum.hex,
                     "; copy the file again, or use it as it is: a job's data and model.from with "
                     "data.verify: false, a folder given to hearth-trainer with --no-verify"));
  }
  return absl::OkStatus();
}

absl::Status FileVerifier::Verify(absl::Span<const RecordedFile> files,
                                  const std::atomic<bool>* stop) const {
  std::vector<Found> left = NotKnown(files);
  if (left.empty()) {
    return absl::OkStatus();
  }
  // Processes that begin with the same file, as the ranks on a host do, wait for the first of them
  // and find the files known.
  const size_t bucket = std::hash<std::string>()(left.front().file.path) % kLocks;
  const Lock lock(env_, folder_, absl::StrCat("reading-", bucket), stop);
  if (lock.waited()) {
    left = NotKnown(files);
  }
  return Round(*this, std::move(left), stop).Run();
}

}  // namespace hearth
