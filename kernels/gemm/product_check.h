// Products on block-scaled matrix units, each compared once with its emulation at the shapes of the
// job. ChooseBlockGemms (gemm_probe.h) has tried a few small products by then; which algorithm the
// library takes depends on the shape.
#pragma once

#include <set>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/gemm/gemm_key.h"

namespace hearth::kernels {

// Up to here a row of a product may differ from its emulation: both sum in fp32 in an order of
// their own and may round to bf16, 0.2 % rms each. A scale that is read wrongly is above it in rows
// of up to ten thousand blocks.
inline constexpr double kProductTolerance = 0.01;

// Used by one thread at a time.
class ProductCheck {
 public:
  explicit ProductCheck(double tolerance = kProductTolerance) : tolerance_(tolerance) {}

  using Product = absl::FunctionRef<absl::Status(const Exec&, const GemmArgs&)>;
  // Runs `native`. The first product of each kind (formats, extents, whether c is added to) is also
  // compared with `reference` in its first and its last 128 rows, which bounds the time: first
  // these rows of a get random codes, because the operands of the preparing step may be zeros. So a
  // must not be a weight, and in blocks it lies in cuBLASLt's order; c is what `native` makes of
  // it. If the reference is zero, the kind is compared when it comes again.
  // Waits for the stream; not while it is being captured.
  // Errors: those of `native` and `reference`; kUnimplemented: they differ, the text says where.
  absl::Status Run(const Exec& exec, const GemmArgs& args, Product native, Product reference);

  // Kinds that have come, and those that were compared.
  int met() const { return static_cast<int>(met_.size()); }
  int compared() const { return static_cast<int>(compared_.size()); }
  // The largest difference of a row.
  double largest() const { return largest_; }

 private:
  double tolerance_;
  std::set<GemmKey> met_;
  std::set<GemmKey> compared_;
  double largest_ = 0;
};

}  // namespace hearth::kernels
