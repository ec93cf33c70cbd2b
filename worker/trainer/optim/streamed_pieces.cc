#include "worker/trainer/optim/streamed_pieces.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/spec/plan/training_plan.h"
#include "kernels/weight_blocks/weight_blocks.h"

namespace hearth::trainer {
namespace {

using kernels::Event;
using kernels::TensorView;

constexpr int64_t kAlignment = 256;  // of views in a slot, as in the arena
constexpr int64_t kUnit = spec::kTensorAlignElements;

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t Count(int64_t elements, int64_t per) {
  return (elements + per - 1) / per;
}

// Elements [begin, begin + count) of a piece.
StorePiece Part(const StorePiece& piece,
                const spec::Parameter& parameter,
                int64_t begin,
                int64_t count) {
  StorePiece part = piece;
  part.place.first_element += begin;
  part.place.offset += begin;
  part.place.local_offset += begin;
  part.place.elements = count;
  if (piece.blocks.empty()) {
    part.master = Slice(piece.master, begin, count);
    part.weight = Slice(piece.weight, begin, count);
  } else {
    const formats::WeightCodecRow& row = formats::RowOf(parameter.store);
    part.blocks = Slice(piece.blocks, row.Bytes(begin), row.Bytes(count));
  }
  part.gradient = Slice(piece.gradient, begin, count);
  for (size_t k = 0; k < piece.states.size(); ++k) {
    const spec::ParameterState& state = parameter.states[k];
    part.states[k] = Slice(piece.states[k], state.Count(begin), state.Count(count));
  }
  return part;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OffloadLanes>> OffloadLanes::New(const kernels::Exec& exec) {
  std::unique_ptr<OffloadLanes> lanes(new OffloadLanes(exec));
  for (kernels::Exec* lane : {&lanes->in_, &lanes->out_}) {
    lane->stream = nullptr;
    if (exec.device == kernels::Device::kCuda) {
      HEARTH_ASSIGN_OR_RETURN(lane->stream, kernels::NewStream(*exec.cuda));
    }
  }
  HEARTH_ASSIGN_OR_RETURN(lanes->begun_, Event::New(exec, Event::Use::kOrder));
  for (Events* events : {&lanes->fetched_, &lanes->updated_, &lanes->written_}) {
    for (std::unique_ptr<Event>& event : *events) {
      HEARTH_ASSIGN_OR_RETURN(event, Event::New(exec, Event::Use::kOrder));
    }
  }
  return lanes;
}

OffloadLanes::~OffloadLanes() {
  for (const kernels::Exec* lane : {&in_, &out_}) {
    if (lane->stream != nullptr) {
      kernels::DeleteStream(lane->stream);
    }
  }
}

void OffloadLanes::SetSlots(const Arena& arena) {
  const std::vector<spec::BufferId>& ids = arena.ids().store.offload_slots;
  slots_ = {};
  slot_bytes_ = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    slots_[i] = arena.Bytes(ids[i]);
    slot_bytes_ = arena.BytesOf(ids[i]);
  }
}

absl::Status OffloadLanes::Fetch(absl::Span<const OffloadWindow> windows, size_t window) {
  const size_t slot = window % slots_.size();
  if (window >= slots_.size()) {
    HEARTH_RETURN_IF_ERROR(kernels::StreamWait(in_, *written_[slot]));
  }
  for (const OffloadCopy& copy : windows[window].copies) {
    HEARTH_RETURN_IF_ERROR(kernels::Copy(in_, copy.slot, copy.host, copy.bytes));
  }
  return fetched_[slot]->Record(in_);
}

absl::Status OffloadLanes::WriteBack(const OffloadWindow& window) const {
  for (const OffloadCopy& copy : window.copies) {
    if (copy.changes) {
      HEARTH_RETURN_IF_ERROR(kernels::Copy(out_, copy.host, copy.slot, copy.bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status OffloadLanes::Run(const kernels::Exec& exec,
                               absl::Span<const OffloadWindow> windows,
                               absl::FunctionRef<absl::Status(size_t window)> work) {
  // The slots may be in use by what was launched before, which may also have written the host's
  // memory.
  HEARTH_RETURN_IF_ERROR(begun_->Record(exec));
  HEARTH_RETURN_IF_ERROR(kernels::StreamWait(in_, *begun_));
  HEARTH_RETURN_IF_ERROR(Fetch(windows, 0));
  for (size_t w = 0; w < windows.size(); ++w) {
    const size_t slot = w % slots_.size();
    if (w + 1 < windows.size()) {
      HEARTH_RETURN_IF_ERROR(Fetch(windows, w + 1));
    }
    HEARTH_RETURN_IF_ERROR(kernels::StreamWait(exec, *fetched_[slot]));
    HEARTH_RETURN_IF_ERROR(work(w));
    HEARTH_RETURN_IF_ERROR(updated_[slot]->Record(exec));
    HEARTH_RETURN_IF_ERROR(kernels::StreamWait(out_, *updated_[slot]));
    HEARTH_RETURN_IF_ERROR(WriteBack(windows[w]));
    HEARTH_RETURN_IF_ERROR(written_[slot]->Record(out_));
  }
  // An event that this call has not recorded must not be waited for while a graph is recorded.
  for (size_t slot = 0; slot < std::min(windows.size(), slots_.size()); ++slot) {
    HEARTH_RETURN_IF_ERROR(kernels::StreamWait(exec, *written_[slot]));
  }
  return absl::OkStatus();
}

StreamedPieces::StreamedPieces(const ParameterStore& parameters,
                               OffloadLanes* lanes,
                               const StreamNeeds& needs)
    : lanes_(lanes), changes_masters_(needs.masters && needs.changes_masters), windows_(1) {
  // What lies in its place comes first, in one window.
  for (const bool in_blocks : {false, true}) {
    for (const StorePiece& piece : parameters.pieces()) {
      const spec::Parameter& parameter =
          parameters.table()[static_cast<size_t>(piece.place.parameter)];
      const bool decodes = needs.masters && !piece.blocks.empty();
      const bool in_group =
          needs.group < 0 || parameters.WholeGroup(piece.place.parameter) == needs.group;
      if (decodes != in_blocks || !in_group || (needs.of != nullptr && !needs.of(parameter))) {
        continue;
      }
      Cut(piece, parameter, needs, decodes ? parameters.decoded() : TensorView());
    }
  }
}

void StreamedPieces::AddDecoded(const spec::Parameter& parameter,
                                const TensorView& decoded,
                                StorePiece& part) {
  part.master = Slice(decoded, decoded_, part.place.elements);
  windows_.back().decoded.push_back({parameter.store, part.blocks, part.master,
                                     static_cast<uint32_t>(part.place.parameter),
                                     static_cast<uint64_t>(part.place.first_element)});
  decoded_ += Count(part.place.elements, kUnit) * kUnit;
}

std::vector<StreamedPieces::Away> StreamedPieces::AwayOf(const StorePiece& piece,
                                                         const spec::Parameter& parameter,
                                                         const StreamNeeds& needs) const {
  std::vector<Away> away;
  if (needs.masters && piece.master_on_host) {
    away.push_back({.master = &StorePiece::master, .changes = needs.changes_masters});
  }
  for (size_t k = 0; piece.states_on_host && k < piece.states.size(); ++k) {
    if (needs.state != nullptr && needs.state(parameter.states[k])) {
      away.push_back({.state = k, .per = parameter.states[k].per});
    }
  }
  HEARTH_CHECK(away.empty() || (lanes_ != nullptr && lanes_->slot_bytes() > 0),
               "what is in the host's memory has slots to pass through");
  return away;
}

int64_t StreamedPieces::RoomInSlot(const StorePiece& piece,
                                   const std::vector<Away>& away,
                                   int64_t begin) const {
  const int64_t rest = piece.place.elements - begin;
  if (away.empty()) {
    return rest;
  }
  const int64_t free = lanes_->slot_bytes() - used_;
  int64_t all = 0;
  int64_t of_unit = 0;
  for (const Away& view : away) {
    const kernels::DType dtype =
        view.master != nullptr ? (piece.*view.master).dtype : piece.states[view.state].dtype;
    all += Aligned(kernels::DTypeBytes(dtype, Count(rest, view.per)));
    of_unit += kernels::DTypeBytes(dtype, Count(kUnit, view.per));
  }
  if (all <= free) {
    return rest;
  }
  // Each view may need a gap behind it.
  const int64_t gaps = static_cast<int64_t>(away.size()) * kAlignment;
  return std::clamp((free - gaps) / of_unit * kUnit, int64_t{0}, rest);
}

int64_t StreamedPieces::Room(const StorePiece& piece,
                             const std::vector<Away>& away,
                             int64_t begin,
                             const TensorView& decoded) const {
  const int64_t room = RoomInSlot(piece, away, begin);
  if (decoded.empty()) {
    return room;
  }
  const OffloadWindow& window = windows_.back();
  const bool plain = !window.pieces.empty() && window.decoded.empty();
  return plain ? 0 : std::min(room, (decoded.numel() - decoded_) / kUnit * kUnit);
}

void StreamedPieces::Open() {
  windows_.emplace_back();
  used_ = 0;
  decoded_ = 0;
}

void StreamedPieces::Cut(const StorePiece& piece,
                         const spec::Parameter& parameter,
                         const StreamNeeds& needs,
                         const TensorView& decoded) {
  const std::vector<Away> away = AwayOf(piece, parameter, needs);
  for (int64_t begin = 0; begin < piece.place.elements;) {
    const int64_t count = Room(piece, away, begin, decoded);
    if (count == 0) {
      HEARTH_CHECK(!windows_.back().pieces.empty(), "an empty window has room for a block");
      Open();
      continue;
    }
    const bool whole = count == piece.place.elements;
    StorePiece part = whole ? piece : Part(piece, parameter, begin, count);
    if (!decoded.empty()) {
      AddDecoded(parameter, decoded, part);
    }
    Add(std::move(part), away);
    begin += count;
  }
}

void StreamedPieces::Add(StorePiece part, const std::vector<Away>& away) {
  OffloadWindow& window = windows_.back();
  for (const Away& view : away) {
    TensorView& tensor = view.master != nullptr ? part.*view.master : part.states[view.state];
    const size_t bytes = tensor.bytes();
    uint8_t* const slot = lanes_->slot(windows_.size() - 1) + used_;
    window.copies.push_back({tensor.data, slot, bytes, view.changes});
    tensor.data = slot;
    used_ += Aligned(static_cast<int64_t>(bytes));
    streams_ = true;
  }
  HEARTH_CHECK(away.empty() || used_ <= lanes_->slot_bytes(), "a window fits into its slot");
  window.pieces.push_back(std::move(part));
}

absl::Status StreamedPieces::Decode(const kernels::Exec& exec, const OffloadWindow& window) {
  for (const DecodedWeights& weights : window.decoded) {
    kernels::DecodeWeightsArgs args;
    args.codec = weights.codec;
    args.blocks = weights.blocks;
    args.y = weights.values;
    HEARTH_RETURN_IF_ERROR(kernels::DecodeWeights(exec, args));
  }
  return absl::OkStatus();
}

absl::Status StreamedPieces::Encode(const kernels::Exec& exec,
                                    const OffloadWindow& window,
                                    const BlockRounding& rounding) const {
  if (!changes_masters_ || window.decoded.empty()) {
    return absl::OkStatus();
  }
  if (rounding.inputs == nullptr) {
    return absl::InternalError("weights in blocks are updated, and no step says how to round them");
  }
  for (const DecodedWeights& weights : window.decoded) {
    float* const amax = rounding.quant == nullptr
                            ? nullptr
                            : rounding.quant->WeightAmaxOf(static_cast<int>(weights.index));
    HEARTH_RETURN_IF_ERROR(kernels::EncodeWeights(exec, {.codec = weights.codec,
                                                         .x = weights.values,
                                                         .blocks = weights.blocks,
                                                         .keep = true,
                                                         .seed = rounding.seed,
                                                         .index = weights.index,
                                                         .first_element = weights.first_element,
                                                         .inputs = rounding.inputs,
                                                         .skip = rounding.skip,
                                                         .amax = amax,
                                                         .to = rounding.round}));
  }
  return absl::OkStatus();
}

absl::Status StreamedPieces::Run(const kernels::Exec& exec,
                                 absl::FunctionRef<absl::Status(size_t window)> work,
                                 const BlockRounding& rounding) const {
  const auto update = [&](size_t w) -> absl::Status {
    HEARTH_RETURN_IF_ERROR(Decode(exec, windows_[w]));
    HEARTH_RETURN_IF_ERROR(work(w));
    return Encode(exec, windows_[w], rounding);
  };
  if (streams_) {
    return lanes_->Run(exec, windows_, update);
  }
  for (size_t w = 0; w < windows_.size(); ++w) {
    HEARTH_RETURN_IF_ERROR(update(w));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
