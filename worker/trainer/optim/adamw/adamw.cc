#include "kernels/adamw/adamw.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "worker/trainer/optim/optimizer.h"

namespace hearth::trainer {
namespace {

// The row's states in its order, each followed by its scales where it is in blocks.
void SetStates(const spec::Parameter& parameter,
               const StorePiece& piece,
               kernels::AdamWTensor& tensor) {
  size_t at = 0;
  for (auto [view, moment] :
       {std::pair(&tensor.m, &tensor.m_blocks), std::pair(&tensor.v, &tensor.v_blocks)}) {
    *view = piece.states[at];
    moment->codec = parameter.states[at].codec;
    if (parameter.states[at].in_blocks()) {
      moment->scales = piece.states[++at].as<float>();
    }
    ++at;
  }
}

kernels::AdamWTensor TensorOf(const OptimizerContext& context, const StorePiece& piece) {
  const int i = piece.place.parameter;
  const spec::Parameter& parameter = context.parameters->table()[static_cast<size_t>(i)];
  const spec::GroupOptions group = spec::ResolveGroupOptions(*context.spec, parameter.group);
  kernels::AdamWTensor tensor;
  tensor.master = piece.master;
  SetStates(parameter, piece, tensor);
  tensor.grad = piece.gradient;
  tensor.working = piece.weight;
  tensor.lr_scale = group.lr_scale;
  tensor.weight_decay = group.weight_decay;
  tensor.index = static_cast<uint32_t>(i);
  tensor.first_element = static_cast<uint64_t>(piece.place.first_element);
  // The largest magnitude of weights in blocks is known once they are encoded.
  tensor.amax = piece.blocks.empty() ? context.quant->WeightAmaxOf(i) : nullptr;
  return tensor;
}

class AdamW : public Optimizer {
 public:
  explicit AdamW(const OptimizerContext& context)
      : pieces_(*context.parameters,
                context.offload,
                {.masters = true, .state = &IsOwnState, .of = context.of, .group = context.group}),
        rounding_(RoundingOf(context)) {
    for (const OffloadWindow& window : pieces_.windows()) {
      std::vector<kernels::AdamWTensor>& tensors = tensors_.emplace_back();
      for (const StorePiece& piece : window.pieces) {
        tensors.push_back(TensorOf(context, piece));
      }
    }
    const v1::OptimizerSpec& options = *context.spec;
    args_.beta1 = options.beta1();
    args_.beta2 = options.beta2();
    args_.eps = options.eps();
    args_.round_working = context.numerics.weight;
    // It acts on weights that are their own masters and leaves fp32 masters alone.
    args_.stochastic_rounding = context.parameters->some_weights_are_masters();
    args_.seed = context.seed;
  }

  absl::Status Step(const kernels::Exec& exec, const UpdateArgs& update) override {
    args_.inputs = update.inputs;
    args_.grad_scale = update.grad_scale;
    args_.skip = update.skip;
    const auto step = [&](size_t window) {
      args_.tensors = tensors_[window];
      return kernels::AdamWStep(exec, args_);
    };
    return pieces_.Run(exec, step, At(update, rounding_));
  }

  size_t WorkspaceBytes() const override { return kernels::AdamWWorkspaceBytes(args_); }

  void Scalars(int64_t step, absl::Span<double> scalars) const override {
    const auto exponent = static_cast<double>(step);
    scalars[kernels::kBiasCorrection1] = 1.0 - std::pow(args_.beta1, exponent);
    scalars[kernels::kBiasCorrection2] = 1.0 - std::pow(args_.beta2, exponent);
  }

 private:
  StreamedPieces pieces_;
  const BlockRounding rounding_;
  std::vector<std::vector<kernels::AdamWTensor>> tensors_;  // by window
  kernels::AdamWArgs args_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdamW(const OptimizerContext& context) {
  return std::make_unique<AdamW>(context);
}

}  // namespace hearth::trainer
