#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/cpu.h"
#include "kernels/embedding/embedding.h"
#include "kernels/formats/span.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "embedding";

// kOutOfRange naming the first index outside [0, limit).
absl::Status CheckIndices(const TensorView& indices, int64_t limit, const char* name) {
  const int32_t* values = indices.as<int32_t>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    if (values[i] < 0 || values[i] >= limit) {
      return absl::OutOfRangeError(
          absl::StrCat(kOp, ": ", name, "[", i, "] = ", values[i], ", table has ", limit, " rows"));
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ForwardImpl(const Exec& exec, const EmbeddingForwardArgs& args) {
  const int64_t cols = args.table.cols();
  const T* table = args.table.as<T>();
  const T* position_table = args.position_table.as<T>();
  const int32_t* tokens = args.tokens.as<int32_t>();
  const int32_t* positions = args.positions.as<int32_t>();
  T* out = args.out.as<T>();
  ParallelFor(exec, args.tokens.numel(), RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      T* y = out + row * cols;
      std::copy_n(table + tokens[row] * cols, cols, y);
      if (position_table != nullptr) {
        const T* add = position_table + positions[row] * cols;
        for (int64_t i = 0; i < cols; ++i) {
          y[i] += add[i];
        }
      }
      RoundSpan(y, cols, args.round_out);
    }
  });
  return absl::OkStatus();
}

// Adds every row of d_out to its row of the table, columns [begin, end) only: columns are the unit
// of parallelism, so each sum runs in the order of the rows.
template <typename T>
void ScatterAdd(const T* d_out,
                const int32_t* indices,
                int64_t rows,
                int64_t cols,
                int64_t begin,
                int64_t end,
                T* table) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* from = d_out + row * cols;
    T* to = table + indices[row] * cols;
    for (int64_t i = begin; i < end; ++i) {
      to[i] += from[i];
    }
  }
}

template <typename T>
absl::Status BackwardImpl(const Exec& exec, const EmbeddingBackwardArgs& args) {
  const int64_t cols = args.d_out.cols();
  const int64_t rows = args.d_out.rows();
  ParallelFor(exec, cols, 32, [&](int64_t begin, int64_t end) {
    if (!args.d_table.empty()) {
      ScatterAdd(args.d_out.as<T>(), args.tokens.as<int32_t>(), rows, cols, begin, end,
                 args.d_table.as<T>());
    }
    if (!args.d_position_table.empty()) {
      ScatterAdd(args.d_out.as<T>(), args.positions.as<int32_t>(), rows, cols, begin, end,
                 args.d_position_table.as<T>());
    }
  });
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

absl::Status EmbeddingForward(const Exec& exec, const EmbeddingForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckIndices(args.tokens, args.table.rows(), "tokens"));
  if (!args.position_table.empty()) {
    HEARTH_RETURN_IF_ERROR(CheckIndices(args.positions, args.position_table.rows(), "positions"));
  }
  return DispatchFloating(args.table.dtype,
                          [&]<typename T>() { return ForwardImpl<T>(exec, args); });
}

absl::Status EmbeddingBackward(const Exec& exec, const EmbeddingBackwardArgs& args) {
  for (const TensorView* view : {&args.d_table, &args.d_position_table}) {
    if (!view->empty()) {
      HEARTH_RETURN_IF_ERROR(
          RequireCount(*view, args.d_out.dtype, view->numel(), kOp, "a gradient"));
    }
  }
  if (!args.d_table.empty()) {
    HEARTH_RETURN_IF_ERROR(CheckIndices(args.tokens, args.d_table.rows(), "tokens"));
  }
  if (!args.d_position_table.empty()) {
    HEARTH_RETURN_IF_ERROR(CheckIndices(args.positions, args.d_position_table.rows(), "positions"));
  }
  return DispatchFloating(args.d_out.dtype,
                          [&]<typename T>() { return BackwardImpl<T>(exec, args); });
}

}  // namespace cpu

}  // namespace hearth::kernels
