#include "worker/trainer/cli/bench/step_floor.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/spec/model/linear_name.h"
#include "worker/trainer/cli/bench/kernel_meter.h"
#include "worker/trainer/precision/numerics.h"

namespace hearth::trainer {
namespace {

using kernels::DType;

class FloorMeter {
 public:
  FloorMeter(const Engine& engine, bool quantised) : engine_(engine), quantised_(quantised) {}

  absl::StatusOr<StepFloor> Run() {
    const spec::PrecisionPlan& p = engine_.precision();
    const bool fp8 = quantised_ && p.quantised() && p.recipe->tensor_scaled();
    for (const FloorLinear& linear : FloorLinears(engine_.table())) {
      HEARTH_RETURN_IF_ERROR(Linear(linear, fp8 && (!linear.head || p.head)));
    }
    HEARTH_RETURN_IF_ERROR(Attention());
    return floor_;
  }

 private:
  absl::Status Add(const std::string& name, double ms, double flops, int64_t calls, bool gemm) {
    floor_.rows.push_back({name, ms, flops, calls});
    (gemm ? floor_.gemm_ms : floor_.attention_ms) += ms * static_cast<double>(calls);
    return absl::OkStatus();
  }

  absl::Status Product(const FloorLinear& linear, const char* what, const ProductShape& product) {
    HEARTH_ASSIGN_OR_RETURN(const double ms, TimeProduct(engine_.exec(), product));
    return Add(linear.name + " " + what, ms, product.flops(), linear.calls, true);
  }

  absl::Status Linear(const FloorLinear& l, bool fp8) {
    const int64_t rows = engine_.model_rows();
    const int64_t out = l.weight->shape[0];
    const int64_t in = l.weight->shape[1];
    const Numerics& n = engine_.numerics();
    const DType plain = n.activation;
    const DType x = fp8 ? engine_.recipe().fprop.a.dtype : plain;
    const DType dy = fp8 ? engine_.recipe().dgrad.a.dtype : plain;
    const bool fast = engine_.recipe().fprop.fast_accumulation && fp8;
    HEARTH_RETURN_IF_ERROR(
        Product(l, "fprop", {rows, out, in, x, x, n.fprop, false, true, fp8, fast}));
    HEARTH_RETURN_IF_ERROR(
        Product(l, "dgrad", {rows, in, out, dy, x, n.dgrad, false, fp8, fp8, false}));
    const DType gradient = n.Gradient(l.weight->gradient);
    return Product(l, "wgrad", {out, in, rows, dy, x, gradient, !fp8, fp8, fp8, false});
  }

  absl::Status Attention() {
    const spec::ModelShape& s = engine_.shape();
    const int64_t sequence = engine_.options().spec.data().sequence_length();
    const kernels::AttentionDims dims = {engine_.model_rows() / sequence, sequence, s.heads,
                                         s.kv_heads, s.head_dim};
    HEARTH_ASSIGN_OR_RETURN(const AttentionTime time,
                            TimeAttention(engine_.exec(), dims, engine_.numerics().activation));
    const double flops = AttentionProductFlops(dims);
    HEARTH_RETURN_IF_ERROR(Add("attention forward", time.forward_ms, 2 * flops, s.layers, false));
    return Add("attention backward", time.backward_ms, 5 * flops, s.layers, false);
  }

  const Engine& engine_;
  const bool quantised_;
  StepFloor floor_;
};

}  // namespace

std::vector<FloorLinear> FloorLinears(const std::vector<spec::Parameter>& table) {
  std::vector<FloorLinear> linears;
  const auto head = static_cast<size_t>(spec::FindHead(table));
  for (size_t i = 0; i < table.size(); ++i) {
    const spec::Parameter& weight = table[i];
    if (i == head) {
      linears.push_back({spec::LinearName(weight), &weight, 1, true});
      continue;
    }
    if (weight.matrices.empty()) {
      continue;
    }
    const auto same = std::find_if(linears.begin(), linears.end(), [&](const FloorLinear& l) {
      return l.weight->slot == weight.slot && l.weight->shape == weight.shape;
    });
    if (same != linears.end()) {
      ++same->calls;
      continue;
    }
    linears.push_back({spec::LinearName(weight), &weight, 1, false});
  }
  return linears;
}

absl::StatusOr<StepFloor> MeasureFloor(const Engine& engine, bool quantised) {
  if (!engine.on_gpu()) {
    return absl::UnimplementedError("the floor is measured only on a GPU");
  }
  return FloorMeter(engine, quantised).Run();
}

}  // namespace hearth::trainer
