#include "kernels/newton_schulz/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "kernels/core/cpu.h"
#include "kernels/gemm/gemm.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "newton_schulz";
constexpr size_t kAlignment = 256;

// Extents of a matrix as it is computed.
struct Extents {
  int64_t m = 0;  // the smaller
  int64_t n = 0;
};
Extents ExtentsOf(int64_t rows, int64_t cols) {
  return {std::min(rows, cols), std::max(rows, cols)};
}

// The format that X and the products have.
DType ComputeType(Device device, DType dtype) {
  return device == Device::kCuda ? DType::kBF16 : dtype;
}

// Where the scratch of a batch of `count` matrices lies.
struct Layout {
  size_t x = 0;       // bytes of each of two [count, m, n]
  size_t square = 0;  // of each of two [count, m, m]
  size_t partial = 0;
  size_t bytes() const { return 2 * x + 2 * square + partial; }
};
Layout LayoutOf(DType compute, const Extents& e, int64_t count) {
  Layout layout;
  layout.x = AlignUp(DTypeBytes(compute, count * e.m * e.n), kAlignment);
  layout.square = AlignUp(DTypeBytes(compute, count * e.m * e.m), kAlignment);
  layout.partial = DTypeBytes(DType::kF32, count * kNewtonSchulzParts);
  return layout;
}

// Matrices in a batch, of `count` of a shape. The CPU has nothing to gain from several.
int64_t BatchOf(Device device, DType compute, const Extents& e, int64_t count) {
  if (device != Device::kCuda) {
    return 1;
  }
  const auto fit =
      static_cast<int64_t>(kNewtonSchulzScratchBytes / LayoutOf(compute, e, 1).bytes());
  const int64_t largest = std::clamp<int64_t>(fit, 1, kNewtonSchulzBatch);
  // Batches of like size: a small last one would leave the GPU idle.
  return std::max<int64_t>(1, CeilDiv(count, CeilDiv(std::max<int64_t>(count, 1), largest)));
}

// `count` products c = alpha op(a) b (+ beta addend) of matrices one after the other.
absl::Status Multiply(const Exec& exec,
                      int64_t count,
                      const std::pair<TensorView, TensorView>& factors,
                      bool transpose_b,
                      const TensorView& c,
                      double alpha,
                      double beta,
                      const TensorView& addend) {
  GemmArgs args;
  args.a = factors.first;
  args.b = factors.second;
  args.transpose_b = transpose_b;
  args.c = c;
  args.alpha = alpha;
  args.beta = beta;
  args.addend = addend;
  args.batch = count;
  args.stride_a = args.a.numel();
  args.stride_b = args.b.numel();
  args.stride_c = args.c.numel();
  return Gemm(exec, args);
}

absl::Status RunBatch(const Exec& exec,
                      const NewtonSchulzRow& row,
                      absl::Span<const TensorView> matrices) {
  const DType compute = ComputeType(exec.device, matrices[0].dtype);
  const Extents e = ExtentsOf(matrices[0].rows(), matrices[0].cols());
  const auto count = static_cast<int64_t>(matrices.size());
  const Layout layout = LayoutOf(compute, e, count);
  auto* at = static_cast<uint8_t*>(exec.workspace.data);
  const auto take = [&at](size_t bytes) {
    return static_cast<void*>(std::exchange(at, at + bytes));
  };
  TensorView x(take(layout.x), compute, {e.m, e.n});
  TensorView y(take(layout.x), compute, {e.m, e.n});
  const TensorView gram(take(layout.square), compute, {e.m, e.m});
  const TensorView factor(take(layout.square), compute, {e.m, e.m});
  NewtonSchulzBatch batch;
  batch.matrices = matrices;
  batch.partial = static_cast<float*>(take(layout.partial));
  Exec rest = exec;
  rest.workspace = {at, exec.workspace.bytes - layout.bytes()};
  batch.x = x.data;
  HEARTH_RETURN_IF_ERROR(
      (RunOnDevice<cpu::LoadNewtonSchulz, cuda::LoadNewtonSchulz>(exec, kOp, batch)));
  // A step is x <- a x + b (x x^T) x + c (x x^T)^2 x, which moves every singular value s to a s + b
  // s^3 + c s^5. x is at least as wide as it is high, so x x^T is the smaller square.
  for (const NewtonSchulzStep& step : row.steps) {
    HEARTH_RETURN_IF_ERROR(Multiply(rest, count, {x, x}, true, gram, 1.0, 0.0, {}));
    // With c = 0 the polynomial is b x x^T: one product less.
    TensorView polynomial = gram;
    double scale = step.b;
    if (step.c != 0.0) {
      HEARTH_RETURN_IF_ERROR(
          Multiply(rest, count, {gram, gram}, false, factor, step.c, step.b, gram));
      polynomial = factor;
      scale = 1.0;
    }
    HEARTH_RETURN_IF_ERROR(Multiply(rest, count, {polynomial, x}, false, y, scale, step.a, x));
    std::swap(x, y);
  }
  // x and y have changed places after each step.
  batch.x = x.data;
  return RunOnDevice<cpu::StoreNewtonSchulz, cuda::StoreNewtonSchulz>(exec, kOp, batch);
}

}  // namespace

absl::Span<const NewtonSchulzRow> NewtonSchulzRows() {
  static constexpr NewtonSchulzStep kStandard = {1.5, -0.5, 0.0};
  static constexpr NewtonSchulzRow kRows[] = {
      {"tuned",
       {{{4.0848, -6.8946, 2.9270},
         {3.9505, -6.3029, 2.6377},
         {3.7418, -5.5913, 2.3037},
         {2.8769, -3.1427, 1.2046},
         {2.8366, -3.0525, 1.2012}}},
       "a set for each step (YouJiacheng and leloykun): singular values of 0.01 to 1 end within 4 "
       "% of 1"},
      {"standard",
       {{kStandard, kStandard, kStandard, kStandard, kStandard}},
       "Newton and Schulz's own: lifts small singular values by 1.5 a step at most"}};
  return kRows;
}

const NewtonSchulzRow* FindNewtonSchulz(std::string_view name) {
  return FindRow(NewtonSchulzRows(), &NewtonSchulzRow::name, name);
}

std::vector<std::string_view> NewtonSchulzNames() {
  return ColumnOf(NewtonSchulzRows(), &NewtonSchulzRow::name);
}

absl::Status CanImplement(const NewtonSchulzArgs& args) {
  if (args.row == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": no row of coefficients"));
  }
  for (const TensorView& matrix : args.matrices) {
    const TensorView& first = args.matrices[0];
    HEARTH_RETURN_IF_ERROR(RequireFloating(matrix, kOp, "matrix"));
    const Extents e = ExtentsOf(matrix.rows(), matrix.cols());
    const Extents expected = ExtentsOf(first.rows(), first.cols());
    if (e.m != expected.m || e.n != expected.n || matrix.dtype != first.dtype || e.m == 0) {
      return absl::InvalidArgumentError(absl::StrCat(kOp, ": ", DebugString(matrix), " beside ",
                                                     DebugString(first),
                                                     ": matrices are of one shape and type"));
    }
  }
  return absl::OkStatus();
}

size_t NewtonSchulzWorkspaceBytes(
    Device device, DType dtype, int64_t rows, int64_t cols, int64_t count) {
  const DType compute = ComputeType(device, dtype);
  const Extents e = ExtentsOf(rows, cols);
  const size_t scratch = LayoutOf(compute, e, BatchOf(device, compute, e, count)).bytes();
  return scratch + (device == Device::kCuda ? cuda::kGemmWorkspaceBytes + kAlignment : 0);
}

absl::Status NewtonSchulz(const Exec& exec, const NewtonSchulzArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  if (args.matrices.empty()) {
    return absl::OkStatus();
  }
  const TensorView& first = args.matrices[0];
  const auto count = static_cast<int64_t>(args.matrices.size());
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, first.dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(
      exec, NewtonSchulzWorkspaceBytes(exec.device, first.dtype, first.rows(), first.cols(), count),
      kOp));
  const int64_t batch = BatchOf(exec.device, ComputeType(exec.device, first.dtype),
                                ExtentsOf(first.rows(), first.cols()), count);
  for (int64_t i = 0; i < count; i += batch) {
    HEARTH_RETURN_IF_ERROR(
        RunBatch(exec, *args.row,
                 args.matrices.subspan(static_cast<size_t>(i),
                                       static_cast<size_t>(std::min(batch, count - i)))));
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels
