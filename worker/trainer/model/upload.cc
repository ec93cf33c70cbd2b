#include "worker/trainer/model/upload.h"

#include <algorithm>
#include <vector>

#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/io/checksum.h"
#include "common/io/chunk_threads.h"
#include "kernels/round/round.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;

namespace {

constexpr int64_t kSlotElements = int64_t{8} << 20;
// Made by one thread at a time.
constexpr int64_t kPieceElements = int64_t{1} << 18;

}  // namespace

absl::StatusOr<std::unique_ptr<Upload>> Upload::New(const kernels::Exec& exec) {
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.upload"));
  std::unique_ptr<Upload> upload(new Upload(exec));
  if (exec.device == kernels::Device::kCuda) {
    for (Slot& slot : upload->slots_) {
      HEARTH_ASSIGN_OR_RETURN(
          slot.data, kernels::AllocatePinned(static_cast<size_t>(kSlotElements) * sizeof(float)));
      HEARTH_ASSIGN_OR_RETURN(slot.copied, kernels::Event::New(exec, kernels::Event::Use::kOrder));
    }
  }
  return upload;
}

Upload::~Upload() {
  for (Slot& slot : slots_) {
    if (slot.copied != nullptr) {
      slot.copied->Wait().IgnoreError();  // the copy still reads it
    }
    if (slot.data != nullptr) {
      kernels::FreePinned(slot.data);
    }
  }
}

// `out` begins with element `first` in the tensor's type.
absl::Status Upload::Make(
    const TensorView& tensor, int64_t first, int64_t count, const Values& values, void* out) const {
  const int64_t pieces = (count + kPieceElements - 1) / kPieceElements;
  const int threads = exec_.device == kernels::Device::kCuda
                          ? std::max(exec_.threads, FileThreads())
                          : exec_.threads;
  return ForEachChunk(pieces, threads, [&](int64_t piece) -> absl::Status {
    const int64_t begin = piece * kPieceElements;
    const int64_t n = std::min(count - begin, kPieceElements);
    if (tensor.dtype == DType::kF32) {
      return values(first + begin,
                    absl::MakeSpan(static_cast<float*>(out) + begin, static_cast<size_t>(n)));
    }
    std::vector<float> wide(static_cast<size_t>(n));
    HEARTH_RETURN_IF_ERROR(values(first + begin, absl::MakeSpan(wide)));
    if (tensor.dtype == DType::kU8) {  // codes, which are whole numbers
      std::transform(wide.begin(), wide.end(), static_cast<uint8_t*>(out) + begin,
                     [](float code) { return static_cast<uint8_t>(code); });
      return absl::OkStatus();
    }
    kernels::RoundToArgs round;
    round.x = TensorView(wide.data(), DType::kF32, {n});
    round.y =
        TensorView(static_cast<void*>(static_cast<uint8_t*>(out) + DTypeBytes(tensor.dtype, begin)),
                   tensor.dtype, {n});
    round.to = tensor.dtype;
    return kernels::RoundTo(kernels::Exec(), round);
  });
}

absl::Status Upload::Write(const TensorView& tensor, const Values& values) {
  const int64_t elements = tensor.numel();
  if (exec_.device == kernels::Device::kCpu) {
    return Make(tensor, 0, elements, values, tensor.data);
  }
  for (int64_t first = 0; first < elements; first += kSlotElements) {
    const int64_t count = std::min(kSlotElements, elements - first);
    // While one slot is on its way to the device the host fills the next.
    Slot& slot = slots_[next_++ % slots_.size()];
    HEARTH_RETURN_IF_ERROR(slot.copied->Wait());
    HEARTH_RETURN_IF_ERROR(Make(tensor, first, count, values, slot.data));
    HEARTH_RETURN_IF_ERROR(
        kernels::Copy(exec_, tensor.as<uint8_t>() + DTypeBytes(tensor.dtype, first), slot.data,
                      static_cast<size_t>(DTypeBytes(tensor.dtype, count))));
    HEARTH_RETURN_IF_ERROR(slot.copied->Record(exec_));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
