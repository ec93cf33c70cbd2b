// An input of GEMMs: x of fprop and wgrad, or dy of dgrad and wgrad, in the form that the precision
// in force reads.
//
//   pass                     producer writes        Settle adds
//   BF16, or the fallback    plain                  -
//     with delayed scaling   plain, amax            -
//   quantised, delayed       rows, columns, amax    -
//   quantised, current       plain, amax            scale from amax, then rows and columns
//   quantised, block scales  plain                  rows, columns, amax
//     by a producer of them  rows, columns, amax    -
//
// Where backward makes the columns again, forward asks for Forms::kRows and backward for
// Forms::kColumns: magnitudes, counts and the current scale are then forward's.
#pragma once

#include "absl/status/status.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"
#include "worker/trainer/model/quant_state.h"

namespace hearth::trainer {

struct Pass;

// Which forms are wanted of a quantised operand.
enum class Forms : uint8_t { kBoth, kRows, kColumns };

// What the producer of an operand writes in a pass.
struct OperandTarget {
  kernels::TensorView plain;  // empty: not wanted
  kernels::QuantView quant;
  kernels::BlockQuantView blocks;
};

// Where the forms of an operand live. [R, C] each, but columns: [C, R].
struct OperandBuffers {
  // In passes in BF16, and where the forms are made of it.
  kernels::TensorView plain;
  void* rows = nullptr;
  void* columns = nullptr;
};

class Operand {
 public:
  Operand() = default;
  // Never quantised.
  explicit Operand(const kernels::TensorView& plain) { buffers_.plain = plain; }
  // `index`: the site in `state` (X: k, Dy: size() + k). `state` outlives this.
  Operand(const OperandBuffers& buffers, const QuantState& state, int64_t index);

  // What GEMMs of this pass read.
  spec::LayerFormat InForce(const Pass& pass) const;
  // Whether they read forms of the job's own recipe. In PrecisionPlan::fallback, as in BF16, plain
  // values are what there is until FallbackOperands quantises them.
  bool Quantised(const Pass& pass) const { return InForce(pass) == spec::LayerFormat::kOwn; }
  // `keep_plain`: somebody besides the GEMMs reads the plain form too.
  // `blocks`: the producer can write forms with block scales.
  OperandTarget Target(const Pass& pass,
                       bool keep_plain,
                       bool blocks = false,
                       Forms forms = Forms::kBoth) const;
  // After the producer has written `target`, which is Target(pass, ..., forms).
  absl::Status Settle(const kernels::Exec& exec,
                      const Pass& pass,
                      const OperandTarget& target = OperandTarget(),
                      Forms forms = Forms::kBoth) const;
  // Instead of both, where the producer writes plain values alone.
  absl::Status Make(const kernels::Exec& exec,
                    const Pass& pass,
                    const kernels::TensorView& plain,
                    Forms forms = Forms::kBoth) const;

  const kernels::TensorView& plain() const { return buffers_.plain; }
  // Valid in quantised passes: [R, C] for fprop or dgrad, [C, R] for wgrad.
  ProductOperand Rows() const;
  ProductOperand Columns() const;

 private:
  kernels::QuantView Values(Forms forms) const;
  absl::Status Count(const kernels::Exec& exec, const Pass& pass) const;
  kernels::DType Format() const;
  bool is_x() const { return index_ < state_->size(); }
  const spec::Operand& RowsFormat() const;
  const spec::Operand& ColumnsFormat() const;
  // Forms with block scales, and of `plain`. Evaluation has no use for columns.
  kernels::BlockQuantView Blocks(const Pass& pass, Forms forms) const;
  absl::Status QuantizeBlocks(const kernels::Exec& exec,
                              const Pass& pass,
                              const kernels::TensorView& plain,
                              Forms forms) const;

  OperandBuffers buffers_;
  const QuantState* state_ = nullptr;
  int64_t index_ = -1;
  int layer_ = -1;  // -1: the output projection
  QuantSite site_;
};

}  // namespace hearth::trainer
