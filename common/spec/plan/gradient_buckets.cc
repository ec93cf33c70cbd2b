#include "common/spec/plan/gradient_buckets.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "common/base/status_macros.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/plan/weight_units.h"

namespace hearth::spec {
namespace {

bool Has(const Parameter& parameter, const ParameterState& state) {
  return std::find(parameter.states.begin(), parameter.states.end(), state) !=
         parameter.states.end();
}

// All that parameters have, in the order in which the table begins to use them.
std::vector<ParameterState> States(const std::vector<Parameter>& table) {
  std::vector<ParameterState> states;
  for (const Parameter& parameter : table) {
    for (const ParameterState& state : parameter.states) {
      if (std::find(states.begin(), states.end(), state) == states.end()) {
        states.push_back(state);
      }
    }
  }
  return states;
}

// Formats that masters of the table have, in the order in which it begins to use them.
std::vector<DType> MasterFormats(const std::vector<Parameter>& table) {
  std::vector<DType> formats;
  for (const Parameter& parameter : table) {
    if (parameter.has_master() &&
        std::find(formats.begin(), formats.end(), parameter.master) == formats.end()) {
      formats.push_back(parameter.master);
    }
  }
  return formats;
}

// Offsets of pieces in a buffer that holds only the pieces that belong in it.
struct Packed {
  std::vector<int64_t> offsets;  // by piece, in elements of parameters; -1: it does not
  int64_t elements = 0;
};

template <typename Belongs>
Packed PackPieces(const std::vector<Parameter>& table,
                  const std::vector<ShardPiece>& pieces,
                  int64_t owned,
                  const Belongs& belongs) {
  // Pieces as they lie: with gradients of several formats that is not the order of the table.
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&pieces](size_t a, size_t b) {
    return pieces[a].local_offset < pieces[b].local_offset;
  });
  Packed packed;
  packed.offsets.assign(pieces.size(), -1);
  int64_t skipped = 0;  // whole alignment units, so that what follows stays aligned
  for (const size_t i : order) {
    const ShardPiece& piece = pieces[i];
    if (belongs(table[static_cast<size_t>(piece.parameter)])) {
      packed.offsets[i] = piece.local_offset - skipped;
    } else {
      skipped +=
          (piece.elements + kTensorAlignElements - 1) / kTensorAlignElements * kTensorAlignElements;
    }
  }
  packed.elements = owned - skipped;
  return packed;
}

// The state of packed pieces. Tensors of whole parameters, of which no piece is cut, lie one behind
// the other: any number of the parameter's elements may have one of theirs.
StateBuffer PlaceState(const ParameterState& state,
                       const std::vector<ShardPiece>& pieces,
                       Packed packed) {
  int64_t end = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    int64_t& offset = packed.offsets[i];
    if (offset < 0) {
      continue;
    }
    offset = state.needs_whole() ? end : state.Count(offset);
    end += (state.Count(pieces[i].elements) + kTensorAlignElements - 1) / kTensorAlignElements *
           kTensorAlignElements;
  }
  return {state, std::move(packed.offsets),
          state.needs_whole() ? end : state.Count(packed.elements)};
}

template <typename Buffer>
std::vector<Buffer> LargestOf(const TrainingPlanOptions& options,
                              std::vector<Buffer> (*place)(const std::vector<Parameter>& table,
                                                           const std::vector<ShardPiece>& pieces,
                                                           int64_t owned)) {
  const std::vector<int64_t> offsets = TensorOffsets(*options.table, options.shards);
  const std::vector<GradientBucket> buckets = PlanBuckets(options);
  std::vector<Buffer> largest;
  for (int rank = 0; rank < options.shards; ++rank) {
    std::vector<Buffer> buffers =
        place(*options.table, ShardPieces(*options.table, offsets, buckets, rank, options.shards),
              offsets.back() / options.shards);
    largest.resize(buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i) {
      const int64_t elements = std::max(largest[i].elements, buffers[i].elements);
      largest[i] = std::move(buffers[i]);
      largest[i].offsets.clear();
      largest[i].elements = elements;
    }
  }
  return largest;
}

}  // namespace

std::vector<GradientBucket> GradientBuckets(const std::vector<Parameter>& table,
                                            const std::vector<int64_t>& offsets,
                                            const StepTimeline& time,
                                            int64_t bucket_elements,
                                            const std::vector<int>& unit_of_block) {
  HEARTH_CHECK(offsets.size() == table.size() + 1, "offsets are of another table");
  const auto unit = [&unit_of_block](const Parameter& parameter) {
    return unit_of_block.empty() ? 0 : unit_of_block[static_cast<size_t>(parameter.block)];
  };
  std::vector<GradientBucket> buckets;
  for (const GradientGroup& group : GradientGroups(table, offsets)) {
    GradientBucket open = {group.end, group.end, 0, group.format, time.Update(), -1, group.stored};
    int open_unit = 0;
    // From the table's end: backward makes the last layers' gradients first.
    for (size_t i = table.size(); i-- > 0;) {
      if (!group.Has(table[i])) {
        continue;
      }
      const int32_t ready = time.Backward(table[i].block);
      // Tensors that are ready at the same moment stay in one bucket. The embedding's are ready
      // last of all and get a bucket of their own, so that nothing else waits for them.
      const bool full = open.elements() >= bucket_elements || ready == time.EmbeddingBackward() ||
                        unit(table[i]) != open_unit;
      if (bucket_elements > 0 && full && open.elements() > 0 && ready != open.ready) {
        buckets.push_back(open);
        open.end = open.begin;
        open.begins = time.Update();
      }
      open_unit = unit(table[i]);
      open.begin = offsets[i];
      open.ready = ready;
      // An embedding that is the output projection too gets the head's part first.
      open.begins = std::min(open.begins, table[i].roles.head ? time.Head() : ready);
    }
    buckets.push_back(open);
  }
  // One order for all groups: every rank starts its reductions in this order while backward runs.
  std::stable_sort(
      buckets.begin(), buckets.end(),
      [](const GradientBucket& a, const GradientBucket& b) { return a.ready < b.ready; });
  return buckets;
}

namespace {

// Buckets of one kind share slots.
struct SlotKind {
  bool operator==(const SlotKind&) const = default;

  DType format = DType::kF32;
  bool small = false;  // a bucket of weights in blocks is made at the same time
};

SlotKind KindOf(const GradientBucket& bucket, const std::vector<GradientBucket>& all) {
  return {
      bucket.format,
      !bucket.stored && std::any_of(all.begin(), all.end(), [&bucket](const GradientBucket& other) {
        return other.stored && other.begins <= bucket.ready && bucket.begins <= other.ready;
      })};
}

}  // namespace

void AssignSlots(std::vector<GradientBucket>& buckets, size_t wanted_free) {
  std::vector<GradientBucket*> order;
  for (GradientBucket& bucket : buckets) {
    order.push_back(&bucket);
  }
  std::stable_sort(
      order.begin(), order.end(),
      [](const GradientBucket* a, const GradientBucket* b) { return a->begins < b->begins; });
  struct Taken {
    SlotKind kind;
    int64_t elements = 0;
    int32_t ready = 0;  // of the bucket that has it
  };
  std::vector<Taken> slots;
  for (size_t k = 0; k < order.size(); ++k) {
    GradientBucket* const bucket = order[k];
    const SlotKind kind = KindOf(*bucket, buckets);
    std::vector<size_t> free;
    for (size_t s = 0; s < slots.size(); ++s) {
      if (slots[s].kind == kind && slots[s].ready < bucket->begins) {
        free.push_back(s);
      }
    }
    if (free.size() < wanted_free) {
      free = {slots.size()};
      slots.push_back({kind});
    }
    // They take turns: the one that was left first. Little runs beside the last bucket, the
    // embedding's, which may be the largest: it takes the one that has to grow least.
    const bool last =
        std::none_of(order.begin() + static_cast<std::ptrdiff_t>(k) + 1, order.end(),
                     [&](const GradientBucket* later) { return KindOf(*later, buckets) == kind; });
    const auto cost = [&](size_t s) {
      const int64_t growth = std::max<int64_t>(0, bucket->elements() - slots[s].elements);
      return std::pair(last ? growth : 0, slots[s].ready);
    };
    const size_t best = *std::min_element(free.begin(), free.end(),
                                          [&](size_t a, size_t b) { return cost(a) < cost(b); });
    bucket->slot = static_cast<int>(best);
    slots[best].elements = std::max(slots[best].elements, bucket->elements());
    slots[best].ready = bucket->ready;
  }
}

std::vector<GradientSlot> SlotsOf(const std::vector<GradientBucket>& buckets) {
  std::vector<GradientSlot> slots;
  for (const GradientBucket& bucket : buckets) {
    if (bucket.slot < 0) {
      continue;
    }
    const auto s = static_cast<size_t>(bucket.slot);
    slots.resize(std::max(slots.size(), s + 1));
    const bool first = slots[s].elements == 0;
    slots[s] = {bucket.format, std::max(slots[s].elements, bucket.elements()),
                first ? bucket.begins : std::min(slots[s].begins, bucket.begins)};
  }
  return slots;
}

std::vector<GradientBucket> PlanBuckets(const TrainingPlanOptions& options) {
  // Where nothing asks for a size, whole gradients are one bucket; those in slots take as little
  // room as they can. A rank without peers exchanges none.
  const bool sized = options.bucket_bytes > 0 && !(options.by_bucket() && options.world_size == 1);
  const int64_t elements =
      sized ? std::max<int64_t>(1, options.bucket_bytes / DTypeBytes(options.reduce->part, 1))
            : static_cast<int64_t>(options.in_slots());
  std::vector<GradientBucket> buckets = GradientBuckets(
      *options.table, TensorOffsets(*options.table, options.shards), TimelineOf(options.shape),
      elements,
      options.divide_weights ? UnitOfBlocks(options.shape, *options.table) : std::vector<int>());
  if (options.in_slots()) {
    // With peers one is written while another is reduced.
    AssignSlots(buckets, options.world_size > 1 ? 2 : 1);
  }
  return buckets;
}

std::vector<ShardPiece> ShardPieces(const std::vector<Parameter>& table,
                                    const std::vector<int64_t>& offsets,
                                    const std::vector<GradientBucket>& buckets,
                                    int rank,
                                    int shards) {
  HEARTH_CHECK(offsets.size() == table.size() + 1, "offsets are of another table");
  HEARTH_CHECK(shards >= 1 && rank >= 0 && rank < shards, "rank outside the shards");
  std::vector<ShardPiece> pieces;
  for (size_t i = 0; i < table.size(); ++i) {
    const auto bucket =
        std::find_if(buckets.begin(), buckets.end(), [&](const GradientBucket& candidate) {
          return candidate.begin <= offsets[i] && offsets[i] < candidate.end;
        });
    HEARTH_CHECK(bucket != buckets.end(), "buckets do not cover the table");
    const GradientBucket& b = *bucket;
    const int64_t part = b.elements() / shards;
    HEARTH_CHECK(b.elements() % (shards * kTensorAlignElements) == 0,
                 "offsets are of another number of shards");
    // A rank owns the same part of every bucket, so that each bucket can be summed and scattered
    // alone. A tensor may lie in the parts of several ranks: this is its piece in ours.
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

std::vector<MasterBuffer> PlaceMasters(const std::vector<Parameter>& table,
                                       const std::vector<ShardPiece>& pieces,
                                       int64_t owned) {
  std::vector<MasterBuffer> buffers;
  for (const DType format : MasterFormats(table)) {
    const Packed packed = PackPieces(table, pieces, owned, [format](const Parameter& parameter) {
      return parameter.has_master() && parameter.master == format;
    });
    buffers.push_back({format, packed.offsets, packed.elements});
  }
  return buffers;
}

std::vector<StateBuffer> PlaceStates(const std::vector<Parameter>& table,
                                     const std::vector<ShardPiece>& pieces,
                                     int64_t owned) {
  std::vector<StateBuffer> buffers;
  for (const ParameterState& state : States(table)) {
    Packed packed = PackPieces(table, pieces, owned, [&state](const Parameter& parameter) {
      return Has(parameter, state);
    });
    buffers.push_back(PlaceState(state, pieces, std::move(packed)));
  }
  return buffers;
}

std::vector<MasterBuffer> LargestMasters(const TrainingPlanOptions& options) {
  return LargestOf<MasterBuffer>(options, PlaceMasters);
}

std::vector<StateBuffer> LargestStates(const TrainingPlanOptions& options) {
  return LargestOf<StateBuffer>(options, PlaceStates);
}

}  // namespace hearth::spec
