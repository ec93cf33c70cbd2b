#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hearth::kernels::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// Found through the runtime, so that nothing links the driver.
Encode FindEncode() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                             12000, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<Encode>(entry)
             : nullptr;
}

}  // namespace

absl::Status MakeTensorMap(const TensorBoxes& tensor, CUtensorMap& map) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) {
    return absl::UnavailableError("the driver has no cuTensorMapEncodeTiled");
  }
  const std::array<cuuint32_t, kMostDimensions> steps = {1, 1, 1, 1, 1};
  std::array<cuuint64_t, kMostDimensions> extents = {};
  std::copy(tensor.extents.begin(), tensor.extents.end(), extents.begin());
  std::array<cuuint64_t, kMostDimensions - 1> pitches = {};
  std::copy(tensor.pitches.begin(), tensor.pitches.end(), pitches.begin());
  // The swizzle is as wide as a row of the box.
  const uint32_t row_bytes = tensor.box[0] * static_cast<uint32_t>(tensor.element_bytes);
  const CUresult result = encode(
      &map,
      tensor.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8,
      static_cast<cuuint32_t>(tensor.rank), const_cast<void*>(tensor.data), extents.data(),
      pitches.data(), tensor.box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    const auto listed = [&](const auto& values, int count) {
      return absl::StrJoin(values.begin(), values.begin() + count, " x ");
    };
    return absl::InvalidArgumentError(absl::StrCat(
        "cuTensorMapEncodeTiled: error ", static_cast<int>(result), " for a tensor of ",
        listed(extents, tensor.rank), " with pitches of ", listed(pitches, tensor.rank - 1),
        " bytes in boxes of ", listed(tensor.box, tensor.rank)));
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels::cuda
