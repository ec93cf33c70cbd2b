// An op's door and the two versions behind it.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/exec.h"

// Declares an op: CanImplement for its arguments, which says what is wrong with them and launches
// nothing; its door; and the versions behind the door.
#define HEARTH_DECLARE_OP(op, Args)                    \
  absl::Status CanImplement(const Args& args);         \
  absl::Status op(const Exec& exec, const Args& args); \
  HEARTH_DECLARE_VERSIONS(op, const Args& args)

// Declares the versions that a door calls once it has checked the arguments: cpu::op and cuda::op,
// which take the Exec and the arguments that follow. A build without CUDA has no cuda::op.
#define HEARTH_DECLARE_VERSIONS(op, ...)          \
  namespace cpu {                                 \
  absl::Status op(const Exec& exec, __VA_ARGS__); \
  }                                               \
  namespace cuda {                                \
  absl::Status op(const Exec& exec, __VA_ARGS__); \
  }                                               \
  static_assert(true)

namespace hearth::kernels {

#ifdef HEARTH_WITH_CUDA
inline constexpr bool kBuiltWithCuda = true;
#else
inline constexpr bool kBuiltWithCuda = false;
#endif

// A door's last line: runs the version of exec's device. `op` is the op's name in error texts.
// Errors: what the version gives; those of RequireCpu and RequireCuda, as in a build without CUDA
// for every call that names a GPU.
template <auto kOnCpu, auto kOnCuda, typename... Args>
absl::Status RunOnDevice(const Exec& exec, const char* op, const Args&... args) {
  const bool on_gpu = exec.device == Device::kCuda;
  const absl::Status ready = on_gpu ? RequireCuda(exec, op) : RequireCpu(exec, op);
  if (!ready.ok()) {
    return ready;
  }
  if constexpr (kBuiltWithCuda) {
    if (on_gpu) {
      return kOnCuda(exec, args...);
    }
  }
  return kOnCpu(exec, args...);
}

}  // namespace hearth::kernels
