// An append-only, bounded sequence of records in files: a job's step history or its log.
//
//   <dir>/<cursor of its first record, 20 digits>.seg: frames (record_frame.h)
//
// Cursors grow strictly from 1 and are never reused; a gap means records that were dropped. Records
// are durable in the store's journal first; then they are kept in memory, and Sync moves them to
// the files while nothing waits for it. The files are valid only up to the Position that the store
// has recorded: bytes after it, left by a crash, are also in the journal and are cut off when the
// log is opened.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
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
  // What the store records of the files. Everything before `first` is dropped, everything up to
  // `end` is in them.
  struct Position {
    int64_t first = 1;       // cursors below are dropped
    int64_t end = 0;         // cursor of the newest record in the files, 0 = none yet
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
    int64_t dropped = 0;  // cursors skipped because their records are not kept
    bool at_end = false;  // nothing committed is left to read
  };

  // Saves a segment file that holds records unknown to the store before they are cut off. `whole`:
  // nothing of the file is needed any more, so it may be moved; else it is copied.
  using Keep = std::function<absl::Status(const std::string& path, bool whole)>;

  // `env` outlives this. Touches no file.
  SegmentLog(Env& env, std::string dir, SegmentLogOptions options, Position recorded);

  // Makes the files agree with the recorded position: cuts the tail, removes segments that were
  // never recorded or were dropped. Records behind the position with cursors above `known_end` (the
  // newest that the store knows, in files or journal) cannot be leftovers of a crash: their files
  // go to `keep` first, and a warning says so. A tail shorter than recorded loses those records:
  // they are counted as dropped, a warning says so and the position changes (the caller records
  // it).
  absl::Status Recover(int64_t known_end, const Keep& keep, std::vector<std::string>& warnings);

  // The store's thread. Append only buffers; Publish shows what was appended to readers, once the
  // store has made it durable. Returns false and appends nothing when `cursor` is not greater than
  // all earlier ones or leaves none for the next record: then the database and the files contradict
  // each other, which must cost one record and not the process.
  bool Append(int64_t cursor, uint8_t kind, std::string_view payload);
  void Publish() ABSL_LOCKS_EXCLUDED(mu_);
  // Cursor of the newest record appended, 0 = none yet.
  int64_t newest() const { return newest_; }

  // Any thread; one works at a time, the others wait. Writes the published records to the files and
  // makes them durable. After an error the log must be reopened: what reached the file is not
  // known.
  absl::Status Sync() ABSL_LOCKS_EXCLUDED(sync_mu_, mu_);
  // The position after the last Sync, for the store to record.
  Position synced() const ABSL_LOCKS_EXCLUDED(sync_mu_);
  // Removes the segments that the bound has dropped. Call it once the position is recorded.
  void RemoveDropped() ABSL_LOCKS_EXCLUDED(sync_mu_);
  // The job is deleted: no later Sync writes anything.
  void Abandon() ABSL_LOCKS_EXCLUDED(sync_mu_);

  // Thread-safe. The position up to which readers see; what is behind `tail_bytes` is in memory.
  Position committed() const ABSL_LOCKS_EXCLUDED(mu_);
  // Thread-safe. Up to about `max_bytes` of payload (at least one record) from `state` on, which
  // moves past them. kDataLoss: a damaged frame, with file and offset; kNotFound: the files are
  // gone (job deleted).
  absl::StatusOr<ReadResult> Read(ReadState& state, int64_t max_bytes) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // The position of files whose recorded position is lost: all whole frames in them, up to the
  // cursor `end_max`.
  static absl::StatusOr<Position> Rebuild(Env& env, const std::string& dir, int64_t end_max);
  // Copies the files up to `recorded` into the new folder `to`, syncs them, and returns their
  // bytes. kNotFound: a segment was removed meanwhile, or the job with all of them.
  static absl::StatusOr<int64_t> Copy(Env& env,
                                      const std::string& from,
                                      const std::string& to,
                                      const Position& recorded);
  // What is wrong with a file, for people. `missing`: it ends before `recorded` and all that is
  // there is whole, so that Recover copes with it.
  struct Problem {
    std::string text;
    bool missing = false;
  };
  // Reads every frame up to `recorded` and returns what is damaged or missing.
  static std::vector<Problem> Check(Env& env, const std::string& dir, const Position& recorded);
  // Leaves the whole frames in files that have damaged ones up to `recorded`; `keep` gets such a
  // file first, and `done` a line about it. Call Recover afterwards.
  static absl::Status Mend(Env& env,
                           const std::string& dir,
                           const Position& recorded,
                           const std::function<absl::Status(const std::string& path)>& keep,
                           std::vector<std::string>& done);

 private:
  struct Segment {
    int64_t first = 0;
    int64_t bytes = 0;
  };

  std::string SegmentPath(int64_t first) const;
  absl::Status CutTail(int64_t known_end, const Keep& keep, std::vector<std::string>& warnings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu_);
  absl::Status DropUnrecorded(const std::vector<int64_t>& firsts,
                              int64_t known_end,
                              const Keep& keep,
                              std::vector<std::string>& warnings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu_);
  absl::Status OpenTail() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu_);
  absl::Status StartSegment(int64_t first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu_);
  absl::Status WriteFrames(const std::vector<Record>& records)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu_);
  absl::Status FinishWrite(const std::string& buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu_);
  void DropOldSegments() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sync_mu_);
  void ReadMemory(ReadState& state, int64_t budget, ReadResult& result) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ReadSegment(
      ReadState& state, int64_t limit, int64_t last, int64_t& budget, ReadResult& result) const;

  Env& env_;
  const std::string dir_;
  const SegmentLogOptions options_;

  // Used by the store's thread only.
  std::vector<Record> pending_;
  int64_t newest_;

  mutable absl::Mutex sync_mu_;                                   // before mu_
  std::unique_ptr<WritableFile> file_ ABSL_GUARDED_BY(sync_mu_);  // open only during Sync
  Position position_ ABSL_GUARDED_BY(sync_mu_);
  std::vector<Segment> segments_ ABSL_GUARDED_BY(sync_mu_);  // oldest first
  std::vector<int64_t> to_remove_ ABSL_GUARDED_BY(sync_mu_);
  bool segments_known_ ABSL_GUARDED_BY(sync_mu_) = false;
  bool abandoned_ ABSL_GUARDED_BY(sync_mu_) = false;

  mutable absl::Mutex mu_;
  Position files_ ABSL_GUARDED_BY(mu_);             // what readers find in the files
  std::deque<Record> memory_ ABSL_GUARDED_BY(mu_);  // published, not in the files yet
};

}  // namespace hearth::coordinator
