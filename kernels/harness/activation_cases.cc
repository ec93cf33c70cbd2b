#include "kernels/harness/activation_cases.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/harness/kept_extremes.h"

namespace hearth::kernels::harness {
namespace {

// The buffers that every case but that of extremes has.
OpCase NewCase(const ActivationCalls& calls, const char* name, int64_t N, int64_t F, bool perf) {
  OpCase c{.op = calls.op, .name = name, .perf = perf};
  c.buffers = {
      {calls.input, {N, calls.parts * F}, Role::kInput, {Fill::kNormal, 0.0, calls.spread}},
      {"y", {N, F}, Role::kOutput},
      {"dy", {N, F}},
      {calls.gradient, {N, calls.parts * F}, Role::kOutput}};
  c.buffers.insert(c.buffers.end(), calls.parameters.begin(), calls.parameters.end());
  return c;
}

}  // namespace

OpCase ActivationCase(
    const ActivationCalls& calls, const char* name, int64_t N, int64_t F, bool quant, bool perf) {
  OpCase c = NewCase(calls, name, N, F, perf);
  const std::string of_gradient = absl::StrCat(calls.gradient, "_quant");
  if (quant) {
    AddQuantised(c, "y", {N, F}, DType::kE4M3, !perf);
    AddQuantised(c, calls.gradient, {N, calls.parts * F}, DType::kE5M2, !perf);
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
                           const char* name,
                           int64_t N,
                           int64_t F,
                           const BlockStyle& y,
                           const BlockStyle& gradient,
                           bool kept,
                           bool perf) {
  const int64_t width = calls.parts * F;
  OpCase c = NewCase(calls, name, N, F, perf);
  c.cuda_only = perf;
  AddBlockForms(c, "y", N, F, y);
  AddBlockForms(c, calls.gradient, N, width, gradient);
  if (kept) {
    AddKeptTwice(c, N, width);
  }
  const auto kept_at = [kept, N, width](const Buffers& b, const char* buffer) {
    return kept ? KeptAt(b[buffer].data, N, width) : KeptInput();
  };
  c.forward = [calls, y, kept_at](const Exec& exec, const Buffers& b) {
    return RunWithBlocks(exec, b, "y", y, [&](const TensorView& to, const BlockQuantView& blocks) {
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

OpCase ActivationKeptCase(
    const ActivationCalls& calls, const char* name, int64_t N, int64_t F, bool perf) {
  const int64_t width = calls.parts * F;
  const std::string of_gradient = absl::StrCat(calls.gradient, "_quant");
  OpCase c = NewCase(calls, name, N, F, perf);
  c.cuda_only = perf;
  c.buffers.push_back({"y_again", {N, F}, Role::kOutput});
  c.buffers.push_back(KeptWords("kept", N, width));
  c.buffers.push_back(Quantised("y_rows", "y", {N, F}, DType::kE4M3, false));
  AddQuantised(c, "y_again", {N, F}, DType::kE4M3, false);
  AddQuantised(c, calls.gradient, {N, width}, DType::kE5M2, false);
  c.forward = [calls, N, width, perf](const Exec& exec, const Buffers& b) {
    ActivationOutputs outputs;
    outputs.y = perf ? TensorView() : b["y"];
    outputs.y_quant = b.Quant("y_rows");
    outputs.keep = KeptAt(b["kept"].data, N, width);
    HEARTH_RETURN_IF_ERROR(calls.forward(exec, b, outputs));
    outputs.y = b["y_again"];
    outputs.y_quant = b.Quant("y_again_quant");
    outputs.kept = outputs.keep;
    outputs.keep = {};
    return perf ? absl::OkStatus() : calls.forward(exec, b, outputs);
  };
  c.backward = [calls, of_gradient, N, width, perf](const Exec& exec, const Buffers& b) {
    return calls.backward(exec, b,
                          {perf ? TensorView() : b[calls.gradient],
                           b.Quant(of_gradient),
                           {},
                           KeptAt(b["kept"].data, N, width)});
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
  OpCase c{.op = calls.op, .name = absl::StrCat("kept_extremes_", N, "x", F)};
  AddKeptExtremes(c, calls.input, "y", N, width, calls.parts, want);
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
