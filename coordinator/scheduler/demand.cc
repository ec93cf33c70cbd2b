#include "coordinator/scheduler/demand.h"

#include <algorithm>

#include "common/spec/rules/worker_match.h"

namespace hearth::coordinator {

Demand DemandOf(const v1::JobSpec& spec,
                std::string_view root_uuid,
                int64_t checkpoint_step,
                int64_t too_small_bytes) {
  const v1::ResourceSpec& resources = spec.resources();
  Demand demand;
  demand.device = resources.device();
  demand.selector.insert(resources.selector().begin(), resources.selector().end());
  demand.span_hosts = !resources.has_span_hosts() || resources.span_hosts();
  demand.root_uuid = root_uuid;
  demand.checkpoint_step = root_uuid.empty() ? 0 : checkpoint_step;
  demand.wanted = std::max(1, resources.has_workers() ? resources.workers() : 1);
  demand.least = resources.has_min_workers()
                     ? std::clamp<int64_t>(resources.min_workers(), 1, demand.wanted)
                     : demand.wanted;
  const int64_t most = MaxRanks(spec);
  demand.wanted = std::max(demand.least, std::min(demand.wanted, most));
  demand.batch_ranks = demand.least > most ? most : 0;
  demand.too_small_bytes = too_small_bytes;
  return demand;
}

int64_t MaxRanks(const v1::JobSpec& spec) {
  const int64_t sequence = std::max(1, spec.data().sequence_length());
  const int64_t micro = std::max(1, spec.batch().micro_batch_size());
  const int64_t tokens = spec.batch().global_batch_tokens();
  if (tokens <= 0) {
    return INT32_MAX;  // by default a global batch is one micro-batch for each rank wanted
  }
  return std::max<int64_t>(1, tokens / (sequence * micro));
}

bool Suits(const v1::Worker& worker, const v1::ResourceSpec& resources) {
  return spec::HasKindAndLabels(worker, resources.has_device() ? resources.device() : "cpu",
                                resources.selector());
}

bool Suits(const v1::Worker& worker, const Demand& demand) {
  return spec::HasKindAndLabels(worker, demand.device, demand.selector) &&
         (demand.too_small_bytes == 0 || worker.device().memory_bytes() > demand.too_small_bytes);
}

}  // namespace hearth::coordinator
