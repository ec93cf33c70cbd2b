#include "coordinator/store/positions.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::coordinator {

std::string StreamName(StreamKind kind) {
  return kind == StreamKind::kHistory ? "history" : "log";
}

std::string StreamFolder(const std::string& data_dir, std::string_view job_id, StreamKind kind) {
  return absl::StrCat(data_dir, "/jobs/", absl::string_view(job_id.data(), job_id.size()), "/",
                      StreamName(kind));
}

absl::Status ForEachPosition(
    Database& database,
    const std::function<absl::Status(
        const std::string& job_id, StreamKind kind, const SegmentLog::Position& position)>& see) {
  HEARTH_ASSIGN_OR_RETURN(
      Statement query,
      database.Prepare(
          "SELECT job_id, stream, first, last, tail_first, tail_bytes, dropped FROM files"));
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      return absl::OkStatus();
    }
    HEARTH_RETURN_IF_ERROR(see(query.ColumnBytes(0), static_cast<StreamKind>(query.ColumnInt(1)),
                               {.first = query.ColumnInt(2),
                                .end = query.ColumnInt(3),
                                .tail_first = query.ColumnInt(4),
                                .tail_bytes = query.ColumnInt(5),
                                .dropped = query.ColumnInt(6)}));
  }
}

}  // namespace hearth::coordinator
