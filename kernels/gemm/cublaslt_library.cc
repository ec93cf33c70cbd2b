#include "kernels/gemm/cublaslt_library.h"

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "kernels/cuda/device_error.h"
#include "kernels/cuda/library.h"

namespace hearth::kernels {
namespace {

template <typename Function>
absl::Status Find(const Library& library, const char* name, Function& function) {
  HEARTH_ASSIGN_OR_RETURN(void* const symbol, library.Symbol(name));
  function = reinterpret_cast<Function>(symbol);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CublasLt> CublasLt::Load() {
  std::vector<std::string> names = {"libcublasLt.so.13"};
  if (const char* given = GetEnv("HEARTH_CUBLASLT"); given != nullptr) {
    names = {given};
  }
  HEARTH_ASSIGN_OR_RETURN(const Library library, Library::Open(names));
  CublasLt lt = {};
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtCreate", lt.Create));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtDestroy", lt.Destroy));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtGetVersion", lt.GetVersion));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtGetStatusName", lt.GetStatusName));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatmul", lt.Matmul));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoCheck", lt.AlgoCheck));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatmulAlgoGetHeuristic", lt.AlgoGetHeuristic));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescCreate", lt.DescCreate));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescDestroy", lt.DescDestroy));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatmulDescSetAttribute", lt.DescSetAttribute));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceCreate", lt.PreferenceCreate));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatmulPreferenceDestroy", lt.PreferenceDestroy));
  HEARTH_RETURN_IF_ERROR(
      Find(library, "cublasLtMatmulPreferenceSetAttribute", lt.PreferenceSetAttribute));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutCreate", lt.LayoutCreate));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutDestroy", lt.LayoutDestroy));
  HEARTH_RETURN_IF_ERROR(Find(library, "cublasLtMatrixLayoutSetAttribute", lt.LayoutSetAttribute));
  if (lt.GetVersion() < 130000) {
    return absl::UnavailableError(absl::StrCat(library.path(), " is cuBLASLt ", lt.GetVersion(),
                                               "; Hearth needs 13.0 or later"));
  }
  return lt;
}

absl::Status CublasLt::Status(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  const std::string text = absl::StrCat(what, ": ", GetStatusName(status));
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH
             ? absl::UnimplementedError(text)
             : DeviceError(text);
}

MatmulObjects::~MatmulObjects() {
  for (cublasLtMatrixLayout_t layout : {a, b, c}) {
    if (layout != nullptr) {
      lt_.LayoutDestroy(layout);
    }
  }
  if (desc != nullptr) {
    lt_.DescDestroy(desc);
  }
}

absl::Status MatmulObjects::CreateDesc(bool transpose_a, bool transpose_b) {
  HEARTH_RETURN_IF_ERROR(lt_.Status(lt_.DescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                                    "cublasLtMatmulDescCreate"));
  const cublasOperation_t op_a = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  HEARTH_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, op_a));
  return Set(CUBLASLT_MATMUL_DESC_TRANSB, op_b);
}

absl::Status MatmulObjects::CreateLayouts(const MatrixLayout& of_a,
                                          const MatrixLayout& of_b,
                                          const MatrixLayout& of_c) {
  const auto create = [this](cublasLtMatrixLayout_t& layout, const MatrixLayout& of) {
    return lt_.Status(lt_.LayoutCreate(&layout, of.type, static_cast<uint64_t>(of.rows),
                                       static_cast<uint64_t>(of.cols), of.ld),
                      "cublasLtMatrixLayoutCreate");
  };
  HEARTH_RETURN_IF_ERROR(create(a, of_a));
  HEARTH_RETURN_IF_ERROR(create(b, of_b));
  return create(c, of_c);
}

absl::Status MatmulObjects::SetBatch(int32_t count,
                                     int64_t stride_a,
                                     int64_t stride_b,
                                     int64_t stride_c) {
  const auto set = [&](cublasLtMatrixLayout_t layout, int64_t stride) {
    const cublasStatus_t counted =
        lt_.LayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    return counted != CUBLAS_STATUS_SUCCESS
               ? counted
               : lt_.LayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                        &stride, sizeof(stride));
  };
  constexpr char kWhat[] = "cublasLtMatrixLayoutSetAttribute";
  HEARTH_RETURN_IF_ERROR(lt_.Status(set(a, stride_a), kWhat));
  HEARTH_RETURN_IF_ERROR(lt_.Status(set(b, stride_b), kWhat));
  return lt_.Status(set(c, stride_c), kWhat);
}

}  // namespace hearth::kernels
