#include "kernels/newton_schulz/newton_schulz.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/formats/gram_form.h"
#include "kernels/core/cpu.h"
#include "kernels/gemm/gemm.h"
#include "kernels/round/round.h"

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

bool IsGram(NewtonSchulzForm form, const Extents& e) {
  return form == NewtonSchulzForm::kByShape ? formats::TakesGramForm(e.m, e.n)
                                            : form == NewtonSchulzForm::kGram;
}

// Where the scratch of a batch of `count` matrices lies.
struct Layout {
  size_t x = 0;       // bytes of each of two [count, m, n]
  size_t square = 0;  // of each of `squares` [count, m, m]
  size_t squares = 0;
  size_t partial = 0;
  size_t bytes() const { return 2 * x + squares * square + partial; }
};
Layout LayoutOf(DType compute, const Extents& e, int64_t count, bool gram) {
  Layout layout;
  layout.x = AlignUp(DTypeBytes(compute, count * e.m * e.n), kAlignment);
  layout.square = AlignUp(DTypeBytes(compute, count * e.m * e.m), kAlignment);
  layout.squares = gram ? 3 : 2;
  layout.partial = DTypeBytes(DType::kF32, count * kNewtonSchulzParts);
  return layout;
}

// Matrices in a batch, of `count` of a shape. The CPU has nothing to gain from several.
int64_t BatchOf(Device device, DType compute, const Extents& e, int64_t count, bool gram) {
  if (device != Device::kCuda) {
    return 1;
  }
  const auto fit =
      static_cast<int64_t>(kNewtonSchulzScratchBytes / LayoutOf(compute, e, 1, gram).bytes());
  const int64_t largest = std::clamp<int64_t>(fit, 1, kNewtonSchulzBatch);
  // Batches of like size: a small last one would leave the GPU idle.
  return std::max<int64_t>(1, CeilDiv(count, CeilDiv(std::max<int64_t>(count, 1), largest)));
}

// scale times the matrices of `view`.
struct Scaled {
  TensorView view;
  double scale = 1.0;
};

// The iteration over the matrices of a batch, which lie one after the other.
class Iteration {
 public:
  // squares : scratch, [m, m] of the first matrix each; Step takes two of them
  Iteration(const Exec& exec, int64_t count, DType round, const std::array<TensorView, 3>& squares)
      : exec_(exec), count_(count), round_(round), squares_(squares) {}

  // x <- a x + b (x x^T) x + c (x x^T)^2 x, which moves every singular value s to a s + b s^3 + c
  // s^5. x is at least as wide as it is high, so x x^T is the smaller square. The result is in y.
  absl::Status Step(const NewtonSchulzStep& step, const TensorView& x, const TensorView& y) {
    HEARTH_RETURN_IF_ERROR(Gram(x, squares_[0]));
    HEARTH_ASSIGN_OR_RETURN(const Scaled p, Polynomial(step, squares_[0], squares_[1]));
    return Multiply(p, x, y, step.a, x);
  }

  // Two steps with x multiplied once; the result is in y. A polynomial P of the Gram matrix A
  // commutes with it, so the next x, P x, has the Gram matrix P A P.
  absl::Status TwoSteps(const NewtonSchulzStep& first,
                        const NewtonSchulzStep& second,
                        const TensorView& x,
                        const TensorView& y) {
    const TensorView& gram = squares_[0];
    HEARTH_RETURN_IF_ERROR(Gram(x, gram));
    HEARTH_ASSIGN_OR_RETURN(const Scaled p, Polynomial(first, gram, squares_[1]));
    // With the part a I of P apart, products see the rest of P alone: P A P = a (P A) + (P A) rest.
    const TensorView& product = squares_[2];
    HEARTH_RETURN_IF_ERROR(Multiply(p, gram, product, first.a, gram));
    const TensorView& next = Other(p.view, product);
    HEARTH_RETURN_IF_ERROR(Multiply({product, p.scale}, p.view, next, first.a, product));
    HEARTH_ASSIGN_OR_RETURN(const Scaled q, Polynomial(second, next, product));
    ShiftDiagonalArgs shift = {p.view, count_, p.scale, first.a};
    HEARTH_RETURN_IF_ERROR(
        (RunOnDevice<cpu::ShiftDiagonal, cuda::ShiftDiagonal>(exec_, kOp, shift)));
    HEARTH_RETURN_IF_ERROR(Round(p.view));
    const TensorView& both = Other(p.view, q.view);
    HEARTH_RETURN_IF_ERROR(Multiply(q, p.view, both, second.a, p.view));
    return Multiply({both, 1.0}, x, y, 0.0, {});
  }

  absl::Status Round(const TensorView& x) const {
    if (round_ == DType::kF32) {
      return absl::OkStatus();
    }
    return RoundTo(exec_, {x, x, round_});
  }

 private:
  absl::Status Gram(const TensorView& x, const TensorView& gram) const {
    return Product(x, x, true, gram, 1.0, 0.0, {});
  }

  // b A + c A^2, in `out`, or A itself with the factor b where c is 0: one product less.
  absl::StatusOr<Scaled> Polynomial(const NewtonSchulzStep& step,
                                    const TensorView& gram,
                                    const TensorView& out) const {
    if (step.c == 0.0) {
      return Scaled{gram, step.b};
    }
    HEARTH_RETURN_IF_ERROR(Product(gram, gram, false, out, step.c, step.b, gram));
    return Scaled{out, 1.0};
  }

  // c = a b + beta * addend
  absl::Status Multiply(const Scaled& a,
                        const TensorView& b,
                        const TensorView& c,
                        double beta,
                        const TensorView& addend) const {
    return Product(a.view, b, false, c, a.scale, beta, addend);
  }

  // c = alpha a op(b) + beta * addend
  absl::Status Product(const TensorView& a,
                       const TensorView& b,
                       bool transpose_b,
                       const TensorView& c,
                       double alpha,
                       double beta,
                       const TensorView& addend) const {
    GemmArgs args = {.a = a, .b = b, .c = c, .bias = {}, .transpose_b = transpose_b};
    args.alpha = alpha;
    args.beta = beta;
    args.addend = addend;
    args.batch = count_;
    args.stride_a = a.numel();
    args.stride_b = b.numel();
    args.stride_c = c.numel();
    HEARTH_RETURN_IF_ERROR(Gemm(exec_, args));
    return Round(c);
  }

  // The square that is neither of the two.
  const TensorView& Other(const TensorView& a, const TensorView& b) const {
    return *std::find_if(squares_.begin(), squares_.end(), [&](const TensorView& square) {
      return square.data != a.data && square.data != b.data;
    });
  }

  const Exec& exec_;
  const int64_t count_;
  const DType round_;
  const std::array<TensorView, 3> squares_;
};

absl::Status RunBatch(const Exec& exec,
                      const NewtonSchulzArgs& args,
                      absl::Span<const TensorView> matrices) {
  const DType compute = ComputeType(exec.device, matrices[0].dtype);
  const Extents e = ExtentsOf(matrices[0].rows(), matrices[0].cols());
  const auto count = static_cast<int64_t>(matrices.size());
  const bool gram = IsGram(args.form, e);
  const Layout layout = LayoutOf(compute, e, count, gram);
  auto* at = static_cast<uint8_t*>(exec.workspace.data);
  const auto take = [&at](size_t bytes) {
    return static_cast<void*>(std::exchange(at, at + bytes));
  };
  TensorView x(take(layout.x), compute, {e.m, e.n});
  TensorView y(take(layout.x), compute, {e.m, e.n});
  std::array<TensorView, 3> squares;
  for (size_t i = 0; i < layout.squares; ++i) {
    squares[i] = TensorView(take(layout.square), compute, {e.m, e.m});
  }
  NewtonSchulzBatch batch;
  batch.matrices = matrices;
  batch.partial = static_cast<float*>(take(layout.partial));
  Exec rest = exec;
  rest.workspace = {at, exec.workspace.bytes - layout.bytes()};
  Iteration iteration(rest, count, args.round, squares);
  batch.x = x.data;
  HEARTH_RETURN_IF_ERROR(
      (RunOnDevice<cpu::LoadNewtonSchulz, cuda::LoadNewtonSchulz>(exec, kOp, batch)));
  HEARTH_RETURN_IF_ERROR(iteration.Round(x));
  const auto& steps = args.row->steps;
  for (size_t i = 0; i < steps.size();) {
    if (gram && i + 1 < steps.size()) {
      HEARTH_RETURN_IF_ERROR(iteration.TwoSteps(steps[i], steps[i + 1], x, y));
      i += 2;
    } else {
      HEARTH_RETURN_IF_ERROR(iteration.Step(steps[i], x, y));
      ++i;
    }
    std::swap(x, y);
  }
  // x and y have changed places after each product with x.
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
  return RequireRound(args.round, kOp);
}

size_t NewtonSchulzWorkspaceBytes(
    Device device, DType dtype, int64_t rows, int64_t cols, int64_t count, NewtonSchulzForm form) {
  const DType compute = ComputeType(device, dtype);
  const Extents e = ExtentsOf(rows, cols);
  const bool gram = IsGram(form, e);
  const int64_t batch = BatchOf(device, compute, e, count, gram);
  return LayoutOf(compute, e, batch, gram).bytes() +
         (device == Device::kCuda ? cuda::kGemmWorkspaceBytes + kAlignment : 0);
}

absl::Status NewtonSchulz(const Exec& exec, const NewtonSchulzArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  if (args.matrices.empty()) {
    return absl::OkStatus();
  }
  const TensorView& first = args.matrices[0];
  const auto count = static_cast<int64_t>(args.matrices.size());
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, first.dtype, kOp));
  if (args.round != DType::kF32) {
    HEARTH_RETURN_IF_ERROR(RequireCpu(exec, kOp));
  }
  HEARTH_RETURN_IF_ERROR(
      RequireWorkspace(exec,
                       NewtonSchulzWorkspaceBytes(exec.device, first.dtype, first.rows(),
                                                  first.cols(), count, args.form),
                       kOp));
  const Extents e = ExtentsOf(first.rows(), first.cols());
  const int64_t batch =
      BatchOf(exec.device, ComputeType(exec.device, first.dtype), e, count, IsGram(args.form, e));
  for (int64_t i = 0; i < count; i += batch) {
    HEARTH_RETURN_IF_ERROR(
        RunBatch(exec, args,
                 args.matrices.subspan(static_cast<size_t>(i),
                                       static_cast<size_t>(std::min(batch, count - i)))));
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels
