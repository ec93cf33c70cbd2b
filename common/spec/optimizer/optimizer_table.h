// The optimizer table: which state an optimizer keeps for a parameter, and the table of formats of
// that state (optimizer.state). The rest of an optimizer is its folder
// worker/trainer/optim/<name>/.
//
// How code reads a state: Parameter::states, StateBuffer (plan) and StorePiece::states (engine)
// have one entry for each tensor. A state in blocks is several entries, codes then scales, and with
// leading directions kept apart left factors, right factors and the matrices' numbers; everything
// but the optimizer's own kernel treats them as tensors of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "common/spec/model/parameter.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// clang-format off
// One row an optimizer: ROW(Type, name, comment, options, states...). `options` are the fields of
// OptimizerSpec, separated by blanks, that it reads in addition to those of all optimizers. The folder
// worker/trainer/optim/<name>/ defines Make<Type>() (worker/trainer/optim/optimizer.h).
#define HEARTH_OPTIMIZERS(ROW)                                                        \
  ROW(AdamW, "adamw", "Adam with decoupled weight decay", "beta1 beta2 eps",          \
      StateSpec{.name = "exp_avg", .narrow = true},                                   \
      StateSpec{.name = "exp_avg_sq", .kind = StateKind::kSquares, .narrow = true})   \
  ROW(Muon, "muon", "orthogonal momentum for hidden matrices, AdamW for all else",    \
      "beta1 beta2 eps momentum newton_schulz",                                       \
      StateSpec{.name = "momentum", .of = &IsHiddenMatrix, .kind = StateKind::kMomentum, .narrow = true}, \
      StateSpec{.name = "exp_avg", .of = &IsNotHiddenMatrix, .narrow = true},         \
      StateSpec{.name = "exp_avg_sq", .of = &IsNotHiddenMatrix, .kind = StateKind::kSquares, .narrow = true})
// clang-format on

// What a state's values are like, which decides how few bits hold them.
enum class StateKind : uint8_t {
  kMean,      // a mean of gradients: both signs, many sizes
  kSquares,   // a mean of squares, >= 0; the root of it divides
  kMomentum,  // of Muon, which reads only its direction
};
inline constexpr int kStateKinds = 3;

// State that is kept with parameters. Two of one name and different formats are of different
// parameters.
struct StateSpec {
  std::string_view name;  // "exp_avg"
  // kF32, if `narrow`: in the format of the job's optimizer.state where that takes the parameter.
  // kBF16: always so. A CPU too holds kBF16 in 16 bits.
  DType dtype = DType::kF32;
  // Which parameters have it; null: all.
  bool (*of)(const Parameter& parameter) = nullptr;
  StateKind kind = StateKind::kMean;
  // The optimizer's code can read it in every format of optimizer.state, and can update weights
  // without masters. If not, the rules refuse jobs that ask for either.
  bool narrow = false;

  bool Has(const Parameter& parameter) const { return of == nullptr || of(parameter); }
};

// Weights of linear layers inside the model: neither embeddings nor the output projection.
bool IsHiddenMatrix(const Parameter& parameter);
bool IsNotHiddenMatrix(const Parameter& parameter);

struct OptimizerRow {
  std::string_view name;
  std::string_view comment;
  std::string_view options;  // separated by blanks
  std::vector<StateSpec> states = {};

  // Whether it reads that field of OptimizerSpec, which not all optimizers do.
  bool Reads(std::string_view option) const;

  // Any state is not `narrow`.
  bool needs_master() const;
};

// Rows live for ever.
absl::Span<const OptimizerRow> Optimizers();
const OptimizerRow* FindOptimizer(std::string_view name);
std::vector<std::string_view> OptimizerNames();
// Those that read the option.
std::vector<std::string_view> OptimizersThatRead(std::string_view option);

// A format of states: a value of optimizer.state.
struct StateFormatRow {
  std::string_view name;
  std::string_view comment;
  DType dtype = DType::kF32;                            // of states without a codec
  StateCodec codecs[kStateKinds] = {};                  // by kind
  bool (*takes)(const Parameter& parameter) = nullptr;  // null: all; the others stay in fp32
  std::string_view rule;                                // which those are, as a phrase

  StateCodec CodecOf(StateKind kind) const { return codecs[static_cast<size_t>(kind)]; }
  // Whether the state of such values is kept in it. A codec may want more than `takes`.
  bool Takes(StateKind kind, const Parameter& parameter) const;
};

// The smallest tensor whose state is kept in blocks (bitsandbytes and torchao have the same).
inline constexpr int64_t kLeastBlockElements = 4096;

// In the order of the help text: fp32, bf16, int8, int4. Rows live for ever.
absl::Span<const StateFormatRow> StateFormatRows();
const StateFormatRow* FindStateFormat(std::string_view name);
std::vector<std::string_view> StateFormatNames();

// What the optimizer keeps with the parameter. `format` null: fp32.
std::vector<ParameterState> StatesOf(const OptimizerRow& optimizer,
                                     const Parameter& parameter,
                                     const StateFormatRow* format = nullptr);
// The first state that the job's format keeps of whole matrices; null: none.
const StateSpec* FindWholeState(const v1::OptimizerSpec& optimizer);
// Whether the parameter's states are those of the optimizer in some format.
bool HasStatesOf(const OptimizerRow& optimizer, const Parameter& parameter);

// Peak-relative learning rate and decay of a group's parameters.
struct GroupOptions {
  double lr_scale = 1.0;
  double weight_decay = 0.0;

  bool operator==(const GroupOptions&) const = default;
};

// The group's defaults with optimizer.groups put in. Expects a resolved spec.
GroupOptions ResolveGroupOptions(const v1::OptimizerSpec& optimizer, ParameterGroup group);

}  // namespace hearth::spec
