#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/harness/cases.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace hearth::kernels::harness {
namespace {

constexpr double kLossScale = 0.37;

struct Shape {
  const char* name;
  int64_t N, C, V, V_padded, chunk;
  bool perf;
  bool cuda_only = false;
  int64_t samples = 0;  // from kSources sources; 0 = nothing is said about sources
};

// Samples of a case name one more, which is to be left out.
constexpr int64_t kSources = 3;

constexpr Shape kShapes[] = {
    {"1x1x1", 1, 1, 1, 1, 0, false},
    {"19x8x13", 19, 8, 13, 13, 0, false},
    {"padded_chunked_37x12x50", 37, 12, 50, 64, 8, false},
    {"long_rows_6x16x2500", 6, 16, 2500, 2560, 4, false},
    {"vectors_45x64x1001", 45, 64, 1001, 1024, 16, false},
    // On a GPU rows of several blocks: of as many as there are, and each with several rows.
    {"very_long_rows_5x8x151936", 5, 8, 151900, 151936, 0, false, true},
    {"shared_rows_150x8x65536", 150, 8, 65500, 65536, 0, false, true},
    {"sources_42x8x13", 42, 8, 13, 13, 10, false, false, 14},
    {"long_samples_2100x8x13", 2100, 8, 13, 16, 0, false, false, 2},
    {"perf_2048x512x32000", 2048, 512, 32000, 32000, 0, true},
    {"perf_36864x768x49152", 36864, 768, 49152, 49152, 0, true, true},
    {"perf_16384x1536x151936", 16384, 1536, 151936, 151936, 0, true, true},
    {"perf_sources_36864x768x49152", 36864, 768, 49152, 49152, 0, true, true, 18},
};

// Without gradients: those views stay empty.
LinearCrossEntropyArgs EvalArgs(const Shape& s, const Buffers& b) {
  LinearCrossEntropyArgs args;
  args.hidden = b["hidden"];
  args.weight = b["weight"];
  args.targets = b["targets"];
  args.loss_weight = b["loss_weight"];
  args.vocab = s.V;
  args.d_loss = kLossScale;
  args.nll = b["nll"];
  args.loss_sum = b["loss_sum"].as<double>();
  args.weight_sum = b["weight_sum"].as<double>();
  args.chunk = s.chunk;
  if (s.samples > 0) {
    args.source = b["source"];
    args.source_sums = b["source_sums"].as<double>();
    args.sources = kSources;
  }
  return args;
}

LinearCrossEntropyArgs TrainArgs(const Shape& s, const Buffers& b) {
  LinearCrossEntropyArgs args = EvalArgs(s, b);
  args.d_hidden = b["d_hidden"];
  args.d_weight = b["d_weight"];
  return args;
}

OpCase MakeCase(const Shape& s) {
  const Fill zero = {Fill::kConstant, 0.0, 0.0};
  OpCase c{.op = "linear_cross_entropy", .name = s.name, .perf = s.perf, .cuda_only = s.cuda_only};
  c.buffers = {{"hidden", {s.N, s.C}},
               {"weight", {s.V_padded, s.C}},
               Indices("targets", {s.N}, 0, s.V),
               {"loss_weight", {s.N}, Role::kInput, {Fill::kWeights, 0, 0}, DType::kU8},
               Statistic("nll", {s.N}),
               {"loss_sum", {1}, Role::kAccumulate, zero, DType::kF64},
               {"weight_sum", {1}, Role::kAccumulate, zero, DType::kF64},
               {"loss_scale", {1}, Role::kInput, {Fill::kConstant, kLossScale, 0}, DType::kF64},
               {"d_hidden", {s.N, s.C}, Role::kOutput},
               WeightGradient("d_weight", {s.V_padded, s.C})};
  if (s.samples > 0) {
    c.buffers.push_back(
        {"source", {s.samples}, Role::kInput, {Fill::kRamp, kSources + 1, 0}, DType::kI32});
    c.buffers.push_back({"source_sums", {kSources, 2}, Role::kAccumulate, zero, DType::kF64});
  }
  c.outputs = {{"loss_sum", "loss_scale"}};
  c.inputs = {{"hidden", "d_hidden"}, {"weight", "d_weight"}};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return LinearCrossEntropy(exec, EvalArgs(s, b));
  };
  c.backward = [s](const Exec& exec, const Buffers& b) {
    return LinearCrossEntropy(exec, TrainArgs(s, b));
  };
  c.workspace = [s](const Buffers& b, int) {
    return LinearCrossEntropyWorkspaceBytes(TrainArgs(s, b));
  };
  c.reduction = s.C + s.V;
  c.thread_invariant = false;
  c.forward_flops = 2.0 * static_cast<double>(s.N * s.C * s.V);
  c.backward_flops = 3.0 * c.forward_flops;  // the logits again, then two products
  return c;
}

// The FP8 head. All weights are 1 or 0: nothing of d_logits saturates.
struct QuantShape {
  const char* name;
  int64_t N, C, V, V_padded, chunk;
  bool perf;
  DType d_logits = DType::kE5M2;
};

constexpr QuantShape kQuantShapes[] = {
    {"fp8_32x16x40", 32, 16, 40, 48, 0, false},
    {"fp8_chunked_176x48x1000", 176, 48, 1000, 1024, 80, false},
    {"fp8_e4m3_gradient_48x32x200", 48, 32, 200, 256, 0, false, DType::kE4M3},
    {"fp8_perf_36864x768x49152", 36864, 768, 49152, 49152, 0, true},
};
constexpr double kHiddenScale = 0.004;
constexpr double kWeightScale = 0.003;

// Codes of normal values, by rows and by columns.
std::pair<std::string, std::string> Codes(uint32_t tensor, int64_t rows, int64_t cols) {
  std::string by_rows(static_cast<size_t>(rows * cols), 0);
  std::string by_columns = by_rows;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const RngKey key = {kSeed, RngPurpose::kTest, 0, 2, tensor};
      const char code = static_cast<char>(EncodeE4m3(
          100.0F * static_cast<float>(RngNormal(key, static_cast<uint64_t>(r * cols + c)))));
      by_rows[static_cast<size_t>(r * cols + c)] = code;
      by_columns[static_cast<size_t>(c * rows + r)] = code;
    }
  }
  return {std::move(by_rows), std::move(by_columns)};
}

LinearCrossEntropyArgs QuantArgs(const QuantShape& s, const Buffers& b) {
  LinearCrossEntropyArgs args = TrainArgs({s.name, s.N, s.C, s.V, s.V_padded, s.chunk, false}, b);
  args.accumulate = false;
  args.hidden = b["d_hidden"];  // shape and dtype alone count
  args.weight = TensorView(b["weight_rows"].data, args.hidden.dtype, {s.V_padded, s.C});
  args.quant.hidden_rows = b["hidden_rows"];
  args.quant.hidden_columns = b["hidden_columns"];
  args.quant.weight_rows = b["weight_rows"];
  args.quant.weight_columns = b["weight_columns"];
  args.quant.hidden_scale = b["hidden_scale"].as<float>();
  args.quant.weight_scale = b["weight_scale"].as<float>();
  args.quant.d_logits = s.d_logits;
  return args;
}

// ||got - want|| / ||want||.
double RelativeError(const std::vector<double>& got, const std::vector<double>& want) {
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

// The head of the decoded operands in double, without quantising d_logits: E5M2 keeps 2 fraction
// bits of them, an error of up to 1/8 of each and about 1/16 of their norm; E4M3 one bit more.
std::string CheckQuantHead(const QuantShape& s, const Buffers& b) {
  const std::vector<double> x = b.Values("hidden_rows");
  const std::vector<double> w = b.Values("weight_rows");
  const std::vector<double> targets = b.Values("targets");
  const std::vector<double> loss_weight = b.Values("loss_weight");
  std::vector<double> d_hidden(static_cast<size_t>(s.N * s.C));
  std::vector<double> d_weight(static_cast<size_t>(s.V_padded * s.C));
  double loss = 0.0;
  std::vector<double> p(static_cast<size_t>(s.V));
  for (int64_t n = 0; n < s.N; ++n) {
    if (loss_weight[static_cast<size_t>(n)] == 0.0) {
      continue;
    }
    double total = 0.0;
    for (int64_t v = 0; v < s.V; ++v) {
      double logit = 0.0;
      for (int64_t c = 0; c < s.C; ++c) {
        logit += x[static_cast<size_t>(n * s.C + c)] * w[static_cast<size_t>(v * s.C + c)];
      }
      p[static_cast<size_t>(v)] = std::exp(logit * kHiddenScale * kWeightScale);
      total += p[static_cast<size_t>(v)];
    }
    const size_t target = static_cast<size_t>(targets[static_cast<size_t>(n)]);
    loss -= std::log(p[target] / total);
    for (int64_t v = 0; v < s.V; ++v) {
      const double hot = static_cast<size_t>(v) == target ? 1.0 : 0.0;
      const double d = kLossScale * (p[static_cast<size_t>(v)] / total - hot);
      for (int64_t c = 0; c < s.C; ++c) {
        const size_t at_x = static_cast<size_t>(n * s.C + c);
        const size_t at_w = static_cast<size_t>(v * s.C + c);
        d_hidden[at_x] += d * w[at_w] * kWeightScale;
        d_weight[at_w] += d * x[at_x] * kHiddenScale;
      }
    }
  }
  const double off_loss = std::fabs(b.Get("loss_sum", 0) / 2.0 - loss) / loss;
  const double off_hidden = RelativeError(b.Values("d_hidden"), d_hidden);
  const double off_weight = RelativeError(b.Values("d_weight"), d_weight);
  return off_loss < 0x1p-8 && off_hidden < 0.1 && off_weight < 0.1
             ? ""
             : absl::StrCat("relative errors: loss ", off_loss, ", d_hidden ", off_hidden,
                            ", d_weight ", off_weight);
}

BufferSpec Fp8(std::string name, std::vector<int64_t> shape, std::string contents) {
  BufferSpec spec = {std::move(name), std::move(shape)};
  spec.dtype = DType::kE4M3;
  spec.contents = std::move(contents);
  return spec;
}

OpCase QuantCase(const QuantShape& s) {
  const Fill zero = {Fill::kConstant, 0.0, 0.0};
  const auto hidden = s.perf ? std::pair<std::string, std::string>() : Codes(1, s.N, s.C);
  const auto weight = s.perf ? std::pair<std::string, std::string>() : Codes(2, s.V_padded, s.C);
  OpCase c{.op = "linear_cross_entropy", .name = s.name, .perf = s.perf, .cuda_only = s.perf};
  c.buffers = {
      Fp8("hidden_rows", {s.N, s.C}, hidden.first),
      Fp8("hidden_columns", {s.C, s.N}, hidden.second),
      Fp8("weight_rows", {s.V_padded, s.C}, weight.first),
      Fp8("weight_columns", {s.C, s.V_padded}, weight.second),
      {"hidden_scale", {1}, Role::kInput, {Fill::kConstant, kHiddenScale, 0}, DType::kU8},
      {"weight_scale", {1}, Role::kInput, {Fill::kConstant, kWeightScale, 0}, DType::kU8},
      Indices("targets", {s.N}, 0, s.V),
      {"loss_weight", {s.N}, Role::kInput, {Fill::kSteps, 2, 1}, DType::kU8},  // 0, 1, 0, 1, ...
      Statistic("nll", {s.N}),
      {"loss_sum", {1}, Role::kAccumulate, zero, DType::kF64},
      {"weight_sum", {1}, Role::kAccumulate, zero, DType::kF64},
      {"d_hidden", {s.N, s.C}, Role::kOutput},
      WeightGradient("d_weight", {s.V_padded, s.C}, Role::kOutput)};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    LinearCrossEntropyArgs args = QuantArgs(s, b);
    args.d_hidden = TensorView();
    args.d_weight = TensorView();
    return LinearCrossEntropy(exec, args);
  };
  c.backward = [s](const Exec& exec, const Buffers& b) {
    return LinearCrossEntropy(exec, QuantArgs(s, b));
  };
  c.workspace = [s](const Buffers& b, int) {
    return LinearCrossEntropyWorkspaceBytes(QuantArgs(s, b));
  };
  c.check = [s](const Buffers& b) { return CheckQuantHead(s, b); };
  c.double_reference = false;
  c.thread_invariant = false;
  c.forward_flops = 2.0 * static_cast<double>(s.N * s.C * s.V);
  c.backward_flops = 3.0 * c.forward_flops;
  return c;
}

OpCase LogitsCase() {
  OpCase c{.op = "linear_cross_entropy", .name = "logits_3x12x50"};
  c.buffers = {{"hidden", {3, 12}}, {"weight", {64, 12}}, {"logits", {3, 50}, Role::kOutput}};
  c.forward = [](const Exec& exec, const Buffers& b) {
    LinearLogitsArgs args;
    args.hidden = b["hidden"];
    args.weight = b["weight"];
    args.logits = b["logits"];
    return LinearLogits(exec, args);
  };
  c.workspace = [](const Buffers& b, int) {
    return LinearLogitsWorkspaceBytes({b["hidden"], b["weight"], b["logits"]});
  };
  c.reduction = 12;
  c.thread_invariant = false;
  return c;
}

}  // namespace

std::vector<OpCase> LinearCrossEntropyCases() {
  std::vector<OpCase> cases = CasesOf(kShapes, MakeCase, kQuantShapes, QuantCase);
  cases.push_back(LogitsCase());
  return cases;
}

}  // namespace hearth::kernels::harness
