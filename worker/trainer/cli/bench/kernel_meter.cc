#include "worker/trainer/cli/bench/kernel_meter.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/time/clock.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"
#include "kernels/gemm/gemm.h"

namespace hearth::trainer {
namespace {

using kernels::DType;
using kernels::TensorView;

constexpr int kCalls = 8;
constexpr int kReplays = 9;

// A row of kCalls calls.
absl::StatusOr<std::unique_ptr<kernels::Graph>> Record(const kernels::Exec& exec,
                                                       const std::function<absl::Status()>& call) {
  HEARTH_RETURN_IF_ERROR(call());  // chooses plans
  HEARTH_RETURN_IF_ERROR(kernels::Graph::Begin(exec));
  absl::Status launched;
  for (int i = 0; i < kCalls && launched.ok(); ++i) {
    launched = call();
  }
  auto ended = kernels::Graph::End(exec, "recording a measurement");
  HEARTH_RETURN_IF_ERROR(launched);
  return ended;
}

// A product's buffers and its call.
struct Product {
  std::unique_ptr<DeviceBuffer> left, right, result, scale;
  kernels::GemmArgs gemm;

  static absl::StatusOr<Product> Make(const kernels::Exec& exec, const ProductShape& p) {
    Product made;
    HEARTH_ASSIGN_OR_RETURN(
        made.left, DeviceBuffer::Random(exec, kernels::DTypeBytes(p.a, p.m * p.k), p.scaled));
    HEARTH_ASSIGN_OR_RETURN(
        made.right, DeviceBuffer::Random(exec, kernels::DTypeBytes(p.b, p.n * p.k), p.scaled));
    HEARTH_ASSIGN_OR_RETURN(made.result,
                            DeviceBuffer::Random(exec, kernels::DTypeBytes(p.c, p.m * p.n), false));
    HEARTH_ASSIGN_OR_RETURN(made.scale, DeviceBuffer::Random(exec, 256, false));
    kernels::GemmArgs& gemm = made.gemm;
    const auto view = [](const DeviceBuffer& buffer, DType dtype, int64_t rows, int64_t cols) {
      return TensorView(buffer.data(), dtype, {rows, cols});
    };
    gemm.a = p.transpose_a ? view(*made.left, p.a, p.k, p.m) : view(*made.left, p.a, p.m, p.k);
    gemm.b = p.transpose_b ? view(*made.right, p.b, p.n, p.k) : view(*made.right, p.b, p.k, p.n);
    gemm.c = view(*made.result, p.c, p.m, p.n);
    gemm.transpose_a = p.transpose_a;
    gemm.transpose_b = p.transpose_b;
    gemm.round_c = p.c;
    gemm.fast_accumulation = p.fast;
    if (p.scaled) {
      gemm.scale_a = gemm.scale_b = static_cast<const float*>(made.scale->data());
    }
    return made;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceBuffer>> DeviceBuffer::Random(const kernels::Exec& exec,
                                                                   size_t bytes,
                                                                   bool fp8) {
  HEARTH_ASSIGN_OR_RETURN(void* const data, kernels::AllocateDevice(*exec.cuda, bytes));
  std::unique_ptr<DeviceBuffer> buffer(new DeviceBuffer(data));
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

DeviceBuffer::~DeviceBuffer() {
  kernels::FreeDevice(data_);
}

absl::StatusOr<double> TimeKernel(const kernels::Exec& exec,
                                  const std::function<absl::Status()>& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Graph> graph, Record(exec, call));
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

absl::StatusOr<double> WattsOf(const kernels::Exec& exec,
                               const std::function<absl::Status()>& call,
                               const std::function<double()>& joules,
                               double seconds) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Graph> graph, Record(exec, call));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  Clock& clock = Clock::Real();
  const absl::Duration start = clock.Monotonic();
  const double before = joules();
  const absl::Duration limit = absl::Seconds(seconds);
  while (clock.Monotonic() - start < limit) {
    HEARTH_RETURN_IF_ERROR(graph->Launch(exec));
    HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  }
  const double used = joules() - before;
  return used > 0 ? used / absl::ToDoubleSeconds(clock.Monotonic() - start) : 0;
}

absl::StatusOr<double> TimeProduct(const kernels::Exec& exec, const ProductShape& product) {
  HEARTH_ASSIGN_OR_RETURN(const Product made, Product::Make(exec, product));
  return TimeKernel(exec, [&] { return kernels::Gemm(exec, made.gemm); });
}

absl::StatusOr<double> TimeProduct(const kernels::Exec& exec,
                                   const ProductShape& product,
                                   const std::function<double()>& joules,
                                   double seconds,
                                   double& watts) {
  HEARTH_ASSIGN_OR_RETURN(const Product made, Product::Make(exec, product));
  const auto call = [&] { return kernels::Gemm(exec, made.gemm); };
  HEARTH_ASSIGN_OR_RETURN(watts, WattsOf(exec, call, joules, seconds));
  return TimeKernel(exec, call);
}

absl::StatusOr<AttentionTime> TimeAttention(const kernels::Exec& exec,
                                            const kernels::AttentionDims& dims,
                                            DType format,
                                            const std::function<double()>& joules,
                                            double seconds) {
  const int64_t rows = dims.batch * dims.sequence;
  const int64_t q_width = dims.heads * dims.head_dim;
  const int64_t qkv_width = q_width + 2 * dims.kv_heads * dims.head_dim;
  const auto random = [&](int64_t cols) {
    return DeviceBuffer::Random(exec, kernels::DTypeBytes(format, rows * cols), false);
  };
  HEARTH_ASSIGN_OR_RETURN(const auto qkv, random(qkv_width));
  HEARTH_ASSIGN_OR_RETURN(const auto d_qkv, random(qkv_width));
  HEARTH_ASSIGN_OR_RETURN(const auto out, random(q_width));
  HEARTH_ASSIGN_OR_RETURN(const auto d_out, random(q_width));
  HEARTH_ASSIGN_OR_RETURN(
      const auto lse,
      DeviceBuffer::Random(exec, static_cast<size_t>(rows * dims.heads) * 4, false));
  kernels::AttentionForwardArgs f;
  f.dims = dims;
  f.qkv = TensorView(qkv->data(), format, {rows, qkv_width});
  f.out = TensorView(out->data(), format, {rows, q_width});
  f.lse = TensorView(lse->data(), DType::kF32, {dims.batch, dims.heads, dims.sequence});
  f.round = format;
  kernels::AttentionBackwardArgs b;
  b.dims = dims;
  b.qkv = f.qkv;
  b.out = f.out;
  b.lse = f.lse;
  b.d_out = TensorView(d_out->data(), format, {rows, q_width});
  b.d_qkv = TensorView(d_qkv->data(), format, {rows, qkv_width});
  b.round = format;
  const auto backward = [&] { return kernels::AttentionBackward(exec, b); };
  AttentionTime time;
  HEARTH_ASSIGN_OR_RETURN(time.forward_ms,
                          TimeKernel(exec, [&] { return kernels::AttentionForward(exec, f); }));
  HEARTH_ASSIGN_OR_RETURN(time.backward_ms, TimeKernel(exec, backward));
  if (joules != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(time.watts, WattsOf(exec, backward, joules, seconds));
  }
  return time;
}

double AttentionProductFlops(const kernels::AttentionDims& dims) {
  return static_cast<double>(dims.batch * dims.sequence) * static_cast<double>(dims.sequence) *
         static_cast<double>(dims.heads * dims.head_dim);
}

}  // namespace hearth::trainer
