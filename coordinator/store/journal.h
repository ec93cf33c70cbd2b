// A row of the store's journal: the history and log records of one commit, of all its jobs, and the
// jobs that it deleted, in order. It makes them durable with the commit's one sync; the segment
// files get the records later, many at once, and then the row is removed.
//
//   row = entries; entry = u8 op | u32 length of the job id | job id | frame (not for a deletion)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "coordinator/store/record_frame.h"

namespace hearth::coordinator {

enum class StreamKind { kHistory = 0, kLog = 1 };

enum class JournalOp : uint8_t { kHistory = 0, kLog = 1, kDeleteJob = 2 };

void PutJournalRecord(std::string& row,
                      std::string_view job_id,
                      StreamKind stream,
                      int64_t cursor,
                      uint8_t kind,
                      std::string_view payload);
void PutJournalDeletion(std::string& row, std::string_view job_id);

// Calls `see` with every entry; `frame` is set for records. False when the row is damaged: what
// came before was whole.
using SeeEntry = std::function<void(JournalOp op, std::string_view job_id, const Frame& frame)>;
bool ReadJournal(std::string_view row, const SeeEntry& see);

}  // namespace hearth::coordinator
