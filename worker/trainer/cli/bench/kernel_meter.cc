#include "worker/trainer/cli/bench/kernel_meter.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"

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

// Bytes of a product's operands and result.
struct ProductBytes {
  explicit ProductBytes(const ProductShape& p)
      : left(kernels::DTypeBytes(p.a, p.m * p.k)),
        right(kernels::DTypeBytes(p.b, p.n * p.k)),
        result(kernels::DTypeBytes(p.c, p.m * p.n)) {}
  size_t left, right, result;
};

constexpr size_t kScaleBytes = 256;

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
  // From the host once; the rest doubles what is there.
  auto* const to = static_cast<uint8_t*>(data);
  size_t filled = std::min(piece.size(), bytes);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, to, piece.data(), filled));
  while (filled < bytes) {
    const size_t more = std::min(filled, bytes - filled);
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, to + filled, to, more));
    filled += more;
  }
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  kernels::FreeDevice(data_);
}

absl::StatusOr<TensorView> DeviceTensors::Random(const kernels::Exec& exec,
                                                 DType dtype,
                                                 std::initializer_list<int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    elements *= size;
  }
  HEARTH_ASSIGN_OR_RETURN(auto buffer,
                          DeviceBuffer::Random(exec, kernels::DTypeBytes(dtype, elements), false));
  const TensorView view(buffer->data(), dtype, shape);
  buffers_.push_back(std::move(buffer));
  return view;
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

absl::StatusOr<double> TimeProduct(const kernels::Exec& exec, const ProductShape& product) {
  HEARTH_ASSIGN_OR_RETURN(
      const ProductOperands operands,
      ProductOperands::For(exec, {product}, std::numeric_limits<double>::infinity()));
  const kernels::GemmArgs args = operands.ArgsOf(product);
  return TimeKernel(exec, [&] { return kernels::Gemm(exec, args); });
}

bool ProductOperands::Fits(const ProductShape& product, double bytes_most) {
  const ProductBytes bytes(product);
  return static_cast<double>(std::max({bytes.left, bytes.right, bytes.result})) <= bytes_most;
}

absl::StatusOr<ProductOperands> ProductOperands::For(const kernels::Exec& exec,
                                                     absl::Span<const ProductShape> products,
                                                     double bytes_most) {
  size_t left[2] = {0, 0};
  size_t right[2] = {0, 0};
  size_t result = 0;
  for (const ProductShape& product : products) {
    if (Fits(product, bytes_most)) {
      const ProductBytes bytes(product);
      const int fp8 = product.scaled ? 1 : 0;
      left[fp8] = std::max(left[fp8], bytes.left);
      right[fp8] = std::max(right[fp8], bytes.right);
      result = std::max(result, bytes.result);
    }
  }
  ProductOperands made;
  for (const int fp8 : {0, 1}) {
    if (left[fp8] > 0) {
      HEARTH_ASSIGN_OR_RETURN(made.left_[fp8], DeviceBuffer::Random(exec, left[fp8], fp8 == 1));
      HEARTH_ASSIGN_OR_RETURN(made.right_[fp8], DeviceBuffer::Random(exec, right[fp8], fp8 == 1));
    }
  }
  if (result > 0) {
    HEARTH_ASSIGN_OR_RETURN(made.result_, DeviceBuffer::Random(exec, result, false));
  }
  HEARTH_ASSIGN_OR_RETURN(made.scale_, DeviceBuffer::Random(exec, kScaleBytes, false));
  return made;
}

kernels::GemmArgs ProductOperands::ArgsOf(const ProductShape& p) const {
  const int fp8 = p.scaled ? 1 : 0;
  const auto view = [](const DeviceBuffer& buffer, DType dtype, int64_t rows, int64_t cols) {
    return TensorView(buffer.data(), dtype, {rows, cols});
  };
  kernels::GemmArgs gemm;
  gemm.a = p.transpose_a ? view(*left_[fp8], p.a, p.k, p.m) : view(*left_[fp8], p.a, p.m, p.k);
  gemm.b = p.transpose_b ? view(*right_[fp8], p.b, p.n, p.k) : view(*right_[fp8], p.b, p.k, p.n);
  gemm.c = view(*result_, p.c, p.m, p.n);
  gemm.transpose_a = p.transpose_a;
  gemm.transpose_b = p.transpose_b;
  gemm.round_c = p.c;
  gemm.fast_accumulation = p.fast;
  if (p.scaled) {
    gemm.scale_a = gemm.scale_b = static_cast<const float*>(scale_->data());
  }
  return gemm;
}

absl::StatusOr<AttentionCalls> AttentionCalls::Make(const kernels::Exec& exec,
                                                    const kernels::AttentionDims& dims,
                                                    DType format) {
  const int64_t rows = dims.batch * dims.sequence;
  const int64_t q_width = dims.heads * dims.head_dim;
  const int64_t qkv_width = q_width + 2 * dims.kv_heads * dims.head_dim;
  AttentionCalls calls;
  const auto random = [&](DType dtype, std::initializer_list<int64_t> shape) {
    return calls.tensors.Random(exec, dtype, shape);
  };
  kernels::AttentionForwardArgs f;
  f.dims = dims;
  HEARTH_ASSIGN_OR_RETURN(f.qkv, random(format, {rows, qkv_width}));
  HEARTH_ASSIGN_OR_RETURN(f.out, random(format, {rows, q_width}));
  HEARTH_ASSIGN_OR_RETURN(f.lse, random(DType::kF32, {dims.batch, dims.heads, dims.sequence}));
  f.round = format;
  kernels::AttentionBackwardArgs b;
  b.dims = dims;
  b.qkv = f.qkv;
  b.out = f.out;
  b.lse = f.lse;
  HEARTH_ASSIGN_OR_RETURN(b.d_out, random(format, {rows, q_width}));
  HEARTH_ASSIGN_OR_RETURN(b.d_qkv, random(format, {rows, qkv_width}));
  b.round = format;
  calls.forward = [&exec, f] { return kernels::AttentionForward(exec, f); };
  calls.backward = [&exec, b] { return kernels::AttentionBackward(exec, b); };
  return calls;
}

absl::StatusOr<AttentionTime> TimeAttention(const kernels::Exec& exec,
                                            const kernels::AttentionDims& dims,
                                            DType format) {
  HEARTH_ASSIGN_OR_RETURN(const AttentionCalls calls, AttentionCalls::Make(exec, dims, format));
  AttentionTime time;
  HEARTH_ASSIGN_OR_RETURN(time.forward_ms, TimeKernel(exec, calls.forward));
  HEARTH_ASSIGN_OR_RETURN(time.backward_ms, TimeKernel(exec, calls.backward));
  return time;
}

double AttentionProductFlops(const kernels::AttentionDims& dims) {
  return static_cast<double>(dims.batch * dims.sequence) * static_cast<double>(dims.sequence) *
         static_cast<double>(dims.heads * dims.head_dim);
}

}  // namespace hearth::trainer
