#include "common/spec/plan/gradient_buckets.h"

#include <algorithm>
#include <cstddef>

#include "common/base/status_macros.h"
#include "common/spec/dtype_alias.h"

namespace hearth::spec {
std::vector<GradientBucket> GradientBuckets(const std::vector<Parameter>& table,
                                            const std::vector<int64_t>& offsets,
                                            const StepTimeline& time,
                                            int64_t bucket_elements) {
  HEARTH_CHECK(offsets.size() == table.size() + 1, "offsets are of another table");
  std::vector<GradientBucket> buckets;
  GradientBucket open;
  open.begin = open.end = offsets.back();
  for (size_t i = table.size(); i-- > 0;) {
    const int32_t ready = time.Backward(table[i].unit, table[i].layer);
    const bool full = open.elements() >= bucket_elements || ready == time.EmbeddingBackward();
    if (bucket_elements > 0 && full && open.elements() > 0 && ready != open.ready) {
      buckets.push_back(open);
      open.end = open.begin;
    }
    open.begin = offsets[i];
    open.ready = ready;
  }
  if (open.elements() > 0) {
    buckets.push_back(open);
  }
  return buckets;
}

std::vector<GradientBucket> PlanBuckets(const TrainingPlanOptions& options) {
  const int64_t elements =
      options.bucket_bytes <= 0
          ? 0
          : std::max<int64_t>(1, options.bucket_bytes / DTypeBytes(options.reduce_dtype, 1));
  return GradientBuckets(*options.table, TensorOffsets(*options.table, options.shards),
                         StepTimeline{options.shape.layers}, elements);
}

std::vector<ShardPiece> ShardPieces(const std::vector<Parameter>& table,
                                    const std::vector<int64_t>& offsets,
                                    const std::vector<GradientBucket>& buckets,
                                    int rank,
                                    int shards) {
  HEARTH_CHECK(offsets.size() == table.size() + 1, "offsets are of another table");
  HEARTH_CHECK(shards >= 1 && rank >= 0 && rank < shards, "rank outside the shards");
  std::vector<ShardPiece> pieces;
  size_t bucket = buckets.size();
  for (size_t i = 0; i < table.size(); ++i) {
    // Buckets lie from the end of the buffers to their start, tensors the other way.
    while (bucket == buckets.size() || buckets[bucket].end <= offsets[i]) {
      HEARTH_CHECK(bucket > 0, "buckets do not cover the table");
      --bucket;
    }
    const GradientBucket& b = buckets[bucket];
    const int64_t part = b.elements() / shards;
    HEARTH_CHECK(b.elements() % (shards * kTensorAlignElements) == 0,
                 "offsets are of another number of shards");
    const int64_t own = b.begin + rank * part;
    const int64_t begin = std::max(offsets[i], own);
    const int64_t end = std::min(offsets[i] + table[i].elements(), own + part);
    if (begin < end) {
      pieces.push_back({static_cast<int>(i), begin - offsets[i], end - begin, begin,
                        b.begin / shards + begin - own});
    }
  }
  return pieces;
}

std::vector<StateBuffer> PlaceStates(const OptimizerRow& optimizer,
                                     const std::vector<Parameter>& table,
                                     const std::vector<ShardPiece>& pieces,
                                     int64_t owned) {
  std::vector<StateBuffer> buffers;
  for (const StateSpec& state : optimizer.states) {
    StateBuffer& buffer = buffers.emplace_back();
    int64_t skipped = 0;  // whole alignment units, so that what follows stays aligned
    for (const ShardPiece& piece : pieces) {
      const bool has = state.Has(table[static_cast<size_t>(piece.parameter)]);
      buffer.offsets.push_back(has ? piece.local_offset - skipped : -1);
      if (!has) {
        skipped += (piece.elements + kTensorAlignElements - 1) / kTensorAlignElements *
                   kTensorAlignElements;
      }
    }
    buffer.elements = owned - skipped;
  }
  return buffers;
}

std::vector<int64_t> StateElements(const TrainingPlanOptions& options) {
  const std::vector<int64_t> offsets = TensorOffsets(*options.table, options.shards);
  const std::vector<GradientBucket> buckets = PlanBuckets(options);
  std::vector<int64_t> elements(options.optimizer->states.size(), 0);
  for (int rank = 0; rank < options.shards; ++rank) {
    const std::vector<StateBuffer> buffers =
        PlaceStates(*options.optimizer, *options.table,
                    ShardPieces(*options.table, offsets, buckets, rank, options.shards),
                    offsets.back() / options.shards);
    for (size_t i = 0; i < buffers.size(); ++i) {
      elements[i] = std::max(elements[i], buffers[i].elements);
    }
  }
  return elements;
}

}  // namespace hearth::spec
