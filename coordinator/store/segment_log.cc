#include "coordinator/store/segment_log.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace hearth::coordinator {
namespace {

constexpr int64_t kHeaderBytes = 17;
constexpr absl::string_view kSuffix = ".seg";

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    }
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

uint32_t ExtendCrc(uint32_t crc, std::string_view bytes) {
  for (const char c : bytes) {
    crc = kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  }
  return crc;
}

template <typename T>
void PutInteger(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>((static_cast<uint64_t>(value) >> (8 * i)) & 0xff));
  }
}

template <typename T>
T GetInteger(const char* data) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{static_cast<uint8_t>(data[i])} << (8 * i);
  }
  return static_cast<T>(value);
}

// One record as it lies in a segment.
struct Frame {
  int64_t cursor = 0;
  uint8_t kind = 0;
  uint32_t crc = 0;
  std::string_view checked;  // what the checksum covers: cursor, kind, payload
  std::string_view payload;
  int64_t size() const { return kHeaderBytes + static_cast<int64_t>(payload.size()); }
  // CRC-32C (Castagnoli).
  bool Intact() const { return ~ExtendCrc(0xffffffffu, checked) == crc; }
};

void PutFrame(std::string& out, int64_t cursor, uint8_t kind, std::string_view payload) {
  std::string checked;
  PutInteger<int64_t>(checked, cursor);
  checked.push_back(static_cast<char>(kind));
  checked.append(payload);
  PutInteger<uint32_t>(out, static_cast<uint32_t>(payload.size()));
  PutInteger<uint32_t>(out, ~ExtendCrc(0xffffffffu, checked));
  out.append(checked);
}

// False when the bytes from `offset` to `size` hold no whole frame.
bool GetFrame(absl::Span<const uint8_t> bytes, int64_t offset, int64_t size, Frame& frame) {
  if (offset + kHeaderBytes > size) {
    return false;
  }
  const char* data = reinterpret_cast<const char*>(bytes.data()) + offset;
  const int64_t length = GetInteger<uint32_t>(data);
  if (offset + kHeaderBytes + length > size) {
    return false;
  }
  frame.crc = GetInteger<uint32_t>(data + 4);
  frame.cursor = GetInteger<int64_t>(data + 8);
  frame.kind = static_cast<uint8_t>(data[16]);
  frame.checked = std::string_view(data + 8, static_cast<size_t>(9 + length));
  frame.payload = std::string_view(data + kHeaderBytes, static_cast<size_t>(length));
  return true;
}

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

// Bytes of whole, undamaged frames at the start of a segment, and the last one's cursor (or
// `before` when there is none).
std::pair<int64_t, int64_t> IntactPrefix(absl::Span<const uint8_t> bytes, int64_t before) {
  int64_t offset = 0;
  int64_t last = before;
  Frame frame;
  while (GetFrame(bytes, offset, static_cast<int64_t>(bytes.size()), frame) && frame.Intact()) {
    offset += frame.size();
    last = frame.cursor;
  }
  return {offset, last};
}

}  // namespace

SegmentLog::SegmentLog(Env& env, std::string dir, SegmentLogOptions options, Position committed)
    : env_(env),
      dir_(std::move(dir)),
      options_(options),
      position_(committed),
      committed_(committed) {}

std::string SegmentLog::SegmentPath(int64_t first) const {
  return absl::StrCat(dir_, "/", absl::StrFormat("%020d", first), kSuffix);
}

absl::Status SegmentLog::Recover(std::string& warning) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int64_t> firsts, ListSegments(env_, dir_));
  segments_.clear();
  for (const int64_t first : firsts) {
    if (first > position_.tail_first) {  // never committed
      HEARTH_RETURN_IF_ERROR(env_.RemoveAll(SegmentPath(first)));
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const int64_t bytes, env_.FileSize(SegmentPath(first)));
    segments_.push_back({first, bytes});
  }
  // Dropped by the bound, but the crash came before they were removed.
  while (segments_.size() > 1 && segments_[1].first <= position_.first) {
    HEARTH_RETURN_IF_ERROR(env_.RemoveAll(SegmentPath(segments_.front().first)));
    segments_.erase(segments_.begin());
  }
  segments_known_ = true;
  if (position_.tail_first == 0) {
    return absl::OkStatus();
  }
  const bool have_tail = !segments_.empty() && segments_.back().first == position_.tail_first;
  if (have_tail && segments_.back().bytes >= position_.tail_bytes) {
    if (segments_.back().bytes > position_.tail_bytes) {
      HEARTH_RETURN_IF_ERROR(
          env_.Truncate(SegmentPath(position_.tail_first), position_.tail_bytes));
      segments_.back().bytes = position_.tail_bytes;
    }
    return absl::OkStatus();
  }
  // The file is shorter than what was acknowledged: keep what is whole and go on in a new segment,
  // so that no number is reused.
  int64_t kept = position_.tail_first - 1;
  if (have_tail) {
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> map,
                            env_.Map(SegmentPath(position_.tail_first)));
    const auto [bytes, last] = IntactPrefix(map->bytes(), kept);
    kept = last;
    map.reset();
    HEARTH_RETURN_IF_ERROR(env_.Truncate(SegmentPath(position_.tail_first), bytes));
    segments_.back().bytes = bytes;
  }
  const int64_t lost = position_.end - kept;
  warning =
      absl::StrCat(dir_, ": ", lost, " recorded entries are missing from the files; they are ",
                   "counted as dropped");
  position_.dropped += lost;
  HEARTH_RETURN_IF_ERROR(StartSegment(position_.end + 1));
  absl::MutexLock lock(&mu_);
  committed_ = position_;
  return absl::OkStatus();
}

bool SegmentLog::Append(int64_t cursor, uint8_t kind, std::string_view payload) {
  const int64_t before = pending_.empty() ? position_.end : pending_.back().cursor;
  if (cursor <= before || cursor == std::numeric_limits<int64_t>::max()) {
    return false;
  }
  pending_.push_back({cursor, kind, std::string(payload)});
  return true;
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
    return StartSegment(position_.end + 1);
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

absl::Status SegmentLog::Sync() {
  if (pending_.empty()) {
    return absl::OkStatus();
  }
  if (file_ == nullptr) {
    HEARTH_RETURN_IF_ERROR(OpenTail());
  }
  std::string buffer;
  for (const Pending& record : pending_) {
    PutFrame(buffer, record.cursor, record.kind, record.payload);
  }
  if (position_.tail_bytes > 0 &&
      position_.tail_bytes + static_cast<int64_t>(buffer.size()) > options_.segment_bytes) {
    HEARTH_RETURN_IF_ERROR(file_->Close());
    HEARTH_RETURN_IF_ERROR(StartSegment(pending_.front().cursor));
  }
  HEARTH_RETURN_IF_ERROR(file_->Append(buffer));
  HEARTH_RETURN_IF_ERROR(file_->Sync());
  position_.end = pending_.back().cursor;
  position_.tail_bytes += static_cast<int64_t>(buffer.size());
  segments_.back().bytes = position_.tail_bytes;
  pending_.clear();
  DropOldSegments();
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

void SegmentLog::Publish() {
  {
    absl::MutexLock lock(&mu_);
    committed_ = position_;
  }
  for (const int64_t first : to_remove_) {
    // A file that stays behind is removed by the next Recover; it costs space, not correctness.
    env_.RemoveAll(SegmentPath(first)).IgnoreError();
  }
  to_remove_.clear();
}

SegmentLog::Position SegmentLog::committed() const {
  absl::MutexLock lock(&mu_);
  return committed_;
}

absl::StatusOr<SegmentLog::ReadResult> SegmentLog::Read(ReadState& state, int64_t max_bytes) const {
  ReadResult result;
  int64_t budget = max_bytes;
  for (int attempt = 0; attempt < 3;) {
    const Position committed = this->committed();
    if (state.next < committed.first) {
      result.dropped += committed.first - state.next;
      state = ReadState{committed.first, 0, 0};
    }
    if (state.next > committed.end) {
      result.at_end = true;
      return result;
    }
    if (budget <= 0) {
      return result;
    }
    HEARTH_ASSIGN_OR_RETURN(const std::vector<int64_t> firsts, ListSegments(env_, dir_));
    const auto after = std::upper_bound(firsts.begin(), firsts.end(), state.next);
    if (firsts.empty()) {
      ++attempt;  // dropped between the two looks, or the job is deleted
      continue;
    }
    // Before the first segment there is nothing: its gap is counted by ReadSegment.
    const int64_t segment = after == firsts.begin() ? firsts.front() : *(after - 1);
    const auto following = std::upper_bound(firsts.begin(), firsts.end(), segment);
    if (state.segment_first != segment) {
      state.segment_first = segment;
      state.offset = 0;
    }
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
