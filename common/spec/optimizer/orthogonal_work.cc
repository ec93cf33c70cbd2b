#include "common/spec/optimizer/orthogonal_work.h"

#include <algorithm>

#include "common/base/table_rows.h"
#include "common/formats/gram_form.h"
#include "common/formats/product_scratch.h"
#include "common/spec/optimizer/optimizer_table.h"

namespace hearth::spec {
namespace {

using formats::TakesGramForm;

constexpr int64_t kSteps = 5;
constexpr int64_t kPairs = 2;  // of steps that share products in it; one step is left
constexpr int64_t kMostScratchBytes = int64_t{96} << 20;  // of a batch, if several matrices fit
constexpr int64_t kMostMatrices = 64;                     // in a batch
constexpr int64_t kNormBytes = int64_t{256} * 4;          // partial sums of a matrix
constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Two matrices of the shape of X and two or three of its Gram matrix, in BF16.
int64_t BatchBytes(int64_t m, int64_t n, int64_t count) {
  const int64_t squares = TakesGramForm(m, n) ? 3 : 2;
  return 2 * Aligned(count * m * n * 2) + squares * Aligned(count * m * m * 2) + count * kNormBytes;
}

}  // namespace

bool IsOrthogonalised(const Parameter& parameter) {
  for (const OptimizerRow& row : Optimizers()) {
    for (const StateSpec& spec : row.states) {
      if (spec.kind == StateKind::kMomentum &&
          FindRow(parameter.states, &ParameterState::name, spec.name) != nullptr) {
        return true;
      }
    }
  }
  return false;
}

int OrthogonalCopies(int64_t m, int64_t n) {
  return 4 + static_cast<int>(TakesGramForm(m, n) ? kPairs : 0);
}

std::vector<OrthogonalProduct> OrthogonalProducts(int64_t m, int64_t n) {
  if (TakesGramForm(m, n)) {
    // Each pair and the last step make a Gram matrix and multiply X. Between them a pair has five
    // products of squares, and the last step one.
    return {{m, m, n, false, kPairs + 1},
            {m, m, m, true, 5 * kPairs + 1},
            {m, n, m, false, kPairs},
            {m, n, m, true, 1}};
  }
  // In each step the Gram matrix, the polynomial of it, and the next X.
  return {{m, m, n, false, kSteps}, {m, m, m, true, kSteps}, {m, n, m, true, kSteps}};
}

std::map<std::pair<int64_t, int64_t>, int64_t> OrthogonalShapes(
    const std::vector<Parameter>& table) {
  std::map<std::pair<int64_t, int64_t>, int64_t> shapes;
  for (const Parameter& parameter : table) {
    if (!IsOrthogonalised(parameter)) {
      continue;
    }
    for (const LogicalMatrix& matrix : parameter.matrices) {
      const auto [m, n] = std::minmax(matrix.rows, matrix.cols);
      ++shapes[{m, n}];
    }
  }
  return shapes;
}

int64_t OrthogonalBatch(int64_t m, int64_t n, int64_t count) {
  const int64_t most =
      std::clamp<int64_t>(kMostScratchBytes / BatchBytes(m, n, 1), 1, kMostMatrices);
  // Batches of like size.
  return std::max<int64_t>(1, CeilDiv(count, CeilDiv(std::max<int64_t>(count, 1), most)));
}

int64_t OrthogonalScratchBytes(int64_t m, int64_t n, int64_t count) {
  return BatchBytes(m, n, OrthogonalBatch(m, n, count)) + formats::kProductScratchBytes +
         kAlignment;
}

}  // namespace hearth::spec
