// An append-only, bounded sequence of records in files: a job's step history or its log.
//
//   <dir>/<cursor of its first record, 20 digits>.seg
//   frame = u32 payload length | u32 crc32c | i64 cursor | u8 kind | payload      (little endian)
//
// Cursors grow strictly from 1 and are never reused; a gap means records that were dropped. The
// files are the truth only up to the Position that the store has committed: Append and Sync come
// first, then the store's commit, then Publish. What a crash left behind the committed position is
// cut off when the log is opened.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/io/env.h"

namespace hearth::coordinator {

struct SegmentLogOptions {
  int64_t segment_bytes = 4 << 20;  // a segment is closed when it has grown past this
  int64_t max_bytes = 64 << 20;     // whole segments are dropped, oldest first, to stay within this
};

class SegmentLog {
 public:
  // What the store records. Everything before `first` is dropped, everything up to `end` is
  // durable.
  struct Position {
    int64_t first = 1;       // cursors below are dropped
    int64_t end = 0;         // cursor of the newest record, 0 = none yet
    int64_t tail_first = 0;  // name of the last segment, 0 = no segment
    int64_t tail_bytes = 0;  // length of the last segment
    int64_t dropped = 0;     // cursors lost to the bound or to damage, ever
    bool operator==(const Position&) const = default;
  };

  struct Record {
    int64_t cursor = 0;
    uint8_t kind = 0;
    std::string payload;
  };

  // Where a reader stands; value-initialised = at the beginning.
  struct ReadState {
    int64_t next = 1;           // lowest cursor to read
    int64_t segment_first = 0;  // cached place of the next frame, 0 = unknown
    int64_t offset = 0;
  };

  struct ReadResult {
    std::vector<Record> records;
    int64_t dropped = 0;  // cursors passed over because nothing is kept of them
    bool at_end = false;  // nothing committed is left to read
  };

  // `env` outlives this. Touches no file.
  SegmentLog(Env& env, std::string dir, SegmentLogOptions options, Position committed);

  // Makes the files agree with the committed position: cuts the tail, removes segments that were
  // never committed or were dropped. A tail shorter than recorded loses those records: they are
  // counted as dropped, `warning` says so and the position changes (the caller records it).
  absl::Status Recover(std::string& warning);

  // The writing thread's calls. Append only buffers; Sync writes and makes durable. After an error
  // the log must be reopened: what reached the file is not known. False, and nothing is appended,
  // when `cursor` is not greater than every one before or leaves none for the next record: then the
  // database and the files contradict each other, which must cost a record and not the process.
  bool Append(int64_t cursor, uint8_t kind, std::string_view payload);
  absl::Status Sync();
  bool dirty() const { return !pending_.empty(); }
  // The position after the last Sync.
  const Position& position() const { return position_; }
  // Shows the synced records to readers and removes dropped segments. To be called after the
  // store's commit.
  void Publish();
  // Gives the file descriptor back; the next Sync opens it again.
  void CloseFile() { file_.reset(); }
  bool open() const { return file_ != nullptr; }

  // Thread-safe. The committed position.
  Position committed() const ABSL_LOCKS_EXCLUDED(mu_);
  // Thread-safe. Up to about `max_bytes` of payload (at least one record) from `state` on, which
  // moves past them. kDataLoss: a damaged frame, with file and offset; kNotFound: the files are
  // gone (job deleted).
  absl::StatusOr<ReadResult> Read(ReadState& state, int64_t max_bytes) const
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::string SegmentPath(int64_t first) const;
  absl::Status OpenTail();
  absl::Status StartSegment(int64_t first);
  void DropOldSegments();
  absl::Status ReadSegment(
      ReadState& state, int64_t limit, int64_t last, int64_t& budget, ReadResult& result) const;

  Env& env_;
  const std::string dir_;
  const SegmentLogOptions options_;

  // Of the writing thread.
  struct Segment {
    int64_t first = 0;
    int64_t bytes = 0;
  };
  struct Pending {
    int64_t cursor;
    uint8_t kind;
    std::string payload;
  };
  std::vector<Pending> pending_;
  std::unique_ptr<WritableFile> file_;
  Position position_;
  std::vector<Segment> segments_;  // oldest first
  std::vector<int64_t> to_remove_;
  bool segments_known_ = false;

  mutable absl::Mutex mu_;
  Position committed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
