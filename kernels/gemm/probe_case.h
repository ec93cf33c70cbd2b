// The products by which a GPU's matrix units are judged (gemm_probe.h), and what must come out of
// them: made and compared on the host, in double.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "common/formats/gpu_units.h"
#include "kernels/core/formats.h"
#include "kernels/gemm/gemm.h"

namespace hearth::kernels {

// What the engine does on a GPU that fails a case.
enum class ProbeFallback : uint8_t {
  kNone,      // nothing: the GPU is at fault
  kStop,      // recipes with one scale a tensor do not run where the product is refused: such
              // cases are their products
  kEmulated,  // it computes the product in BF16
  kPlainFp8,  // it runs plain FP8 on the units of plain FP8
};

struct ProbeCase {
  const char* name;
  ProbeFallback fallback;
  // The choice of ChooseBlockGemms that hangs on it; none: it tries no block-scaled units.
  std::optional<formats::UnitProducts> units;
  double bound;                  // of ProbeError
  const BlockLayoutRow* blocks;  // null: one scale for the tensor
  DType a;
  DType b;
  DType c;
  // As the gradient of a weight: onto a c that is not zero, alpha and the tensors' scales not 1, of
  // block scales every one that a quantiser writes, and extents that end within a tile of scales.
  bool gradient;
  bool fast = false;  // accumulation (GemmArgs)
};
absl::Span<const ProbeCase> ProbeCases();

// [rows, k] as stored, and its scales: of blocks as block_layout.h says (empty without
// blocks), and the tensor's.
struct ProbeOperand {
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> scales;
  float scale = 1.0F;
};

// want = alpha a.scale b.scale (a bT) + beta c, [m, n]
struct ProbeProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  double alpha = 1.0;
  double beta = 0.0;
  ProbeOperand a;
  ProbeOperand b;
  std::vector<float> c;  // what is added to; zeros where beta is 0
  std::vector<double> want;
  // Four times the root of the sum of the squares of an element's terms: about the largest that
  // elements of such terms become. Errors are relative to it, so that rows and columns with small
  // scales count as much as others.
  std::vector<double> spread;
};
// The row of that name; null: none.
const ProbeCase* FindProbeCase(std::string_view name);
// The same bits each time.
ProbeProduct MakeProbeProduct(const ProbeCase& which);
// The same without c and what comes out, which take a thousand times as long.
ProbeProduct MakeProbeOperands(const ProbeCase& which);

// The largest |got - want| / spread; infinite if any is NaN. got : [m, n]
double ProbeError(const ProbeProduct& product, const std::vector<double>& got);

// The tensors' scales as UpdateScales (kernels/quantize) leaves them: each at the begin of a row of
// kScaleInverseStride floats.
std::vector<float> ProbeScales(const ProbeProduct& product);
// The call; c is the caller's to set. `scales`: where the caller has ProbeScales, on a boundary of
// kScaleBoundary bytes. The other pointers are those of `product`, in host memory.
GemmArgs ProbeArgs(const ProbeCase& which, const ProbeProduct& product, const float* scales);

}  // namespace hearth::kernels
