#include "coordinator/store/segment_log.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "coordinator/store/record_frame.h"

namespace hearth::coordinator {
namespace {

constexpr absl::string_view kSuffix = ".seg";

// First record numbers of the segment files in `dir`, ascending. Empty when there is no folder.
absl::StatusOr<std::vector<int64_t>> ListSegments(Env& env, const std::string& dir) {
  std::vector<int64_t> firsts;
  if (!env.IsDirectory(dir)) {
    return firsts;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.ListDir(dir));
  for (const std::string& name : names) {
    absl::string_view stem = name;
    int64_t first = 0;
    if (absl::ConsumeSuffix(&stem, kSuffix) && absl::SimpleAtoi(stem, &first) && first > 0) {
      firsts.push_back(first);
    }
  }
  std::sort(firsts.begin(), firsts.end());
  return firsts;
}

std::string PathOf(const std::string& dir, int64_t first) {
  return absl::StrCat(dir, "/", absl::StrFormat("%020d", first), kSuffix);
}

// Whole, undamaged frames of a segment from `offset` on.
struct Prefix {
  int64_t bytes = 0;  // where they end
  int64_t last = 0;   // the last one's cursor, 0 = there is none
};

// Stops before a cursor above `last_max`.
absl::StatusOr<Prefix> IntactPrefix(Env& env,
                                    const std::string& path,
                                    int64_t offset = 0,
                                    int64_t last_max = INT64_MAX) {
  Prefix prefix{offset, 0};
  HEARTH_ASSIGN_OR_RETURN(const int64_t size, env.FileSize(path));
  if (size <= offset) {
    return prefix;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> map, env.Map(path));
  Frame frame;
  while (GetFrame(map->bytes(), prefix.bytes, static_cast<int64_t>(map->bytes().size()), frame) &&
         frame.Intact() && frame.cursor <= last_max) {
    prefix.bytes += frame.size();
    prefix.last = frame.cursor;
  }
  return prefix;
}

// Whether the file simply ends at `offset` or in the frame that begins there.
bool TornAt(Env& env, const std::string& path, int64_t offset) {
  const absl::StatusOr<std::unique_ptr<MappedFile>> map = env.Map(path);
  Frame frame;
  return map.ok() &&
         !GetFrame((*map)->bytes(), offset, static_cast<int64_t>((*map)->bytes().size()), frame);
}

// The frames of a segment that are whole, in the order of their cursors. `lost` gets the number of
// all other bytes.
std::string WholeFrames(const std::string& bytes, int64_t& lost) {
  const absl::Span<const uint8_t> all(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  std::string whole;
  int64_t at = 0;
  int64_t last = 0;
  Frame frame;
  while (GetFrame(all, at, static_cast<int64_t>(bytes.size()), frame)) {
    if (frame.Intact() && frame.cursor > last) {
      whole.append(bytes, at, frame.size());
      last = frame.cursor;
    } else {
      lost += frame.size();
    }
    at += frame.size();
  }
  lost += static_cast<int64_t>(bytes.size()) - at;
  return whole;
}

}  // namespace

SegmentLog::SegmentLog(Env& env, std::string dir, SegmentLogOptions options, Position recorded)
    : env_(env),
      dir_(std::move(dir)),
      options_(options),
      newest_(recorded.end),
      position_(recorded),
      files_(recorded) {}

std::string SegmentLog::SegmentPath(int64_t first) const {
  return PathOf(dir_, first);
}

// Segments behind the recorded tail, and those that the bound dropped just before a crash.
absl::Status SegmentLog::DropUnrecorded(const std::vector<int64_t>& firsts,
                                        int64_t known_end,
                                        const Keep& keep,
                                        std::vector<std::string>& warnings) {
  segments_.clear();
  for (const int64_t first : firsts) {
    const std::string path = SegmentPath(first);
    if (first <= position_.tail_first) {
      HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, env_.FileSize(path));
      segments_.push_back({first, bytes});
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const Prefix prefix, IntactPrefix(env_, path));
    if (prefix.last > known_end) {
      warnings.push_back(absl::StrCat(path, ": records up to ", prefix.last,
                                      " that the store does not know; kept aside"));
      HEARTH_RETURN_IF_ERROR(keep(path, true));
    }
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(path));
  }
  while (segments_.size() > 1 && segments_[1].first <= position_.first) {
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(SegmentPath(segments_.front().first)));
    segments_.erase(segments_.begin());
  }
  return absl::OkStatus();
}

absl::Status SegmentLog::Recover(int64_t known_end,
                                 const Keep& keep,
                                 std::vector<std::string>& warnings) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int64_t> firsts, ListSegments(env_, dir_));
  absl::MutexLock sync(&sync_mu_);
  HEARTH_RETURN_IF_ERROR(DropUnrecorded(firsts, known_end, keep, warnings));
  segments_known_ = true;
  if (position_.tail_first == 0) {
    return absl::OkStatus();
  }
  const bool have_tail = !segments_.empty() && segments_.back().first == position_.tail_first;
  if (have_tail && segments_.back().bytes >= position_.tail_bytes) {
    return CutTail(known_end, keep, warnings);
  }
  // The file is shorter than what was acknowledged: keep its whole frames and continue in a new
  // segment, so that no number is reused.
  int64_t kept = position_.tail_first - 1;
  if (have_tail) {
    const std::string path = SegmentPath(position_.tail_first);
    HEARTH_ASSIGN_OR_RETURN(const Prefix prefix, IntactPrefix(env_, path));
    kept = std::max(kept, prefix.last);
    HEARTH_RETURN_IF_ERROR(env_.Truncate(path, prefix.bytes));
    segments_.back().bytes = prefix.bytes;
  }
  const int64_t lost = position_.end - kept;
  warnings.push_back(absl::StrCat(dir_, ": ", lost,
                                  " recorded entries are missing from the files; they are ",
                                  "counted as dropped"));
  position_.dropped += lost;
  HEARTH_RETURN_IF_ERROR(StartSegment(position_.end + 1));
  HEARTH_RETURN_IF_ERROR(file_->Close());
  file_.reset();
  absl::MutexLock lock(&mu_);
  files_ = position_;
  return absl::OkStatus();
}

absl::Status SegmentLog::CutTail(int64_t known_end,
                                 const Keep& keep,
                                 std::vector<std::string>& warnings) {
  Segment& tail = segments_.back();
  if (tail.bytes == position_.tail_bytes) {
    return absl::OkStatus();
  }
  const std::string path = SegmentPath(tail.first);
  HEARTH_ASSIGN_OR_RETURN(const Prefix behind, IntactPrefix(env_, path, position_.tail_bytes));
  if (behind.last > known_end) {
    warnings.push_back(absl::StrCat(path, ": records up to ", behind.last,
                                    " that the store does not know; a copy is kept aside"));
    HEARTH_RETURN_IF_ERROR(keep(path, false));
  }
  tail.bytes = position_.tail_bytes;
  return env_.Truncate(path, position_.tail_bytes);
}

bool SegmentLog::Append(int64_t cursor, uint8_t kind, std::string_view payload) {
  if (cursor <= newest_ || cursor == std::numeric_limits<int64_t>::max()) {
    return false;
  }
  newest_ = cursor;
  pending_.push_back({cursor, kind, std::string(payload)});
  return true;
}

void SegmentLog::Publish() {
  absl::MutexLock lock(&mu_);
  memory_.insert(memory_.end(), std::make_move_iterator(pending_.begin()),
                 std::make_move_iterator(pending_.end()));
  pending_.clear();
}

absl::Status SegmentLog::OpenTail() {
  if (!segments_known_) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<int64_t> firsts, ListSegments(env_, dir_));
    for (const int64_t first : firsts) {
      HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, env_.FileSize(SegmentPath(first)));
      segments_.push_back({first, bytes});
    }
    segments_known_ = true;
  }
  if (position_.tail_first == 0) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(file_, env_.NewAppendableFile(SegmentPath(position_.tail_first)));
  return absl::OkStatus();
}

absl::Status SegmentLog::StartSegment(int64_t first) {
  const bool new_dir = !env_.IsDirectory(dir_);
  if (new_dir) {
    HEARTH_RETURN_IF_ERROR(env_.CreateDirs(dir_));
  }
  HEARTH_ASSIGN_OR_RETURN(file_, env_.NewWritableFile(SegmentPath(first)));
  // A synced file is lost in a power cut all the same while its name is not on the disk.
  HEARTH_RETURN_IF_ERROR(env_.SyncDir(dir_));
  if (new_dir) {
    // Two levels were made: <jobs>/<id>/<stream>.
    const std::string job_dir = dir_.substr(0, dir_.rfind('/'));
    HEARTH_RETURN_IF_ERROR(env_.SyncDir(job_dir));
    HEARTH_RETURN_IF_ERROR(env_.SyncDir(job_dir.substr(0, job_dir.rfind('/'))));
  }
  segments_.push_back({first, 0});
  position_.tail_first = first;
  position_.tail_bytes = 0;
  return absl::OkStatus();
}

absl::Status SegmentLog::FinishWrite(const std::string& buffer) {
  if (!buffer.empty()) {
    HEARTH_RETURN_IF_ERROR(file_->Append(buffer));
    HEARTH_RETURN_IF_ERROR(file_->Sync());
    segments_.back().bytes = position_.tail_bytes;
  }
  if (file_ != nullptr) {
    HEARTH_RETURN_IF_ERROR(file_->Close());
    file_.reset();
  }
  return absl::OkStatus();
}

absl::Status SegmentLog::WriteFrames(const std::vector<Record>& records) {
  HEARTH_RETURN_IF_ERROR(OpenTail());
  std::string buffer;
  for (const Record& record : records) {
    const int64_t bytes = kFrameHeaderBytes + static_cast<int64_t>(record.payload.size());
    const bool full =
        position_.tail_bytes > 0 && position_.tail_bytes + bytes > options_.segment_bytes;
    if (file_ == nullptr || full) {
      HEARTH_RETURN_IF_ERROR(FinishWrite(buffer));
      // Synced and closed before its successor exists: Recover checks the tail alone.
      buffer.clear();
      HEARTH_RETURN_IF_ERROR(StartSegment(record.cursor));
    }
    PutFrame(buffer, record.cursor, record.kind, record.payload);
    position_.tail_bytes += bytes;
  }
  position_.end = records.back().cursor;
  return FinishWrite(buffer);
}

absl::Status SegmentLog::Sync() {
  absl::MutexLock sync(&sync_mu_);
  std::vector<Record> records;
  {
    absl::MutexLock lock(&mu_);
    // A copy, and the lock is given back while the disk works: readers and the commit do not wait.
    records.assign(memory_.begin(), memory_.end());
  }
  if (records.empty() || abandoned_) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(WriteFrames(records));
  DropOldSegments();
  absl::MutexLock lock(&mu_);
  files_ = position_;
  // Records that were published meanwhile stay behind these.
  memory_.erase(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(records.size()));
  return absl::OkStatus();
}

void SegmentLog::DropOldSegments() {
  int64_t total = 0;
  for (const Segment& segment : segments_) {
    total += segment.bytes;
  }
  while (segments_.size() > 1 && total > options_.max_bytes) {
    total -= segments_.front().bytes;
    to_remove_.push_back(segments_.front().first);
    segments_.erase(segments_.begin());
    position_.dropped += segments_.front().first - position_.first;
    position_.first = segments_.front().first;
  }
}

SegmentLog::Position SegmentLog::synced() const {
  absl::MutexLock sync(&sync_mu_);
  return position_;
}

void SegmentLog::RemoveDropped() {
  absl::MutexLock sync(&sync_mu_);
  for (const int64_t first : to_remove_) {
    // A file that stays behind is removed by the next Recover; it costs space, not correctness.
    env_.RemoveAll(SegmentPath(first)).IgnoreError();
  }
  to_remove_.clear();
}

void SegmentLog::Abandon() {
  absl::MutexLock sync(&sync_mu_);
  abandoned_ = true;
}

SegmentLog::Position SegmentLog::committed() const {
  absl::MutexLock lock(&mu_);
  Position position = files_;
  if (!memory_.empty()) {
    position.end = memory_.back().cursor;
  }
  return position;
}

void SegmentLog::ReadMemory(ReadState& state, int64_t budget, ReadResult& result) const {
  auto record = std::lower_bound(memory_.begin(), memory_.end(), state.next,
                                 [](const Record& r, int64_t next) { return r.cursor < next; });
  for (; record != memory_.end() && budget > 0; ++record) {
    result.dropped += record->cursor - state.next;
    result.records.push_back(*record);
    budget -= kFrameHeaderBytes + static_cast<int64_t>(record->payload.size());
    state.next = record->cursor + 1;
  }
  result.at_end = record == memory_.end();
}

absl::StatusOr<SegmentLog::Position> SegmentLog::Rebuild(Env& env,
                                                         const std::string& dir,
                                                         int64_t end_max) {
  HEARTH_ASSIGN_OR_RETURN(std::vector<int64_t> firsts, ListSegments(env, dir));
  Position position;
  while (!firsts.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const Prefix prefix,
                            IntactPrefix(env, PathOf(dir, firsts.back()), 0, end_max));
    if (prefix.last > 0) {
      position.first = firsts.front();
      position.end = prefix.last;
      position.tail_first = firsts.back();
      position.tail_bytes = prefix.bytes;
      position.dropped = position.first - 1;
      break;
    }
    firsts.pop_back();
  }
  return position;
}

absl::StatusOr<int64_t> SegmentLog::Copy(Env& env,
                                         const std::string& from,
                                         const std::string& to,
                                         const Position& recorded) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int64_t> firsts, ListSegments(env, from));
  int64_t copied = 0;
  bool have_tail = recorded.tail_first == 0;
  for (const int64_t first : firsts) {
    if (first > recorded.tail_first) {
      break;
    }
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> map, env.Map(PathOf(from, first)));
    absl::string_view bytes(reinterpret_cast<const char*>(map->bytes().data()),
                            map->bytes().size());
    if (first == recorded.tail_first) {
      have_tail = true;
      bytes = bytes.substr(0, recorded.tail_bytes);  // what follows is not recorded yet
    }
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                            env.NewWritableFile(PathOf(to, first)));
    HEARTH_RETURN_IF_ERROR(file->Append(std::string_view(bytes.data(), bytes.size())));
    HEARTH_RETURN_IF_ERROR(file->Sync());
    HEARTH_RETURN_IF_ERROR(file->Close());
    copied += static_cast<int64_t>(bytes.size());
  }
  if (!have_tail) {
    return absl::NotFoundError(PathOf(from, recorded.tail_first) + " is gone");
  }
  HEARTH_RETURN_IF_ERROR(env.SyncDir(to));
  return copied;
}

std::vector<SegmentLog::Problem> SegmentLog::Check(Env& env,
                                                   const std::string& dir,
                                                   const Position& recorded) {
  const absl::StatusOr<std::vector<int64_t>> firsts = ListSegments(env, dir);
  if (!firsts.ok()) {
    return {{std::string(firsts.status().message())}};
  }
  std::vector<Problem> problems;
  bool have_tail = recorded.tail_first == 0;
  for (const int64_t first : *firsts) {
    const std::string path = PathOf(dir, first);
    const bool tail = first == recorded.tail_first;
    have_tail = have_tail || tail;
    const absl::StatusOr<int64_t> size = env.FileSize(path);
    const absl::StatusOr<Prefix> prefix = IntactPrefix(env, path);
    if (!size.ok() || !prefix.ok()) {
      problems.push_back({std::string((size.ok() ? prefix.status() : size.status()).message())});
    } else if (first <= recorded.tail_first &&
               prefix->bytes < (tail ? recorded.tail_bytes : *size)) {
      // Past the recorded tail anything may stand: it was written after the last commit that
      // counts, and the next start cuts it off.
      const bool torn = tail && *size < recorded.tail_bytes && TornAt(env, path, prefix->bytes);
      problems.push_back(
          {absl::StrCat(path, torn ? ": cut off" : ": damaged", " at offset ", prefix->bytes,
                        " (record after ", std::max(prefix->last, first - 1), ")"),
           torn});
    }
  }
  if (!have_tail) {
    problems.push_back({absl::StrCat(PathOf(dir, recorded.tail_first), ": missing"), true});
  }
  return problems;
}

absl::Status SegmentLog::Mend(Env& env,
                              const std::string& dir,
                              const Position& recorded,
                              const std::function<absl::Status(const std::string& path)>& keep,
                              std::vector<std::string>& done) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int64_t> firsts, ListSegments(env, dir));
  for (const int64_t first : firsts) {
    if (first > recorded.tail_first) {
      break;
    }
    const std::string path = PathOf(dir, first);
    HEARTH_ASSIGN_OR_RETURN(std::string bytes, env.ReadFile(path));
    // What follows the recorded end was never acknowledged; it is no damage.
    if (first == recorded.tail_first) {
      bytes.resize(std::min<size_t>(bytes.size(), recorded.tail_bytes));
    }
    int64_t lost_bytes = 0;
    const std::string whole = WholeFrames(bytes, lost_bytes);
    if (lost_bytes == 0) {
      continue;
    }
    // The damaged file is kept before the mended one takes its name.
    HEARTH_RETURN_IF_ERROR(keep(path));
    HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(path, whole));
    done.push_back(absl::StrCat(path, ": ", lost_bytes, " damaged bytes were cut out, ",
                                whole.size(), " bytes of whole records stay"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SegmentLog::ReadResult> SegmentLog::Read(ReadState& state, int64_t max_bytes) const {
  ReadResult result;
  int64_t budget = max_bytes;
  // A Sync may drop the segment between the look at the position and at the files: then the
  // position is newer, too, and the next attempt finds others.
  for (int attempt = 0; attempt < 3;) {
    Position committed;
    {
      absl::MutexLock lock(&mu_);
      committed = files_;
      if (state.next < committed.first) {
        result.dropped += committed.first - state.next;
        state = ReadState{committed.first, 0, 0};
      }
      if (state.next > committed.end) {
        ReadMemory(state, budget, result);
        return result;
      }
    }
    if (budget <= 0) {
      return result;
    }
    HEARTH_ASSIGN_OR_RETURN(const std::vector<int64_t> firsts, ListSegments(env_, dir_));
    const auto after = std::upper_bound(firsts.begin(), firsts.end(), state.next);
    if (firsts.empty()) {
      ++attempt;  // dropped between the two checks, or the job is deleted
      continue;
    }
    // Before the first segment there is nothing: its gap is counted by ReadSegment.
    const int64_t segment = after == firsts.begin() ? firsts.front() : *(after - 1);
    const auto following = std::upper_bound(firsts.begin(), firsts.end(), segment);
    if (state.segment_first != segment) {
      state.segment_first = segment;
      state.offset = 0;
    }
    // A Sync may be writing behind the recorded end of the tail right now.
    const int64_t limit = segment == committed.tail_first ? committed.tail_bytes : INT64_MAX;
    const int64_t last =
        following == firsts.end() ? committed.end : std::min(committed.end, *following - 1);
    const absl::Status status = ReadSegment(state, limit, last, budget, result);
    if (absl::IsNotFound(status)) {
      ++attempt;
      continue;
    }
    HEARTH_RETURN_IF_ERROR(status);
  }
  return absl::NotFoundError(absl::StrCat(dir_, ": no such files"));
}

absl::Status SegmentLog::ReadSegment(
    ReadState& state, int64_t limit, int64_t last, int64_t& budget, ReadResult& result) const {
  const std::string path = SegmentPath(state.segment_first);
  // The mapping outlives the file: the bound may remove it meanwhile.
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> map, env_.Map(path));
  const absl::Span<const uint8_t> bytes = map->bytes();
  const int64_t size = std::min<int64_t>(limit, static_cast<int64_t>(bytes.size()));
  Frame frame;
  while (budget > 0) {
    const bool whole = GetFrame(bytes, state.offset, size, frame);
    if (!whole || frame.cursor > last) {
      if (!whole && state.offset < size) {
        return absl::DataLossError(absl::StrCat(path, ": damaged frame at offset ", state.offset));
      }
      result.dropped += last + 1 - state.next;  // a gap behind the segment's last record
      state.next = last + 1;
      return absl::OkStatus();
    }
    if (frame.cursor >= state.next) {
      if (!frame.Intact()) {
        return absl::DataLossError(
            absl::StrCat(path, ": checksum differs at offset ", state.offset));
      }
      result.dropped += frame.cursor - state.next;
      result.records.push_back({frame.cursor, frame.kind, std::string(frame.payload)});
      budget -= frame.size();
      state.next = frame.cursor + 1;
    }
    state.offset += frame.size();
  }
  return absl::OkStatus();
}

}  // namespace hearth::coordinator
