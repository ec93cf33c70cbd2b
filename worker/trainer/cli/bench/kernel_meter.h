// How long single kernels take on this GPU, each alone, on buffers of their own with random values:
// for the floor of a step (step_floor.h) and for `bench --calibrate`. Only on a GPU. Calls wait for
// the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"
#include "kernels/core/exec.h"

namespace hearth::trainer {

// Device memory that is freed with its owner.
class DeviceBuffer {
 public:
  // Filled with a repeated piece of random values: BF16 in (-1, 1), or FP8 codes of like size.
  static absl::StatusOr<std::unique_ptr<DeviceBuffer>> Random(const kernels::Exec& exec,
                                                              size_t bytes,
                                                              bool fp8);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() const { return data_; }

 private:
  explicit DeviceBuffer(void* data) : data_(data) {}
  void* data_;
};

// Median milliseconds of a call, from replays of a recorded row of them.
absl::StatusOr<double> TimeKernel(const kernels::Exec& exec,
                                  const std::function<absl::Status()>& call);

// Watts while the call is repeated for about `seconds`, from a counter of joules; 0 = it says
// nothing.
absl::StatusOr<double> WattsOf(const kernels::Exec& exec,
                               const std::function<absl::Status()>& call,
                               const std::function<double()>& joules,
                               double seconds);

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
// The same, and `watts` over about `seconds`.
absl::StatusOr<double> TimeProduct(const kernels::Exec& exec,
                                   const ProductShape& product,
                                   const std::function<double()>& joules,
                                   double seconds,
                                   double& watts);

struct AttentionTime {
  double forward_ms = 0;
  double backward_ms = 0;
  double watts = 0;  // of both, where it was asked for
};
// Activations in `format`, causal. `joules` null: no watts.
absl::StatusOr<AttentionTime> TimeAttention(const kernels::Exec& exec,
                                            const kernels::AttentionDims& dims,
                                            kernels::DType format,
                                            const std::function<double()>& joules = nullptr,
                                            double seconds = 0);
// FLOP of one of attention's products: half of the square. Forward has two, backward five.
double AttentionProductFlops(const kernels::AttentionDims& dims);

}  // namespace hearth::trainer
