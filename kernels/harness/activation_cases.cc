#include "kernels/harness/activation_cases.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/harness/kept_extremes.h"

namespace hearth::kernels::harness {
namespace {

// The buffers that every case but that of extremes has.
OpCase BaseCase(const ActivationCalls& calls, const MatrixShape& y) {
  const int64_t N = y.rows;
  const int64_t F = y.cols;
  OpCase c = NewCase(calls.op, y.name);
  c.buffers = {
      {calls.input, {N, calls.parts * F}, Role::kInput, {Fill::kNormal, 0.0, calls.spread}},
      {"y", {N, F}, Role::kOutput},
      {"dy", {N, F}},
      {calls.gradient, {N, calls.parts * F}, Role::kOutput}};
  c.buffers.insert(c.buffers.end(), calls.parameters.begin(), calls.parameters.end());
  return c;
}

}  // namespace

OpCase ActivationCase(const ActivationCalls& calls, const MatrixShape& y, bool quant) {
  OpCase c = BaseCase(calls, y);
  const std::string of_gradient = absl::StrCat(calls.gradient, "_quant");
  if (quant) {
    AddQuantised(c, "y", {y.rows, y.cols}, DType::kE4M3, !c.perf);
    AddQuantised(c, calls.gradient, {y.rows, calls.parts * y.cols}, DType::kE5M2, !c.perf);
  }
  c.outputs = {{"y", "dy"}};
  c.inputs = {{calls.input, calls.gradient}};
  c.forward = [calls](const Exec& exec, const Buffers& b) {
    ActivationOutputs outputs;
    outputs.y = b["y"];
    outputs.y_quant = b.Quant("y_quant");
    HEARTH_RETURN_IF_ERROR(calls.forward(exec, b, outputs));
    outputs.y = TensorView();
    outputs.y_quant = b.Quant("y_alone");
    return outputs.y_quant.empty() ? absl::OkStatus() : calls.forward(exec, b, outputs);
  };
  c.backward = [calls, of_gradient](const Exec& exec, const Buffers& b) {
    HEARTH_RETURN_IF_ERROR(
        calls.backward(exec, b, {b[calls.gradient], b.Quant(of_gradient), {}, {}}));
    const QuantView alone = b.Quant(absl::StrCat(calls.gradient, "_alone"));
    return alone.empty() ? absl::OkStatus() : calls.backward(exec, b, {{}, alone, {}, {}});
  };
  c.forward_traffic = {calls.input, "y", "y_quant"};
  c.backward_traffic = {calls.input, "dy", calls.gradient, of_gradient};
  return c;
}

OpCase ActivationBlockCase(const ActivationCalls& calls,
                           const MatrixShape& y,
                           const BlockStyle& y_style,
                           const BlockStyle& gradient,
                           bool kept) {
  const int64_t N = y.rows;
  const int64_t width = calls.parts * y.cols;
  OpCase c = BaseCase(calls, y);
  c.cuda_only = c.perf;
  AddBlockForms(c, "y", N, y.cols, y_style);
  AddBlockForms(c, calls.gradient, N, width, gradient);
  if (kept) {
    AddKeptTwice(c, N, width);
  }
  const auto kept_at = [kept, N, width](const Buffers& b, const char* buffer) {
    return kept ? KeptAt(b[buffer].data, N, width) : KeptInput();
  };
  c.forward = [calls, y_style, kept_at](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "y", y_style,
                         [&](const TensorView& to, const BlockQuantView& blocks) {
                           ActivationOutputs outputs;
                           outputs.y = to;
                           outputs.y_blocks = blocks;
                           outputs.keep = kept_at(b, blocks.empty() ? "kept.without" : "kept");
                           return calls.forward(exec, b, outputs);
                         });
  };
  c.backward = [calls, gradient, kept_at](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, calls.gradient, gradient,
                         [&](const TensorView& to, const BlockQuantView& blocks) {
                           return calls.backward(exec, b, {to, {}, blocks, kept_at(b, "kept")});
                         });
  };
  c.forward_traffic = WithForms({calls.input}, "y");
  c.backward_traffic = WithForms({calls.input, "dy"}, calls.gradient);
  return c;
}

OpCase ActivationKeptCase(const ActivationCalls& calls, const MatrixShape& y) {
  const int64_t N = y.rows;
  const int64_t F = y.cols;
  const int64_t width = calls.parts * F;
  const std::string of_gradient = absl::StrCat(calls.gradient, "_quant");
  OpCase c = BaseCase(calls, y);
  c.cuda_only = c.perf;
  c.buffers.push_back({"y_again", {N, F}, Role::kOutput});
  AddKeptTwice(c, N, width);
  c.buffers.push_back(Quantised("y_rows", "y", {N, F}, calls.rows_dtype, false));
  if (!c.perf) {
    c.buffers.push_back(Quantised("y_alone", "y", {N, F}, calls.rows_dtype, false));
  }
  AddQuantised(c, "y_again", {N, F}, DType::kE4M3, false);
  AddQuantised(c, calls.gradient, {N, width}, calls.gradient_dtype, !c.perf);
  const auto keep = [calls, N, width](const Exec& exec, const Buffers& b, const TensorView& to,
                                      const char* rows, const char* kept) {
    ActivationOutputs outputs;
    outputs.y = to;
    outputs.y_quant = b.Quant(rows);
    outputs.keep = KeptAt(b[kept].data, N, width);
    return calls.forward(exec, b, outputs);
  };
  c.forward = [calls, keep, N, width, perf = c.perf](const Exec& exec, const Buffers& b) {
    if (perf) {
      return keep(exec, b, TensorView(), "y_rows", "kept");
    }
    HEARTH_RETURN_IF_ERROR(keep(exec, b, b["y"], "y_rows", "kept"));
    // Doubles are not quantised, so they have a plain output here too.
    const bool quantised = !b.Quant("y_alone").empty();
    HEARTH_RETURN_IF_ERROR(
        keep(exec, b, quantised ? TensorView() : b["y"], "y_alone", "kept.without"));
    ActivationOutputs outputs;
    outputs.y = b["y_again"];
    outputs.y_quant = b.Quant("y_again_quant");
    outputs.kept = KeptAt(b["kept"].data, N, width);
    return calls.forward(exec, b, outputs);
  };
  c.backward = [calls, of_gradient, N, width, perf = c.perf](const Exec& exec, const Buffers& b) {
    const KeptInput kept = KeptAt(b["kept"].data, N, width);
    if (perf) {
      return calls.backward(exec, b, {{}, b.Quant(of_gradient), {}, kept});
    }
    HEARTH_RETURN_IF_ERROR(
        calls.backward(exec, b, {b[calls.gradient], b.Quant(of_gradient), {}, kept}));
    const QuantView alone = b.Quant(absl::StrCat(calls.gradient, "_alone"));
    return alone.empty() ? absl::OkStatus() : calls.backward(exec, b, {{}, alone, {}, kept});
  };
  c.forward_traffic = {calls.input, "kept", "y_rows"};
  c.backward_traffic = {"kept", "dy", of_gradient};
  return c;
}

OpCase ActivationExtremesCase(const ActivationCalls& calls,
                              int64_t N,
                              int64_t F,
                              const std::function<double(const std::vector<double>&)>& want) {
  const int64_t width = calls.parts * F;
  OpCase c = NewCase(calls.op, absl::StrCat("kept_extremes_", N, "x", F));
  AddKeptExtremes(c, {calls.input, "y", N, width, calls.parts, want});
  c.buffers.push_back({"y_before", {N, F}, Role::kOutput});
  c.forward = [calls, N, width](const Exec& exec, const Buffers& b) {
    ActivationOutputs outputs;
    outputs.y = b["y_before"];
    outputs.keep = KeptAt(b["kept"].data, N, width);
    HEARTH_RETURN_IF_ERROR(calls.forward(exec, b, outputs));
    // y is made of what that call has kept.
    outputs.y = b["y"];
    outputs.kept = outputs.keep;
    outputs.keep = {};
    return calls.forward(exec, b, outputs);
  };
  return c;
}

}  // namespace hearth::kernels::harness
