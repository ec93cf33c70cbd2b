#include "worker/trainer/cli/step_floor.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "kernels/attention/attention.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"
#include "kernels/gemm/gemm.h"
#include "worker/trainer/recipe/numerics.h"

namespace hearth::trainer {
namespace {

using kernels::DType;
using kernels::TensorView;

// Device memory that is freed with its owner.
class Buffer {
 public:
  // Filled with a repeated piece of random values: BF16 in (-1, 1), or FP8 codes of like size.
  static absl::StatusOr<std::unique_ptr<Buffer>> Random(const kernels::Exec& exec,
                                                        size_t bytes,
                                                        bool fp8) {
    HEARTH_ASSIGN_OR_RETURN(void* const data, kernels::AllocateDevice(*exec.cuda, bytes));
    std::unique_ptr<Buffer> buffer(new Buffer(data));
    std::vector<uint8_t> piece(size_t{1} << 22);
    const kernels::RngKey key{7, kernels::RngPurpose::kTest, 0, 0, 0};
    for (size_t i = 0; i < piece.size(); i += 4) {
      uint32_t word = kernels::RngWord(key, i / 4);
      // BF16: exponent below that of 1. FP8: below the NaN codes.
      word = fp8 ? word & 0xB7B7B7B7 : (word & 0x807F807F) | 0x3F003F00;
      std::memcpy(&piece[i], &word, 4);
    }
    for (size_t at = 0; at < bytes; at += piece.size()) {
      HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, static_cast<uint8_t*>(data) + at, piece.data(),
                                           std::min(piece.size(), bytes - at)));
    }
    HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
    return buffer;
  }
  ~Buffer() { kernels::FreeDevice(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }

 private:
  explicit Buffer(void* data) : data_(data) {}
  void* data_;
};

// Median milliseconds of a call, from replays of a recorded row of them.
template <typename Call>
absl::StatusOr<double> Time(const kernels::Exec& exec, const Call& call) {
  constexpr int kCalls = 8;
  constexpr int kReplays = 9;
  HEARTH_RETURN_IF_ERROR(call());  // chooses plans
  HEARTH_RETURN_IF_ERROR(kernels::Graph::Begin(exec));
  absl::Status launched;
  for (int i = 0; i < kCalls && launched.ok(); ++i) {
    launched = call();
  }
  auto ended = kernels::Graph::End(exec, "recording a measurement");
  HEARTH_RETURN_IF_ERROR(launched);
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Graph> graph, std::move(ended));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Event> begin, kernels::Event::New(exec));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Event> end, kernels::Event::New(exec));
  std::vector<double> times;
  for (int i = 0; i < kReplays; ++i) {
    HEARTH_RETURN_IF_ERROR(begin->Record(exec));
    HEARTH_RETURN_IF_ERROR(graph->Launch(exec));
    HEARTH_RETURN_IF_ERROR(end->Record(exec));
    HEARTH_RETURN_IF_ERROR(end->Wait());
    times.push_back(end->MillisecondsSince(*begin) / kCalls);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

class FloorMeter {
 public:
  FloorMeter(const Engine& engine, bool quantised) : engine_(engine), quantised_(quantised) {}

  absl::StatusOr<StepFloor> Run() {
    const spec::PrecisionPlan& p = engine_.precision();
    const bool fp8 = quantised_ && p.quantised() && p.NeedsFp8Units() == p.recipe;
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

  // c [m, n] = a b, contracted over k.
  struct ProductShape {
    const char* what;
    int64_t m, n, k;
    DType a, b, c;
    bool transpose_a, transpose_b;
    bool fast;  // accumulation
  };

  absl::Status Product(const FloorLinear& linear, bool fp8, const ProductShape& product) {
    const auto [what, m, n, k, a, b, c, transpose_a, transpose_b, fast] = product;
    const kernels::Exec& exec = engine_.exec();
    HEARTH_ASSIGN_OR_RETURN(const auto left,
                            Buffer::Random(exec, kernels::DTypeBytes(a, m * k), fp8));
    HEARTH_ASSIGN_OR_RETURN(const auto right,
                            Buffer::Random(exec, kernels::DTypeBytes(b, n * k), fp8));
    HEARTH_ASSIGN_OR_RETURN(const auto result,
                            Buffer::Random(exec, kernels::DTypeBytes(c, m * n), false));
    HEARTH_ASSIGN_OR_RETURN(const auto scale, Buffer::Random(exec, 256, false));
    kernels::GemmArgs gemm;
    gemm.a =
        transpose_a ? TensorView(left->data(), a, {k, m}) : TensorView(left->data(), a, {m, k});
    gemm.b =
        transpose_b ? TensorView(right->data(), b, {n, k}) : TensorView(right->data(), b, {k, n});
    gemm.c = TensorView(result->data(), c, {m, n});
    gemm.transpose_a = transpose_a;
    gemm.transpose_b = transpose_b;
    gemm.round_c = c;
    gemm.fast_accumulation = fast;
    if (fp8) {
      gemm.scale_a = gemm.scale_b = static_cast<const float*>(scale->data());
    }
    HEARTH_ASSIGN_OR_RETURN(const double ms, Time(exec, [&] { return kernels::Gemm(exec, gemm); }));
    return Add(linear.name + " " + what, ms,
               2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
               linear.calls, true);
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
        Product(l, fp8, {"fprop", rows, out, in, x, x, n.fprop, false, true, fast}));
    HEARTH_RETURN_IF_ERROR(
        Product(l, fp8, {"dgrad", rows, in, out, dy, x, n.dgrad, false, fp8, false}));
    const DType gradient = n.Gradient(l.weight->gradient);
    return Product(l, fp8, {"wgrad", out, in, rows, dy, x, gradient, !fp8, fp8, false});
  }

  absl::Status Attention() {
    const kernels::Exec& exec = engine_.exec();
    const spec::ModelShape& s = engine_.shape();
    const int64_t rows = engine_.model_rows();
    const int64_t sequence = engine_.options().spec.data().sequence_length();
    const DType a = engine_.numerics().activation;
    const auto width = [&](int64_t cols) { return kernels::DTypeBytes(a, rows * cols); };
    HEARTH_ASSIGN_OR_RETURN(const auto qkv, Buffer::Random(exec, width(s.qkv_width()), false));
    HEARTH_ASSIGN_OR_RETURN(const auto d_qkv, Buffer::Random(exec, width(s.qkv_width()), false));
    HEARTH_ASSIGN_OR_RETURN(const auto out, Buffer::Random(exec, width(s.q_width()), false));
    HEARTH_ASSIGN_OR_RETURN(const auto d_out, Buffer::Random(exec, width(s.q_width()), false));
    HEARTH_ASSIGN_OR_RETURN(const auto lse,
                            Buffer::Random(exec, static_cast<size_t>(rows * s.heads) * 4, false));
    kernels::AttentionForwardArgs f;
    f.dims = {rows / sequence, sequence, s.heads, s.kv_heads, s.head_dim};
    f.qkv = TensorView(qkv->data(), a, {rows, s.qkv_width()});
    f.out = TensorView(out->data(), a, {rows, s.q_width()});
    f.lse = TensorView(lse->data(), DType::kF32, {rows / sequence, s.heads, sequence});
    f.round = a;
    kernels::AttentionBackwardArgs b;
    b.dims = f.dims;
    b.qkv = f.qkv;
    b.out = f.out;
    b.lse = f.lse;
    b.d_out = TensorView(d_out->data(), a, {rows, s.q_width()});
    b.d_qkv = TensorView(d_qkv->data(), a, {rows, s.qkv_width()});
    b.round = a;
    HEARTH_ASSIGN_OR_RETURN(const double forward,
                            Time(exec, [&] { return kernels::AttentionForward(exec, f); }));
    HEARTH_ASSIGN_OR_RETURN(const double backward,
                            Time(exec, [&] { return kernels::AttentionBackward(exec, b); }));
    // Causal: half of the square; two products forward, five backward.
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(sequence) / 2 *
                         static_cast<double>(s.q_width());
    HEARTH_RETURN_IF_ERROR(Add("attention forward", forward, 2 * flops, s.layers, false));
    return Add("attention backward", backward, 5 * flops, s.layers, false);
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
      linears.push_back({"head", &weight, 1, true});
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
    // "layers.3.qkv.weight"
    const std::vector<std::string> parts = absl::StrSplit(weight.name, '.');
    linears.push_back({parts[parts.size() - 2], &weight, 1, false});
  }
  return linears;
}

absl::StatusOr<StepFloor> MeasureFloor(const Engine& engine, bool quantised) {
  if (!engine.on_gpu()) {
    return absl::UnimplementedError("the floor is measured on a GPU alone");
  }
  return FloorMeter(engine, quantised).Run();
}

}  // namespace hearth::trainer
