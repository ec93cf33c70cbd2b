#include "coordinator/store/journal.h"

namespace hearth::coordinator {
namespace {

constexpr size_t kEntryHeadBytes = 5;

void PutHead(std::string& row, JournalOp op, std::string_view job_id) {
  row.push_back(static_cast<char>(op));
  PutU32(row, static_cast<uint32_t>(job_id.size()));
  row.append(job_id);
}

}  // namespace

void PutJournalRecord(std::string& row,
                      std::string_view job_id,
                      StreamKind stream,
                      int64_t cursor,
                      uint8_t kind,
                      std::string_view payload) {
  PutHead(row, stream == StreamKind::kHistory ? JournalOp::kHistory : JournalOp::kLog, job_id);
  PutFrame(row, cursor, kind, payload);
}

void PutJournalDeletion(std::string& row, std::string_view job_id) {
  PutHead(row, JournalOp::kDeleteJob, job_id);
}

bool ReadJournal(std::string_view row, const SeeEntry& see) {
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(row.data()), row.size());
  size_t at = 0;
  while (at < row.size()) {
    if (row.size() - at < kEntryHeadBytes) {
      return false;
    }
    const auto op = static_cast<JournalOp>(row[at]);
    const size_t length = GetU32(row.data() + at + 1);
    if (op > JournalOp::kDeleteJob || row.size() - at - kEntryHeadBytes < length) {
      return false;
    }
    const std::string_view job_id = row.substr(at + kEntryHeadBytes, length);
    at += kEntryHeadBytes + length;
    Frame frame;
    if (op != JournalOp::kDeleteJob) {
      if (!GetFrame(bytes, static_cast<int64_t>(at), static_cast<int64_t>(row.size()), frame) ||
          !frame.Intact()) {
        return false;
      }
      at += static_cast<size_t>(frame.size());
    }
    see(op, job_id, frame);
  }
  return true;
}

}  // namespace hearth::coordinator
