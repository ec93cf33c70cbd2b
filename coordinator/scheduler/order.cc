#include "coordinator/scheduler/order.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "common/base/status_macros.h"

namespace hearth::coordinator {
namespace {

auto RankKey(const v1::Worker& worker) {
  return std::make_tuple(std::cref(worker.host()), std::cref(worker.device().pci_bus_id()),
                         worker.device().index(), std::cref(worker.worker_id()));
}

}  // namespace

std::vector<std::string> PackedRankOrder(std::vector<const v1::Worker*> candidates, int64_t count) {
  const auto wanted = static_cast<size_t>(count);
  HEARTH_CHECK(candidates.size() >= wanted, "the planner counted the candidates");
  std::sort(candidates.begin(), candidates.end(),
            [](const v1::Worker* a, const v1::Worker* b) { return RankKey(*a) < RankKey(*b); });
  std::map<std::string, std::vector<const v1::Worker*>> by_host;
  for (const v1::Worker* worker : candidates) {
    by_host[worker->host()].push_back(worker);
  }
  std::vector<const std::vector<const v1::Worker*>*> hosts;
  for (const auto& [host, workers] : by_host) {
    hosts.push_back(&workers);
  }
  // First hosts that are enough by themselves, the tightest first; then the largest of the others.
  std::stable_sort(hosts.begin(), hosts.end(), [wanted](const auto* a, const auto* b) {
    const bool a_alone = a->size() >= wanted;
    const bool b_alone = b->size() >= wanted;
    if (a_alone != b_alone) {
      return a_alone;
    }
    return a_alone ? a->size() < b->size() : a->size() > b->size();
  });
  std::vector<const v1::Worker*> chosen;
  for (const auto* workers : hosts) {
    for (const v1::Worker* worker : *workers) {
      if (chosen.size() < wanted) {
        chosen.push_back(worker);
      }
    }
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const v1::Worker* a, const v1::Worker* b) { return RankKey(*a) < RankKey(*b); });
  std::vector<std::string> ids;
  for (const v1::Worker* worker : chosen) {
    ids.push_back(worker->worker_id());
  }
  return ids;
}

}  // namespace hearth::coordinator
