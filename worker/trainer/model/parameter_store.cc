#include "worker/trainer/model/parameter_store.h"

#include <algorithm>

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/spec/plan/training_plan.h"
#include "kernels/cuda/device.h"
#include "kernels/draw_normal/draw_normal.h"
#include "kernels/round/round.h"
#include "kernels/weight_blocks/weight_blocks.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;

namespace {

// A flat view of a parameter's elements in its shape.
TensorView Shaped(TensorView view, const spec::Parameter& parameter) {
  view.rank = static_cast<int>(parameter.shape.size());
  std::copy(parameter.shape.begin(), parameter.shape.end(), view.shape.begin());
  return view;
}

// `out`, from element `first` of the parameter on, as the table says it begins.
absl::Status Draw(const kernels::Exec& exec,
                  const spec::Parameter& parameter,
                  uint64_t seed,
                  uint32_t index,
                  int64_t first,
                  const TensorView& out) {
  kernels::DrawNormalArgs draw;
  draw.y = out;
  draw.key = {seed, kernels::RngPurpose::kInit, 0, 0, index};
  draw.first_element = static_cast<uint64_t>(first);
  draw.end = static_cast<uint64_t>(parameter.logical_elements());
  draw.mean = parameter.init == spec::Init::kOnes ? 1.0 : 0.0;
  draw.stddev = parameter.init == spec::Init::kNormal ? parameter.init_std : 0.0;
  return kernels::DrawNormal(exec, draw);
}

}  // namespace

ParameterStore::ParameterStore(const std::vector<spec::Parameter>& table,
                               const Arena& arena,
                               const Numerics& numerics,
                               bool training,
                               const StoreShards& shards)
    : table_(table),
      numerics_(numerics),
      rank_(shards.shards > 1 ? shards.rank : 0),
      shards_(shards.shards),
      units_(shards.units) {
  const std::vector<int64_t> offsets = spec::TensorOffsets(table, shards_);
  const int64_t own = offsets.back() / shards_;
  if (sharded() || !arena.ids().store.gradient_slots.empty()) {
    buckets_ = shards.buckets;
  }
  BindWeights(arena, offsets);
  if (training) {
    BindGradients(arena, offsets);
  }
  // With one shard, a single bucket over everything makes each piece a whole tensor.
  const std::vector<spec::GradientBucket> all = {{0, offsets.back(), 0}};
  const std::vector<spec::ShardPiece> places =
      spec::ShardPieces(table, offsets, sharded() ? buckets_ : all, rank_, shards_);
  for (const spec::ShardPiece& place : places) {
    StorePiece& piece = pieces_.emplace_back();
    piece.place = place;
    const TensorView kept =
        Kept(weights_divided() ? place.local_offset : place.offset, place.elements);
    if (table[static_cast<size_t>(place.parameter)].stored()) {
      piece.blocks = kept;
    } else {
      piece.weight = piece.master = kept;
    }
    if (training) {
      piece.gradient = PieceGradient(place);
    }
  }
  if (training) {
    BindMasters(arena, spec::PlaceMasters(table, places, own));
    CutStates(arena, spec::PlaceStates(table, places, own));
  }
  for (size_t i = 0; !sharded() && i < table.size(); ++i) {
    masters_.push_back(Shaped(pieces_[i].master, table[i]));
  }
}

void ParameterStore::BindWeights(const Arena& arena, const std::vector<int64_t>& offsets) {
  const spec::StoreBuffers& ids = arena.ids().store;
  flat_weights_ = arena.Floats(ids.parameters);
  flat_blocks_ = arena.Floats(ids.blocks);
  decoded_ = arena.Floats(ids.decoded);
  blocks_.resize(table_.size());
  weights_.resize(table_.size());
  if (weights_divided()) {
    BindDividedUnits(arena, offsets);
    return;
  }
  for (size_t i = 0; i < table_.size(); ++i) {
    const TensorView kept = Kept(offsets[i], table_[i].elements());
    if (table_[i].stored()) {
      blocks_[i] = kept;
    } else {
      weights_[i] = Shaped(kept, table_[i]);
    }
  }
  BindStoredUnits(arena, offsets);
}

void ParameterStore::BindStoredUnits(const Arena& arena, const std::vector<int64_t>& offsets) {
  for (const spec::WeightUnit& unit : units_.units) {
    std::vector<UnitPart>& parts = parts_.emplace_back();
    const TensorView slot =
        arena.Floats(arena.ids().store.weight_slots[static_cast<size_t>(unit.slot)]);
    for (size_t k = 0; k < unit.parameters.size(); ++k) {
      const auto i = static_cast<size_t>(unit.parameters[k]);
      weights_[i] = Shaped(Slice(slot, unit.offsets[k], table_[i].elements()), table_[i]);
      parts.push_back({offsets[i], {}, blocks_[i], weights_[i], table_[i].store});
    }
  }
}

void ParameterStore::BindDividedUnits(const Arena& arena, const std::vector<int64_t>& offsets) {
  const spec::StoreBuffers& ids = arena.ids().store;
  const formats::WeightCodecRow& row = spec::StoredRow(table_);
  const formats::WeightCodec codec = spec::StoredCodec(table_);
  std::vector<TensorView> whole(buckets_.size());
  for (const spec::WeightUnit& unit : units_.units) {
    const TensorView slot = arena.Floats(ids.weight_slots[static_cast<size_t>(unit.slot)]);
    const TensorView plain = arena.Floats(ids.weight_slots[static_cast<size_t>(unit.arrival)]);
    const TensorView blocks = arena.Floats(ids.block_slots[static_cast<size_t>(unit.arrival)]);
    std::vector<UnitPart>& parts = parts_.emplace_back();
    for (size_t k = 0; k < unit.buckets.size(); ++k) {
      const spec::GradientBucket& bucket = buckets_[unit.buckets[k]];
      const int64_t n = bucket.elements();
      UnitPart& part = parts.emplace_back();
      part.begin = bucket.begin;
      part.own = Kept(bucket.begin / shards_, n / shards_);
      part.whole = whole[unit.buckets[k]] = Slice(slot, unit.offsets[k], n);
      part.arrived = bucket.stored ? Slice(blocks, unit.arrivals[k], row.Bytes(n))
                                   : Slice(plain, unit.arrivals[k], n);
      part.codec = bucket.stored ? codec : formats::WeightCodec::kNone;
    }
  }
  for (size_t i = 0; i < table_.size(); ++i) {
    const auto b = static_cast<size_t>(BucketOf(offsets[i]));
    weights_[i] =
        Shaped(Slice(whole[b], offsets[i] - buckets_[b].begin, table_[i].elements()), table_[i]);
  }
}

TensorView ParameterStore::Kept(int64_t begin, int64_t elements) const {
  if (begin < flat_weights_.numel()) {
    return Slice(flat_weights_, begin, elements);
  }
  // Blocks lie behind all else, in a buffer of their own.
  const formats::WeightCodecRow& row = spec::StoredRow(table_);
  return Slice(flat_blocks_, row.Bytes(begin - flat_weights_.numel()), row.Bytes(elements));
}

int ParameterStore::BucketOf(int64_t offset) const {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].begin <= offset && offset < buckets_[b].end) {
      return static_cast<int>(b);
    }
  }
  HEARTH_CHECK(false, "buckets cover the table");
  return -1;
}

void ParameterStore::BindMasters(const Arena& arena,
                                 const std::vector<spec::MasterBuffer>& buffers) {
  for (size_t k = 0; k < buffers.size(); ++k) {
    const TensorView flat = arena.Floats(arena.ids().store.masters[k]);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (buffers[k].offsets[i] >= 0) {
        pieces_[i].master = Slice(flat, buffers[k].offsets[i], pieces_[i].place.elements);
        pieces_[i].master_on_host = arena.OnHost(arena.ids().store.masters[k]);
      }
    }
  }
}

void ParameterStore::BindGradients(const Arena& arena, const std::vector<int64_t>& offsets) {
  groups_ = spec::GradientGroups(table_, offsets);
  const spec::StoreBuffers& ids = arena.ids().store;
  for (const spec::BufferId id : ids.gradient_slots) {
    slots_.push_back(arena.Floats(id));
  }
  divided_ = gradients_in_slots() && !ids.gradients.empty();
  for (const spec::BufferId id : ids.gradients) {
    (divided_ ? sums_ : flat_gradients_).push_back(arena.Floats(id));
  }
  for (size_t i = 0; i < table_.size(); ++i) {
    gradients_.push_back(Shaped(GradientRange(offsets[i], table_[i].elements()), table_[i]));
  }
  for (const int64_t offset : absl::MakeConstSpan(offsets).first(table_.size())) {
    groups_of_.push_back(gradients_in_slots() ? BucketOf(offset) : 0);
  }
  for (const spec::GradientBucket& bucket : buckets_) {
    owned_gradients_.push_back(OwnedGradients(bucket));
  }
  if (buckets_.empty()) {
    owned_gradients_ = flat_gradients_;
  }
}

TensorView ParameterStore::GradientRange(int64_t begin, int64_t elements) const {
  for (const spec::GradientBucket& bucket : buckets_) {
    if (gradients_in_slots() && bucket.begin <= begin && begin + elements <= bucket.end) {
      return Slice(slots_[static_cast<size_t>(bucket.slot)], begin - bucket.begin, elements);
    }
  }
  for (size_t g = 0; !gradients_in_slots() && g < groups_.size(); ++g) {
    if (groups_[g].begin <= begin && begin + elements <= groups_[g].end) {
      return Slice(flat_gradients_[g], begin - groups_[g].begin, elements);
    }
  }
  HEARTH_CHECK(false, "a range of gradients lies in one group or bucket");
  return {};
}

TensorView ParameterStore::OwnedGradients(const spec::GradientBucket& bucket) const {
  // Buckets are padded so that this divides them.
  const int64_t part = bucket.elements() / shards_;
  if (!divided_) {
    return Slice(GradientRange(bucket.begin, bucket.elements()), rank_ * part, part);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].begin <= bucket.begin && bucket.end <= groups_[g].end) {
      return Slice(sums_[g], (bucket.begin - groups_[g].begin) / shards_, part);
    }
  }
  HEARTH_CHECK(false, "a bucket lies in one group");
  return {};
}

TensorView ParameterStore::PieceGradient(const spec::ShardPiece& place) const {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const int64_t part = buckets_[b].elements() / shards_;
    const int64_t begin = buckets_[b].begin + rank_ * part;
    if (begin <= place.offset && place.offset < begin + part) {
      return Slice(owned_gradients_[b], place.offset - begin, place.elements);
    }
  }
  return GradientRange(place.offset, place.elements);
}

void ParameterStore::CutStates(const Arena& arena, const std::vector<spec::StateBuffer>& buffers) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    StorePiece& piece = pieces_[i];
    const spec::Parameter& parameter = table_[static_cast<size_t>(piece.place.parameter)];
    for (const spec::ParameterState& state : parameter.states) {
      const auto buffer =
          std::find_if(buffers.begin(), buffers.end(),
                       [&state](const spec::StateBuffer& b) { return b.state == state; });
      HEARTH_CHECK(buffer != buffers.end(), "every state has a buffer");
      const auto k = static_cast<size_t>(buffer - buffers.begin());
      const spec::BufferId id = arena.ids().store.states[k];
      piece.states.push_back(
          Slice(arena.Floats(id), buffer->offsets[i], state.Count(piece.place.elements)));
      piece.states_on_host = arena.OnHost(id);
    }
  }
}

bool ParameterStore::some_weights_are_masters() const {
  for (int i = 0; i < size(); ++i) {
    if (weight_is_master(i)) {
      return true;
    }
  }
  return false;
}

const TensorView& ParameterStore::master(int i) const {
  HEARTH_CHECK(!sharded(), "no rank has a whole master of a sharded optimizer");
  return masters_[static_cast<size_t>(i)];
}

const spec::Parameter& ParameterStore::Find(spec::Slot slot, int layer) const {
  const int i = spec::FindParameter(table_, slot, layer);
  HEARTH_CHECK(i >= 0, "the model has the weight");
  return table_[static_cast<size_t>(i)];
}

TensorView ParameterStore::FindWeight(spec::Slot slot, int layer, bool is_bias) const {
  const int i = spec::FindParameter(table_, slot, layer, is_bias);
  return i < 0 ? TensorView() : weight(i);
}

TensorView ParameterStore::FindGradient(spec::Slot slot, int layer, bool is_bias) const {
  const int i = spec::FindParameter(table_, slot, layer, is_bias);
  return i < 0 || gradients_.empty() ? TensorView() : gradient(i);
}

absl::Status ParameterStore::Initialise(const kernels::Exec& exec, uint64_t seed) const {
  // Every rank draws the whole weights that it keeps itself: what is drawn depends on seed and
  // element alone, so nothing has to be sent.
  for (int i = 0; i < size(); ++i) {
    if (table_[static_cast<size_t>(i)].stored()) {
      HEARTH_RETURN_IF_ERROR(DrawBlocks(exec, i, seed));
    } else if (sharded() && !weights_divided()) {
      HEARTH_RETURN_IF_ERROR(DrawWhole(exec, i, seed));
    }
  }
  for (const StorePiece& piece : pieces_) {
    const int i = piece.place.parameter;
    if (!piece.blocks.empty()) {
      continue;
    }
    HEARTH_RETURN_IF_ERROR(Draw(exec, table_[static_cast<size_t>(i)], seed,
                                static_cast<uint32_t>(i), piece.place.first_element, piece.master));
  }
  return RefreshWeights(exec);
}

absl::Status ParameterStore::DrawWhole(const kernels::Exec& exec, int i, uint64_t seed) const {
  const spec::Parameter& parameter = table_[static_cast<size_t>(i)];
  HEARTH_RETURN_IF_ERROR(Draw(exec, parameter, seed, static_cast<uint32_t>(i), 0, weight(i)));
  if (weight(i).dtype == numerics_.weight) {
    return absl::OkStatus();
  }
  // Where formats are stored wide drawing does not round.
  kernels::RoundToArgs round;
  round.x = weight(i);
  round.y = weight(i);
  round.to = numerics_.weight;
  return kernels::RoundTo(exec, round);
}

const StorePiece* ParameterStore::PieceOf(int i) const {
  const auto piece = std::lower_bound(
      pieces_.begin(), pieces_.end(), i,
      [](const StorePiece& p, int parameter) { return p.place.parameter < parameter; });
  return piece == pieces_.end() || piece->place.parameter != i ? nullptr : &*piece;
}

template <typename Fill>
absl::Status ParameterStore::EncodeParts(const kernels::Exec& exec, int i, const Fill& fill) const {
  const spec::Parameter& parameter = table_[static_cast<size_t>(i)];
  const formats::WeightCodecRow& row = formats::RowOf(parameter.store);
  // All blocks where the rank has them, else its piece.
  const StorePiece* const piece = blocks(i).empty() ? PieceOf(i) : nullptr;
  if (blocks(i).empty() && piece == nullptr) {
    return absl::OkStatus();
  }
  const TensorView& all = piece == nullptr ? blocks(i) : piece->blocks;
  const int64_t begin = piece == nullptr ? 0 : piece->place.first_element;
  const int64_t elements = piece == nullptr ? parameter.elements() : piece->place.elements;
  for (int64_t first = 0; first < elements; first += decoded_.numel()) {
    const int64_t count = std::min(decoded_.numel(), elements - first);
    kernels::EncodeWeightsArgs args;
    args.codec = parameter.store;
    args.x = Slice(decoded_, 0, count);
    args.blocks = Slice(all, row.Bytes(first), row.Bytes(count));
    HEARTH_RETURN_IF_ERROR(fill(args.x, begin + first));
    HEARTH_RETURN_IF_ERROR(kernels::EncodeWeights(exec, args));
  }
  return absl::OkStatus();
}

absl::Status ParameterStore::DrawBlocks(const kernels::Exec& exec, int i, uint64_t seed) const {
  return EncodeParts(exec, i, [&](const TensorView& values, int64_t first) {
    return Draw(exec, table_[static_cast<size_t>(i)], seed, static_cast<uint32_t>(i), first,
                values);
  });
}

absl::Status ParameterStore::WriteBlocks(const kernels::Exec& exec,
                                         Upload& upload,
                                         int i,
                                         const Upload::Values& values) const {
  return EncodeParts(exec, i, [&](const TensorView& part, int64_t begin) {
    return upload.Write(part, [&values, begin](int64_t first, absl::Span<float> out) {
      return values(begin + first, out);
    });
  });
}

absl::Status ParameterStore::Unpack(const kernels::Exec& exec, int unit) const {
  for (const UnitPart& part : UnitParts(unit)) {
    if (part.codec == formats::WeightCodec::kNone) {
      HEARTH_RETURN_IF_ERROR(
          part.arrived.data == part.whole.data
              ? absl::OkStatus()
              : kernels::Copy(exec, part.whole.data, part.arrived.data, part.whole.bytes()));
      continue;
    }
    kernels::DecodeWeightsArgs args;
    args.codec = part.codec;
    args.blocks = part.arrived;
    args.y = part.whole;
    args.to = numerics_.weight;
    HEARTH_RETURN_IF_ERROR(kernels::DecodeWeights(exec, args));
  }
  return absl::OkStatus();
}

absl::Status ParameterStore::WriteParameter(const kernels::Exec& exec,
                                            Upload& upload,
                                            int i,
                                            const Upload::Values& values) const {
  if (table_[static_cast<size_t>(i)].stored()) {
    return WriteBlocks(exec, upload, i, values);
  }
  kernels::RoundToArgs round;
  round.y = weight(i);
  round.to = numerics_.weight;
  if (!sharded()) {
    HEARTH_RETURN_IF_ERROR(upload.Write(master(i), values));
    round.x = master(i);
    return kernels::RoundTo(exec, round);
  }
  if (!weights_divided()) {
    HEARTH_RETURN_IF_ERROR(upload.Write(weight(i), values));
    // Where formats are stored wide the copy alone does not round.
    if (weight(i).dtype != numerics_.weight) {
      round.x = weight(i);
      HEARTH_RETURN_IF_ERROR(kernels::RoundTo(exec, round));
    }
  }
  const StorePiece* const piece = PieceOf(i);
  if (piece == nullptr) {
    return absl::OkStatus();
  }
  const int64_t offset = piece->place.first_element;
  HEARTH_RETURN_IF_ERROR(
      upload.Write(piece->master, [&values, offset](int64_t first, absl::Span<float> out) {
        return values(offset + first, out);
      }));
  return weights_divided() ? RefreshWeight(exec, *piece) : absl::OkStatus();
}

absl::Status ParameterStore::Write(const kernels::Exec& exec,
                                   const TensorView& tensor,
                                   const float* values) const {
  const void* from = values;
  std::vector<uint8_t> narrow;
  if (tensor.dtype != DType::kF32) {
    // Conversion on the host: the other side of the copy is the tensor itself.
    narrow.resize(tensor.bytes());
    kernels::RoundToArgs round;
    round.x = TensorView(values, DType::kF32, {tensor.numel()});
    round.y = TensorView(static_cast<void*>(narrow.data()), tensor.dtype, {tensor.numel()});
    round.to = tensor.dtype;
    kernels::Exec host;
    HEARTH_RETURN_IF_ERROR(kernels::RoundTo(host, round));
    from = narrow.data();
  }
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, tensor.data, from, tensor.bytes()));
  return kernels::Synchronize(exec);
}

absl::Status ParameterStore::Read(const kernels::Exec& exec,
                                  const TensorView& tensor,
                                  float* values) const {
  if (tensor.dtype == DType::kF32) {
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, values, tensor.data, tensor.bytes()));
    return kernels::Synchronize(exec);
  }
  std::vector<uint8_t> narrow(tensor.bytes());
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, narrow.data(), tensor.data, tensor.bytes()));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  kernels::WidenArgs widen;
  widen.x = TensorView(static_cast<void*>(narrow.data()), tensor.dtype, {tensor.numel()});
  widen.y = TensorView(static_cast<void*>(values), DType::kF32, {tensor.numel()});
  kernels::Exec host;
  return kernels::Widen(host, widen);
}

absl::Status ParameterStore::RefreshWeights(const kernels::Exec& exec) const {
  for (const StorePiece& piece : pieces_) {
    HEARTH_RETURN_IF_ERROR(RefreshWeight(exec, piece));
  }
  return absl::OkStatus();
}

absl::Status ParameterStore::RefreshWeight(const kernels::Exec& exec,
                                           const StorePiece& piece) const {
  if (!piece.blocks.empty()) {
    return absl::OkStatus();  // passes read it decoded
  }
  // Such weights are their own masters, in the format that products read: nothing to round.
  if (piece.master.data == piece.weight.data && piece.master.dtype == numerics_.weight) {
    return absl::OkStatus();
  }
  kernels::RoundToArgs round;
  round.x = piece.master;
  round.y = piece.weight;
  round.to = numerics_.weight;
  return kernels::RoundTo(exec, round);
}

}  // namespace hearth::trainer
