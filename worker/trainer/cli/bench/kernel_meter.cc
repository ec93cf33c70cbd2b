#include "worker/trainer/cli/bench/kernel_meter.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"
#include "kernels/formats/span.h"

namespace hearth::trainer {
namespace {

using kernels::DType;
using kernels::TensorView;

constexpr int kCalls = 8;
constexpr int kReplays = 9;
constexpr size_t kPieceValues = size_t{1} << 20;

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

// Which of ProductOperands' buffers an operand lies in.
constexpr DType kOperandTypes[] = {DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kF32};
static_assert(std::size(kOperandTypes) == ProductOperands::kTypes);
size_t OperandIndex(DType dtype) {
  return static_cast<size_t>(std::find(std::begin(kOperandTypes), std::end(kOperandTypes), dtype) -
                             std::begin(kOperandTypes));
}

// Normal numbers, as activations, weights and gradients are: the power of a product, and with it
// its clock, depends on which bits of its operands change. FP8 has the scale that a recipe gives:
// the largest number becomes the largest of the format.
std::vector<uint8_t> MakePiece(DType dtype) {
  std::vector<float> values(kPieceValues);
  kernels::FillNormal({7, kernels::RngPurpose::kTest, 0, 0, 0}, 0, 0.0, 1.0, values.data(),
                      static_cast<int64_t>(kPieceValues));
  if (dtype == DType::kE4M3 || dtype == DType::kE5M2) {
    float largest = 0;
    for (const float value : values) {
      largest = std::max(largest, std::fabs(value));
    }
    for (float& value : values) {
      value *= kernels::MaxFinite(dtype) / largest;
    }
  }
  std::vector<uint8_t> piece(kernels::DTypeBytes(dtype, static_cast<int64_t>(kPieceValues)));
  kernels::EncodeSpan(values.data(), static_cast<int64_t>(kPieceValues), dtype, piece.data());
  return piece;
}

// Made once: buffers are many.
const std::vector<uint8_t>& PieceOf(DType dtype) {
  static auto& pieces = *new std::map<DType, std::vector<uint8_t>>;
  const auto [it, made] = pieces.try_emplace(dtype);
  if (made) {
    it->second = MakePiece(dtype);
  }
  return it->second;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceBuffer>> DeviceBuffer::Random(const kernels::Exec& exec,
                                                                   size_t bytes,
                                                                   DType dtype) {
  HEARTH_ASSIGN_OR_RETURN(void* const data, kernels::AllocateDevice(*exec.cuda, bytes));
  std::unique_ptr<DeviceBuffer> buffer(new DeviceBuffer(data));
  const std::vector<uint8_t>& piece = PieceOf(dtype);
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
                          DeviceBuffer::Random(exec, kernels::DTypeBytes(dtype, elements), dtype));
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
  size_t left[std::size(kOperandTypes)] = {};
  size_t right[std::size(kOperandTypes)] = {};
  size_t result = 0;
  for (const ProductShape& product : products) {
    if (Fits(product, bytes_most)) {
      const ProductBytes bytes(product);
      size_t& of_a = left[OperandIndex(product.a)];
      size_t& of_b = right[OperandIndex(product.b)];
      of_a = std::max(of_a, bytes.left);
      of_b = std::max(of_b, bytes.right);
      result = std::max(result, bytes.result);
    }
  }
  ProductOperands made;
  for (size_t i = 0; i < std::size(kOperandTypes); ++i) {
    for (const auto& [bytes, buffer] :
         {std::pair(left[i], &made.left_[i]), std::pair(right[i], &made.right_[i])}) {
      if (bytes > 0) {
        HEARTH_ASSIGN_OR_RETURN(*buffer, DeviceBuffer::Random(exec, bytes, kOperandTypes[i]));
      }
    }
  }
  if (result > 0) {
    HEARTH_ASSIGN_OR_RETURN(made.result_, DeviceBuffer::Random(exec, result, DType::kBF16));
  }
  constexpr float kOne = 1.0F;
  HEARTH_ASSIGN_OR_RETURN(made.scale_, DeviceBuffer::Random(exec, sizeof(kOne), DType::kF32));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, made.scale_->data(), &kOne, sizeof(kOne)));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec));
  return made;
}

kernels::GemmArgs ProductOperands::ArgsOf(const ProductShape& p) const {
  const DeviceBuffer& left = *left_[OperandIndex(p.a)];
  const DeviceBuffer& right = *right_[OperandIndex(p.b)];
  const auto view = [](const DeviceBuffer& buffer, DType dtype, int64_t rows, int64_t cols) {
    return TensorView(buffer.data(), dtype, {rows, cols});
  };
  kernels::GemmArgs gemm;
  gemm.a = p.transpose_a ? view(left, p.a, p.k, p.m) : view(left, p.a, p.m, p.k);
  gemm.b = p.transpose_b ? view(right, p.b, p.n, p.k) : view(right, p.b, p.k, p.n);
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
