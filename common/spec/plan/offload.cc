#include "common/spec/plan/offload.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/spec/optimizer/optimizer_table.h"

namespace hearth::spec {
namespace {

constexpr OffloadRow kRows[] = {
    {.name = "optimizer",
     .away = BufferClass::kOptimizer,
     .less = "a narrower optimizer.state",
     .get = &v1::OffloadSpec::optimizer,
     .set = &v1::OffloadSpec::set_optimizer},
    {.name = "masters",
     .away = BufferClass::kMasters,
     .less = "",
     .get = &v1::OffloadSpec::masters,
     .set = &v1::OffloadSpec::set_masters},
    {.name = "activations",
     .away = BufferClass::kActivations,
     .less = "a smaller micro-batch",
     .get = &v1::OffloadSpec::activations,
     .set = &v1::OffloadSpec::set_activations},
};

constexpr int64_t kSmallestSlot = int64_t{16} << 10;
constexpr int64_t kLargestSlot = int64_t{64} << 20;
constexpr int64_t kSlotUnit = 4096;

}  // namespace

absl::Span<const OffloadRow> OffloadRows() {
  return kRows;
}

bool MayBeAway(const v1::JobSpec& job, const OffloadRow& row) {
  return row.away != BufferClass::kOptimizer || FindWholeState(job.optimizer()) == nullptr;
}

HostClasses HostClassesOf(const v1::OffloadSpec& offload) {
  HostClasses away;
  for (const OffloadRow& row : kRows) {
    if ((offload.*row.get)()) {
      away.Add(row.away);
    }
  }
  return away;
}

void SetOffload(HostClasses away, v1::JobSpec& job) {
  job.clear_offload();
  for (const OffloadRow& row : kRows) {
    if (away.Has(row.away)) {
      (job.mutable_offload()->*row.set)(true);
    }
  }
}

std::string LessOnHostAdvice(const HostClasses& away) {
  std::vector<std::string> keys;
  std::vector<std::string> less;
  for (const OffloadRow& row : kRows) {
    if (!away.Has(row.away)) {
      continue;
    }
    keys.push_back("offload." + std::string(row.name) + ": false");
    if (!row.less.empty()) {
      less.emplace_back(row.less);
    }
  }
  return absl::StrCat("move less to the host: ", absl::StrJoin(keys, " or "),
                      less.empty() ? "" : ", or take ", absl::StrJoin(less, " or "));
}

int64_t OffloadSlotBytes(int64_t streamed) {
  const int64_t bytes = std::clamp(streamed / 16, kSmallestSlot, kLargestSlot);
  return (bytes + kSlotUnit - 1) / kSlotUnit * kSlotUnit;
}

}  // namespace hearth::spec
