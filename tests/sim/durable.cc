#include "tests/sim/durable.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::sim {
namespace {

constexpr int kStartsMax = 20;
constexpr int64_t kReadBytes = 1 << 20;

template <typename Records>
void AddLines(const char* title, const Records& records, std::vector<std::string>& lines) {
  for (const auto& record : records) {
    lines.push_back(absl::StrCat(title, " ", record.ShortDebugString()));
  }
}

std::vector<std::string> RowsOf(const core::RestoredState& state) {
  std::vector<std::string> lines = {absl::StrCat("revision ", state.last_revision)};
  AddLines("job", state.jobs, lines);
  AddLines("worker", state.workers, lines);
  AddLines("request", state.requests, lines);
  AddLines("kv", state.kv, lines);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string FirstDifference(const std::vector<std::string>& disk,
                            const std::vector<std::string>& model) {
  for (size_t i = 0; i < std::max(disk.size(), model.size()); ++i) {
    const std::string on_disk = i < disk.size() ? disk[i] : "nothing";
    const std::string expected = i < model.size() ? model[i] : "nothing";
    if (on_disk != expected) {
      return absl::StrCat("the disk has\n  ", on_disk, "\nwhere the model has\n  ", expected);
    }
  }
  return "";
}

std::string PayloadOf(const v1::MetricRecord& record) {
  return record.has_rewind() ? record.rewind().SerializeAsString()
                             : record.step().SerializeAsString();
}

}  // namespace

// The machine's folder has the lock alone.
Durable::Durable(uint64_t seed) : random_(seed), vfs_(disk_) {
  std::string pattern = (std::filesystem::temp_directory_path() / "hearth-sim-XXXXXX").string();
  HEARTH_CHECK(mkdtemp(pattern.data()) != nullptr, "a folder for the lock");
  dir_ = pattern;
  HEARTH_CHECK(disk_.CreateDirs(dir_).ok(), "a folder on a new disk");
  std::string parent = dir_;
  while (!parent.empty()) {
    parent = parent.substr(0, parent.rfind('/'));
    HEARTH_CHECK(disk_.SyncDir(parent).ok(), "a folder on a new disk");
  }
}

Durable::~Durable() {
  store_.reset();
  std::filesystem::remove_all(dir_);
}

absl::StatusOr<core::RestoredState> Durable::Start() {
  core::StoreOptions options;
  options.data_dir = dir_;
  options.sqlite_vfs = vfs_.name();
  options.history.segment_bytes = options.log.segment_bytes = 2000;  // many files
  options.now = absl::UnixEpoch();
  absl::Status failure;
  for (int i = 0; i < kStartsMax; ++i) {
    auto opened = core::Store::Open(options, disk_);
    absl::StatusOr<core::LoadedState> state =
        opened.ok() ? (*opened)->Load() : absl::StatusOr<core::LoadedState>(opened.status());
    if (state.ok() && !state->warnings.empty()) {
      return absl::DataLossError(state->warnings.front());
    }
    if (state.ok()) {
      store_ = *std::move(opened);
      return state->core;
    }
    failure = state.status();
    if (!disk_.off()) {
      break;
    }
    opened = absl::CancelledError("");  // closes what it had
    disk_.PowerOn(Unsynced::kSome, random_);
  }
  return failure;
}

bool Durable::Commit(absl::Span<const core::Effects> batch) {
  // Now and then the journal goes to the files, so that crashes hit this as well.
  const bool moves = random_() % 50 == 0;
  return (!moves || store_->Flush().ok()) && store_->Commit(batch).ok();
}

void Durable::ArmEnd(int64_t most) {
  disk_.PowerFailsAt(1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(most)));
}

void Durable::End(bool power_fails) {
  disk_.PowerFailsAt(1);  // what the store still does on its way out is not done
  store_.reset();
  if (power_fails) {
    disk_.PowerOn(random_() % 3 == 0 ? Unsynced::kLost : Unsynced::kSome, random_);
  } else {
    disk_.ProgramEnds();
  }
}

std::string Durable::HistoryDifference(const Store& model) const {
  for (const auto& [job_id, history] : model.history) {
    std::vector<std::string> expected;
    for (const v1::MetricRecord& record : history) {
      expected.push_back(absl::StrCat(job_id, " ", record.cursor(), " ", PayloadOf(record)));
    }
    std::vector<std::string> found;
    const auto log = store_->Find(job_id, core::StreamKind::kHistory);
    core::SegmentLog::ReadState at;
    while (log != nullptr) {
      const auto read = log->Read(at, kReadBytes);
      if (!read.ok()) {
        return absl::StrCat("history of ", job_id, ": ", read.status().ToString());
      }
      for (const core::SegmentLog::Record& record : read->records) {
        found.push_back(absl::StrCat(job_id, " ", record.cursor, " ", record.payload));
      }
      if (read->at_end) {
        break;
      }
    }
    if (std::string difference = FirstDifference(found, expected); !difference.empty()) {
      return difference;
    }
  }
  return "";
}

std::string Durable::Difference(const Store& model, const core::RestoredState& state) const {
  if (std::string rows = FirstDifference(RowsOf(state), RowsOf(model.Load())); !rows.empty()) {
    return rows;
  }
  for (const auto& [job_id, cursor] : model.log_cursor) {
    const auto log = store_->Find(job_id, core::StreamKind::kLog);
    const int64_t newest = log == nullptr ? 0 : log->newest();
    if (newest != cursor) {
      return absl::StrCat("the log of ", job_id, " ends at ", newest, " on the disk, at ", cursor,
                          " in the model");
    }
  }
  return HistoryDifference(model);
}

}  // namespace hearth::sim
