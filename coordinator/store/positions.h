// How far the segment files of histories and logs go, as the table `files` of store.db records it.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/segment_log.h"
#include "coordinator/store/sqlite.h"

namespace hearth::coordinator {

std::string StreamName(StreamKind kind);  // "history" or "log"
// <data-dir>/jobs/<id>/history or .../log; `job_id` as store.db has it.
std::string StreamFolder(const std::string& data_dir, std::string_view job_id, StreamKind kind);

// Calls `see` for each row, in no order, until one returns an error, which is returned.
absl::Status ForEachPosition(
    Database& database,
    const std::function<absl::Status(
        const std::string& job_id, StreamKind kind, const SegmentLog::Position& position)>& see);

}  // namespace hearth::coordinator
