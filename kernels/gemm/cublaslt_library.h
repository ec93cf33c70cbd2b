// cuBLASLt's entry points, found at run time. For files of the CUDA backend only.
#pragma once

#include <cublasLt.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth::kernels {

struct CublasLt {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtGetVersion) GetVersion;
  decltype(&cublasLtGetStatusName) GetStatusName;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulAlgoCheck) AlgoCheck;
  decltype(&cublasLtMatmulAlgoGetHeuristic) AlgoGetHeuristic;
  decltype(&cublasLtMatmulDescCreate) DescCreate;
  decltype(&cublasLtMatmulDescDestroy) DescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) DescSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) PreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) PreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) PreferenceSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) LayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) LayoutDestroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) LayoutSetAttribute;

  // OK, or "what: CUBLAS_STATUS_...": kUnimplemented for what the library does not support, else
  // kInternal.
  absl::Status Status(cublasStatus_t status, const char* what) const;

  // kUnavailable: no cuBLASLt 13 (HEARTH_CUBLASLT names another file).
  static absl::StatusOr<CublasLt> Load();
};

// A column-major matrix.
struct MatrixLayout {
  cudaDataType_t type;
  int64_t rows;
  int64_t cols;
  int64_t ld;  // leading dimension, in elements
};

// cuBLASLt's objects of one product: descriptor and layouts, destroyed together.
class MatmulObjects {
 public:
  explicit MatmulObjects(const CublasLt& lt) : lt_(lt) {}
  ~MatmulObjects();
  MatmulObjects(const MatmulObjects&) = delete;
  MatmulObjects& operator=(const MatmulObjects&) = delete;

  // A descriptor with fp32 arithmetic and scalars, which are host memory.
  absl::Status CreateDesc(bool transpose_a, bool transpose_b);
  // The layouts of the operands and of the result.
  absl::Status CreateLayouts(const MatrixLayout& of_a,
                             const MatrixLayout& of_b,
                             const MatrixLayout& of_c);
  // So many products at once; strides in elements.
  absl::Status SetBatch(int32_t count, int64_t stride_a, int64_t stride_b, int64_t stride_c);
  template <typename T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return lt_.Status(lt_.DescSetAttribute(desc, attribute, &value, sizeof(value)),
                      "cublasLtMatmulDescSetAttribute");
  }

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t c = nullptr;  // of C and D, which are the same memory

 private:
  const CublasLt& lt_;
};

}  // namespace hearth::kernels
