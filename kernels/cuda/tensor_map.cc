#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include "absl/strings/str_cat.h"

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

absl::Status MakeTensorMap(const MatrixBoxes& matrix, CUtensorMap& map) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) {
    return absl::UnavailableError("the driver has no cuTensorMapEncodeTiled");
  }
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(matrix.cols),
                                 static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t pitch[1] = {static_cast<cuuint64_t>(matrix.pitch) * 2};
  const cuuint32_t box[2] = {matrix.box_cols, matrix.box_rows};
  const cuuint32_t steps[2] = {1, 1};
  // The swizzle is as wide as a row of the box: 32 bf16 are 64 bytes, 64 are 128.
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix.data), extents,
             pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             matrix.box_cols == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuTensorMapEncodeTiled: error ", static_cast<int>(result), " for a matrix [",
                     matrix.rows, ", ", matrix.cols, "] of pitch ", matrix.pitch));
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels::cuda
