#include "worker/trainer/step/slot_gaps.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/spec/plan/training_plan.h"

namespace hearth::trainer {

using kernels::TensorView;

std::vector<std::vector<TensorView>> SlotGaps(const ParameterStore& parameters,
                                              const std::vector<spec::GradientBucket>& buckets) {
  std::vector<std::vector<TensorView>> gaps(buckets.size());
  const std::vector<spec::Parameter>& table = parameters.table();
  const std::vector<int64_t> offsets = spec::TensorOffsets(table, parameters.shards());
  for (size_t b = 0; b < buckets.size(); ++b) {
    const TensorView slot = parameters.GradientRange(buckets[b].begin, buckets[b].elements());
    // The ends of the bucket's tensors in order, vocabulary padding not counted.
    std::vector<std::pair<int64_t, int64_t>> tensors;
    for (size_t i = 0; i < table.size(); ++i) {
      if (buckets[b].begin <= offsets[i] && offsets[i] < buckets[b].end) {
        const int64_t begin = offsets[i] - buckets[b].begin;
        tensors.emplace_back(begin, begin + table[i].logical_elements());
      }
    }
    std::sort(tensors.begin(), tensors.end());
    tensors.emplace_back(buckets[b].elements(), buckets[b].elements());
    int64_t end = 0;
    for (const auto& [next, its_end] : tensors) {
      if (end < next) {
        gaps[b].push_back(Slice(slot, end, next - end));
      }
      end = its_end;
    }
  }
  return gaps;
}

}  // namespace hearth::trainer
