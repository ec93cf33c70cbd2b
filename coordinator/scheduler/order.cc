#include "coordinator/scheduler/order.h"

#include <algorithm>
#include <tuple>

#include "common/base/status_macros.h"

namespace hearth::coordinator {
namespace {

auto RankKey(const v1::Worker& worker) {
  return std::make_tuple(std::cref(worker.host()), std::cref(worker.device().pci_bus_id()),
                         worker.device().index(), std::cref(worker.worker_id()));
}

using Candidates = std::vector<const v1::Worker*>;

// Candidates of one host: they are neighbours in rank order.
struct Host {
  size_t first = 0;
  size_t size = 0;
};

std::vector<Host> HostsOf(const Candidates& candidates) {
  std::vector<Host> hosts;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i == 0 || candidates[i]->host() != candidates[i - 1]->host()) {
      hosts.push_back({i, 0});
    }
    ++hosts.back().size;
  }
  return hosts;
}

}  // namespace

bool RankBefore(const v1::Worker& a, const v1::Worker& b) {
  return RankKey(a) < RankKey(b);
}

std::vector<std::string> PackedRankOrder(const Candidates& candidates, int64_t count) {
  const auto wanted = static_cast<size_t>(count);
  HEARTH_CHECK(candidates.size() >= wanted, "the planner counted the candidates");
  std::vector<Host> hosts = HostsOf(candidates);
  // The tightest of the hosts that are enough by themselves; without one, the largest first.
  const Host* alone = nullptr;
  for (const Host& host : hosts) {
    if (host.size >= wanted && (alone == nullptr || host.size < alone->size)) {
      alone = &host;
    }
  }
  if (alone != nullptr) {
    hosts = {*alone};
  } else {
    std::stable_sort(hosts.begin(), hosts.end(),
                     [](const Host& a, const Host& b) { return a.size > b.size; });
  }
  std::vector<size_t> chosen;
  for (const Host& host : hosts) {
    for (size_t i = 0; i < host.size && chosen.size() < wanted; ++i) {
      chosen.push_back(host.first + i);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<std::string> ids;
  for (const size_t i : chosen) {
    ids.push_back(candidates[i]->worker_id());
  }
  return ids;
}

}  // namespace hearth::coordinator
