#include "worker/trainer/optim/adamw.h"

#include "kernels/adamw/adamw.h"

namespace hearth::trainer {
namespace {

kernels::TensorView Flat(kernels::TensorView view) {
  view.shape[0] = view.numel();
  view.rank = 1;
  return view;
}

class AdamW : public Optimizer {
 public:
  explicit AdamW(const OptimizerContext& context) {
    const v1::OptimizerSpec& options = *context.spec;
    const ParameterStore& p = *context.parameters;
    for (int i = 0; i < p.size(); ++i) {
      const spec::GroupOptions group =
          spec::ResolveGroupOptions(options, p.table()[static_cast<size_t>(i)]);
      kernels::AdamWTensor tensor;
      tensor.master = Flat(p.master(i));
      tensor.m = Flat(p.state(0, i));
      tensor.v = Flat(p.state(1, i));
      tensor.grad = Flat(p.gradient(i));
      tensor.working = Flat(p.weight(i));
      tensor.lr_scale = group.lr_scale;
      tensor.weight_decay = group.weight_decay;
      tensor.index = static_cast<uint32_t>(i);
      const int k = context.quant == nullptr ? -1 : context.quant->Find(i);
      tensor.amax = k < 0 ? nullptr : context.quant->W(k).amax;
      tensors_.push_back(tensor);
    }
    args_.tensors = tensors_;
    args_.beta1 = options.beta1();
    args_.beta2 = options.beta2();
    args_.eps = options.eps();
    args_.round_working = context.numerics.weight;
  }

  absl::Status Step(const kernels::Exec& exec, const UpdateArgs& update) override {
    args_.inputs = update.inputs;
    args_.grad_scale = update.grad_scale;
    args_.skip = update.skip;
    return kernels::AdamWStep(exec, args_);
  }

  size_t WorkspaceBytes() const override { return kernels::AdamWWorkspaceBytes(args_); }

 private:
  std::vector<kernels::AdamWTensor> tensors_;
  kernels::AdamWArgs args_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdamW(const OptimizerContext& context) {
  return std::make_unique<AdamW>(context);
}

}  // namespace hearth::trainer
