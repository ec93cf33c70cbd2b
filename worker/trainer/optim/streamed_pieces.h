// Updates of masters and states that lie in the host's memory (offload). What an update changes is
// cut into windows, which pass through two slots of the GPU's memory: while one is updated, the
// window before is written back and the next one is fetched.
//
//   slot 0  | fetch 0 | update 0 | write 0 | fetch 2 | update 2 ...
//   slot 1            | fetch 1 ...        | update 1 | write 1 | fetch 3 ...
//
// A window begins at a block of every state, so its update has the bits of the whole. On the CPU
// the same copies are made one after the other, in this order.
//
// Weights in blocks (weights.store) come in windows too, with their states in a slot if these are
// in the host's memory. A window is decoded into fp32 (ParameterStore::decoded), updated there like
// a master, and encoded again with stochastic rounding.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/spec/plan/offload.h"
#include "kernels/core/exec.h"
#include "kernels/cuda/device.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/precision/quant_state.h"

namespace hearth::trainer {

// Bytes that are copied between the host's memory and a slot: where they are in each.
struct OffloadCopy {
  void* host = nullptr;
  void* slot = nullptr;
  size_t bytes = 0;
  bool changes = true;  // else nothing is written back
};

// The same weights in blocks and decoded.
struct DecodedWeights {
  formats::WeightCodec codec = formats::WeightCodec::kNone;
  kernels::TensorView blocks;
  kernels::TensorView values;
  uint32_t index = 0;          // of the parameter
  uint64_t first_element = 0;  // in it
};

// Pieces that are updated together, and what has to be fetched for them and written back.
struct OffloadWindow {
  std::vector<StorePiece> pieces;
  std::vector<OffloadCopy> copies;
  std::vector<DecodedWeights> decoded;
};

// How weights in blocks are encoded again: with the random numbers of (seed, inputs' step, tensor,
// element). In the memory of the tensors' device.
struct BlockRounding {
  uint64_t seed = 0;
  const kernels::StepInputs* inputs = nullptr;  // null: nothing is encoded
  const int32_t* skip = nullptr;                // non-zero: nothing is written
  const QuantState* quant = nullptr;            // is told the largest magnitudes; null: nobody
  kernels::DType round = kernels::DType::kF32;  // of the weights that passes read
};

// The slots of an engine and a stream for each direction. Not thread-safe; whoever uses it ends
// before it, and no work of its streams is under way when it goes.
class OffloadLanes {
 public:
  // Errors: the device's.
  static absl::StatusOr<std::unique_ptr<OffloadLanes>> New(const kernels::Exec& exec);
  ~OffloadLanes();
  OffloadLanes(const OffloadLanes&) = delete;
  OffloadLanes& operator=(const OffloadLanes&) = delete;

  // Those of the arena's plan, which outlives their use.
  void SetSlots(const Arena& arena);
  // nullptr: the plan has none, as nothing that updates change is in the host's memory.
  uint8_t* slot(size_t window) const { return slots_[window % slots_.size()]; }
  int64_t slot_bytes() const { return slot_bytes_; }

  // Fetches each window, calls `work` with its number, which launches on `exec` what changes it,
  // and writes it back. Window w uses slot w % kOffloadSlots. What exec's stream does before and
  // after this call sees the host's memory as if that stream had made all changes. Can be recorded
  // into a graph. Allocates nothing.
  absl::Status Run(const kernels::Exec& exec,
                   absl::Span<const OffloadWindow> windows,
                   absl::FunctionRef<absl::Status(size_t window)> work);

 private:
  using Events = std::array<std::unique_ptr<kernels::Event>, spec::kOffloadSlots>;

  explicit OffloadLanes(const kernels::Exec& exec) : in_(exec), out_(exec) {}
  absl::Status Fetch(absl::Span<const OffloadWindow> windows, size_t window);
  absl::Status WriteBack(const OffloadWindow& window) const;

  kernels::Exec in_;  // with streams of their own
  kernels::Exec out_;
  std::unique_ptr<kernels::Event> begun_;
  Events fetched_;
  Events updated_;
  Events written_;
  std::array<uint8_t*, spec::kOffloadSlots> slots_ = {};
  int64_t slot_bytes_ = 0;
};

// What an update reads and writes of each piece, apart from gradients and weights.
struct StreamNeeds {
  bool masters = false;
  bool changes_masters = true;
  bool (*state)(const spec::ParameterState& state) = nullptr;  // null: no state
  bool (*of)(const spec::Parameter& parameter) = nullptr;      // null: all parameters
  int group = -1;  // of ParameterStore::WholeGroup alone; -1: all
};

// The pieces of a rank for one kind of update. Without offload one window has all pieces that lie
// in place. Weights in blocks have windows of their own, a part of them in each: the piece's master
// is the decoded part, and the piece has no weight.
class StreamedPieces {
 public:
  // `lanes` outlives it; null: nothing is in the host's memory.
  StreamedPieces(const ParameterStore& parameters, OffloadLanes* lanes, const StreamNeeds& needs);

  // At least one. A piece may be cut among several; their views of what `needs` names can be read
  // and written within Run, the others lie where they always do.
  const std::vector<OffloadWindow>& windows() const { return windows_; }
  // Whether any piece lies elsewhere than in the store.
  bool streams() const { return streams_ || windows_.size() > 1 || !windows_[0].decoded.empty(); }
  // Calls `work` once for each window, when it is there. Weights in blocks are encoded again if
  // `needs` changes masters.
  absl::Status Run(const kernels::Exec& exec,
                   absl::FunctionRef<absl::Status(size_t window)> work,
                   const BlockRounding& rounding = {}) const;

 private:
  // A piece's view in the host's memory.
  struct Away {
    kernels::TensorView StorePiece::*master = nullptr;  // null: it is states[state]
    size_t state = 0;
    int64_t per = 1;  // elements of the piece for each of its own
    bool changes = true;
  };

  std::vector<Away> AwayOf(const StorePiece& piece,
                           const spec::Parameter& parameter,
                           const StreamNeeds& needs) const;
  // `decoded`: where the piece's blocks are decoded; empty: they are not.
  void Cut(const StorePiece& piece,
           const spec::Parameter& parameter,
           const StreamNeeds& needs,
           const kernels::TensorView& decoded);
  void Open();
  // Elements of the piece from `begin` on that the open window has room for, in its slot and where
  // it is decoded.
  int64_t Room(const StorePiece& piece,
               const std::vector<Away>& away,
               int64_t begin,
               const kernels::TensorView& decoded) const;
  int64_t RoomInSlot(const StorePiece& piece, const std::vector<Away>& away, int64_t begin) const;
  void Add(StorePiece part, const std::vector<Away>& away);
  // The part's master is its blocks, decoded.
  void AddDecoded(const spec::Parameter& parameter,
                  const kernels::TensorView& decoded,
                  StorePiece& part);
  static absl::Status Decode(const kernels::Exec& exec, const OffloadWindow& window);
  absl::Status Encode(const kernels::Exec& exec,
                      const OffloadWindow& window,
                      const BlockRounding& rounding) const;

  OffloadLanes* const lanes_;
  const bool changes_masters_;
  std::vector<OffloadWindow> windows_;
  int64_t used_ = 0;     // bytes of the last window's slot
  int64_t decoded_ = 0;  // elements that the last window decodes
  bool streams_ = false;
};

}  // namespace hearth::trainer
