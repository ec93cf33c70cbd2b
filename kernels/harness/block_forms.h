// For cases of ops that write block forms of an output themselves: three copies of the forms, of
// the op beside its plain output, of the op alone and of BlockQuantize from the plain output. All
// bits are equal, on any device. Columns of such cases are named `of`.copy.form.part.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/core/block_quant.h"
#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {

// What of a form is made; with `rows` alone the other stays absent.
struct BlockStyle {
  BlockLayout layout = BlockLayout::kNvfp4;
  DType dtype = DType::kE2M1;
  Rounding rows = Rounding::kNearest;
  Rounding columns = Rounding::kNearest;
  int16_t rows_hadamard = 0;
  int16_t columns_hadamard = 0;
  HadamardSigns signs = HadamardSigns::kFixed;
};

// The recipes' activations and gradients.
inline constexpr BlockStyle kNvidiaInput = {
    BlockLayout::kNvfp4, DType::kE2M1, Rounding::kNearest, Rounding::kNearest, 0, 16};
inline constexpr BlockStyle kNvidiaGradient = {
    BlockLayout::kNvfp4, DType::kE2M1, Rounding::kStochastic, Rounding::kStochastic, 0, 16};
inline constexpr BlockStyle kQuartetInput = {
    BlockLayout::kNvfp4,   DType::kE2M1, Rounding::kFourOverSix, Rounding::kEden, 0, 128,
    HadamardSigns::kSeeded};
inline constexpr BlockStyle kQuartetGradient = {
    BlockLayout::kNvfp4,   DType::kE2M1, Rounding::kEden, Rounding::kEden, 128, 128,
    HadamardSigns::kSeeded};
inline constexpr BlockStyle kMxfp8Blocks = {BlockLayout::kMxfp8, DType::kE4M3};
inline constexpr BlockStyle kMxfp8Gradient = {BlockLayout::kMxfp8, DType::kE5M2};

// A case for each row of kBlockLayouts, named "blocks_", the row's name, "_" and the name of what
// `make` returns for forms rounded to nearest.
void AddCaseOfEachLayout(std::vector<OpCase>& cases,
                         absl::FunctionRef<OpCase(const BlockStyle& style)> make);

// The buffers for the output `of` [rows, cols] of `c`, whose plain values a call without block
// forms writes to `of`.without: a call with block forms must write the same. The case has no double
// version then; its check tells. Timed cases measure only the op's own forms.
void AddBlockForms(
    OpCase& c, const std::string& of, int64_t rows, int64_t cols, const BlockStyle& style);

// Adds to `c` the gradient `of` [cols], of a call that writes block forms of another output, and,
// unless the case is only timed, `of`.without, of a call without them. They start at 0; summed in
// another order, they are near each other.
void AddGradientTwice(OpCase& c, const std::string& of, int64_t cols);

// The traffic of a timed case: `others`, and the forms of `of` that the op writes by itself.
std::vector<std::string> WithForms(std::vector<std::string> others, const std::string& of);

// run(plain output, its forms) for each copy.
absl::Status RunWithBlocks(
    const Exec& exec,
    const Buffers& b,
    const std::string& of,
    const BlockStyle& style,
    absl::FunctionRef<absl::Status(const TensorView&, const BlockQuantView&)> run);

}  // namespace hearth::kernels::harness
