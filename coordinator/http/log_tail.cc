#include "coordinator/http/log_tail.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::coordinator {
namespace {

constexpr int64_t kReadBytes = 256 << 10;

bool Wanted(const LogQuery& query, const v1::LogLine& line) {
  return (!query.rank.has_value() || line.rank() == *query.rank) &&
         (query.epoch == 0 || line.epoch() == query.epoch);
}

// The last lines within the bounds of number and bytes.
class Newest {
 public:
  explicit Newest(size_t limit) : limit_(limit) {}

  void Add(v1::LogLine line) {
    bytes_ += line.text().size();
    lines_.push_back(std::move(line));
    while (lines_.size() > limit_ || (bytes_ > kLogTailBytes && lines_.size() > 1)) {
      bytes_ -= lines_.front().text().size();
      lines_.pop_front();
      cut_ = true;
    }
  }
  bool cut() const { return cut_; }
  std::vector<v1::LogLine> Take() && {
    return {std::make_move_iterator(lines_.begin()), std::make_move_iterator(lines_.end())};
  }

 private:
  const size_t limit_;
  std::deque<v1::LogLine> lines_;
  size_t bytes_ = 0;
  bool cut_ = false;
};

}  // namespace

absl::StatusOr<LogTail> ReadLogTail(const SegmentLog& log, const LogQuery& query) {
  const SegmentLog::Position committed = log.committed();
  SegmentLog::ReadState state;
  // A client may ask for more than there will ever be.
  const int64_t after = std::min(query.after, committed.end);
  state.next = std::max(after, committed.end - kLogLookBack) + 1;
  LogTail tail;
  tail.cursor = query.after;
  tail.more = state.next > std::max(after + 1, int64_t{1});
  Newest newest(query.tail);
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const SegmentLog::ReadResult read, log.Read(state, kReadBytes));
    tail.more = tail.more || read.dropped > 0;
    for (const SegmentLog::Record& record : read.records) {
      v1::LogLine line;
      if (!line.ParseFromString(record.payload)) {
        return absl::DataLossError(absl::StrCat("log record ", record.cursor, " is damaged"));
      }
      tail.cursor = record.cursor;
      if (Wanted(query, line)) {
        line.set_cursor(record.cursor);
        newest.Add(std::move(line));
      }
    }
    if (read.at_end || tail.cursor >= committed.end) {
      break;
    }
  }
  tail.more = tail.more || newest.cut();
  tail.lines = std::move(newest).Take();
  return tail;
}

}  // namespace hearth::coordinator
