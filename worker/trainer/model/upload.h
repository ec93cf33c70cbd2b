// Fills tensors with values that host threads make.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "kernels/cuda/device.h"

namespace hearth::trainer {

// On a GPU the values pass through a few pinned buffers, so that threads make the next ones while
// those before are copied. Used by one thread at a time.
class Upload {
 public:
  // Elements [first, first + out.size()) of a tensor. Depends only on the element; called from
  // several threads at a time.
  using Values = std::function<absl::Status(int64_t first, absl::Span<float> out)>;

  // `exec` is copied; its stream outlives the object. kResourceExhausted: no pinned memory.
  static absl::StatusOr<std::unique_ptr<Upload>> New(const kernels::Exec& exec);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Every element of `tensor` (contiguous; any floating type) from fp32, rounded to nearest even.
  // On a GPU it is there when the stream gets there. Errors: those of `values`, the copy's.
  absl::Status Write(const kernels::TensorView& tensor, const Values& values);

 private:
  struct Slot {
    void* data = nullptr;                    // pinned
    std::unique_ptr<kernels::Event> copied;  // what was sent from it last
  };
  explicit Upload(const kernels::Exec& exec) : exec_(exec) {}
  absl::Status Make(const kernels::TensorView& tensor,
                    int64_t first,
                    int64_t count,
                    const Values& values,
                    void* out) const;

  const kernels::Exec exec_;
  std::array<Slot, 3> slots_;
  size_t next_ = 0;
};

}  // namespace hearth::trainer
