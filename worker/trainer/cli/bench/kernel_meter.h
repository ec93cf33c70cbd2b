// How long single kernels take on this GPU, each alone, on buffers of their own with random values:
// for the floor of a step (step_floor.h) and for `bench --calibrate`. Only on a GPU. Calls wait for
// the stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "kernels/core/exec.h"
#include "kernels/gemm/gemm.h"

namespace hearth::trainer {

// Device memory that is freed with its owner.
class DeviceBuffer {
 public:
  // Filled with a repeated piece of normal numbers: kBF16 and kF32 of deviation 1, FP8 with a
  // scale.
  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Random(const kernels::Exec& exec,
                                                              size_t bytes,
                                                              kernels::DType dtype);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() const { return data_; }

 private:
  explicit DeviceBuffer(void* data) : data_(data) {}
  void* data_;
};

// Tensors of random values, freed together.
class DeviceTensors {
 public:
  absl::StatusOr<kernels::TensorView> Random(const kernels::Exec& exec,
                                             kernels::DType dtype,
                                             std::initializer_list<int64_t> shape);

 private:
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

// Median milliseconds of a call, from replays of a recorded row of them.
absl::StatusOr<double> TimeKernel(const kernels::Exec& exec,
                                  const std::function<absl::Status()>& call);

// c [m, n] = a b, contracted over k. `scaled`: FP8 operands with one scale each.
struct ProductShape {
  int64_t m, n, k;
  kernels::DType a, b, c;
  bool transpose_a, transpose_b;
  bool scaled;
  bool fast;  // accumulation

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};
absl::StatusOr<double> TimeProduct(const kernels::Exec& exec, const ProductShape& product);

// Operands for products one after the other, without a pause to make them: each buffer is as large
// as the largest that needs it, and the products share them.
class ProductOperands {
 public:
  static constexpr size_t kTypes = 4;

  // Shapes with a buffer of more than `bytes_most` are not counted: Fits says so.
  static absl::StatusOr<ProductOperands> For(const kernels::Exec& exec,
                                             absl::Span<const ProductShape> products,
                                             double bytes_most);
  static bool Fits(const ProductShape& product, double bytes_most);
  kernels::GemmArgs ArgsOf(const ProductShape& product) const;

 private:
  // By the operands' type: random values of one are none of another.
  std::array<std::unique_ptr<DeviceBuffer>, kTypes> left_, right_;
  std::unique_ptr<DeviceBuffer> result_, scale_;
};

// Causal attention on buffers of its own, activations in `format`.
struct AttentionCalls {
  DeviceTensors tensors;
  std::function<absl::Status()> forward, backward;

  // `exec` outlives the calls.
  static absl::StatusOr<AttentionCalls> Make(const kernels::Exec& exec,
                                             const kernels::AttentionDims& dims,
                                             kernels::DType format);
};

struct AttentionTime {
  double forward_ms = 0;
  double backward_ms = 0;
};
absl::StatusOr<AttentionTime> TimeAttention(const kernels::Exec& exec,
                                            const kernels::AttentionDims& dims,
                                            kernels::DType format);
// FLOP of one of attention's products: half of the square. Forward has two, backward five.
double AttentionProductFlops(const kernels::AttentionDims& dims);

}  // namespace hearth::trainer
