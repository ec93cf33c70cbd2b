// An input of GEMMs: x of fprop and wgrad, dy of dgrad and wgrad, or the weight, in the form that
// the precision in force reads. How it gets that form is one interface, OperandForm, with one
// implementation for each way of scaling:
//
//   pass                     producer writes        Settle adds
//   plain/                   plain                  -
//     where others need it   plain, amax            -
//   per_tensor/, delayed     rows, columns, amax    -
//   per_tensor/, current     plain, amax            scale from amax, then rows and columns
//   per_tensor/on_demand     as plain/              - (the product quantises what it reads)
//   block/                   plain                  rows, columns, amax
//     by a producer of them  rows, columns, amax    -
//
// If the recipe quantises other operands but not this one, its form is a copy in BF16
// (plain/plain_copy.h). Settle writes it, so the producer writes plain values too.
//
// Where backward makes the columns again, forward asks for Forms::kRows and backward for
// Forms::kColumns: magnitudes, counts and the current scale are then forward's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/spec/recipe/precision.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/exec.h"
#include "kernels/core/tensor.h"

namespace hearth::trainer {

struct Pass;

// Which operand of a linear layer's products.
enum class Role : uint8_t { kX, kDy, kW };

// Which forms are wanted of a quantised operand.
enum class Forms : uint8_t { kBoth, kRows, kColumns };

// What the producer of an operand writes in a pass.
struct OperandTarget {
  kernels::TensorView plain;  // empty: not wanted
  kernels::QuantView quant;
  kernels::BlockQuantView blocks;
};

// Where the forms of an operand [R, C] live. Columns are [C, R].
struct OperandBuffers {
  // In passes that do not quantise, and where the forms are made of it.
  kernels::TensorView plain;
  void* rows = nullptr;
  void* columns = nullptr;
  // In PrecisionPlan::fallback, over the same bytes; null: it has none there.
  void* fallback_rows = nullptr;
  void* fallback_columns = nullptr;
};

// An operand as a product reads it, which sums along its rows (kernels/gemm/gemm.h).
struct ProductOperand {
  kernels::TensorView values;
  const float* scale = nullptr;                                // null: none
  const uint8_t* block_scales = nullptr;                       // null: one scale for the tensor
  kernels::BlockLayout layout = kernels::BlockLayout::kMxfp8;  // of block_scales
  bool transposed = false;  // `values` are the transpose of what the product reads
};

// One operand in one way of scaling, bound to its buffers. No call allocates. `plain` stands for
// the operand's plain form where another buffer holds it.
class OperandForm {
 public:
  virtual ~OperandForm() = default;
  // What the producer writes, and what is left to do once it has. A form without them, as a
  // weight's, is written by others (Scaling).
  //   keep_plain: something other than the products reads the plain form too
  //   blocks    : the producer can write forms with block scales
  virtual OperandTarget Target(const Pass& pass, bool keep_plain, bool blocks, Forms forms) const;
  virtual absl::Status Settle(const kernels::Exec& exec,
                              const Pass& pass,
                              const OperandTarget& target,
                              Forms forms) const;
  // Both in one, for a producer that writes only plain values.
  virtual absl::Status Make(const kernels::Exec& exec,
                            const Pass& pass,
                            const kernels::TensorView& plain,
                            Forms forms) const;
  // What a product reads: [R, C] for fprop or dgrad, [C, R] for wgrad.
  virtual ProductOperand Rows(const kernels::TensorView& plain) const = 0;
  virtual ProductOperand Columns(const kernels::TensorView& plain) const = 0;
  // Right before the product that reads it: writes what is not there yet.
  virtual absl::Status BeforeProduct(const kernels::Exec& exec,
                                     const kernels::TensorView& plain,
                                     bool columns) const;
};

// A quantised operand whose two forms lie in buffers of their own; as it is, a weight.
class StoredForm : public OperandForm {
 public:
  StoredForm(const ProductOperand& rows, const ProductOperand& columns)
      : rows_(rows), columns_(columns) {}
  ProductOperand Rows(const kernels::TensorView& plain) const override;
  ProductOperand Columns(const kernels::TensorView& plain) const override;

 private:
  ProductOperand rows_;
  ProductOperand columns_;
};

// An operand in every precision in which a pass of the job may run. Copies share the forms.
class Operand {
 public:
  using FormTable = std::array<std::shared_ptr<const OperandForm>, 3>;  // by LayerFormat

  Operand() : Operand(kernels::TensorView()) {}
  // Never quantised.
  explicit Operand(const kernels::TensorView& plain);
  // `forms`: null where the job has none. `precision` outlives this. `layer` -1: the output
  // projection.
  Operand(const kernels::TensorView& plain,
          FormTable forms,
          const spec::PrecisionPlan& precision,
          int layer);

  // What products of this pass read.
  spec::LayerFormat InForce(const Pass& pass) const;
  // Whether they read forms of the job's own recipe.
  bool Quantised(const Pass& pass) const { return InForce(pass) == spec::LayerFormat::kOwn; }
  // Whether a pass may run in it.
  bool Has(spec::LayerFormat format) const {
    return forms_[static_cast<size_t>(format)] != nullptr;
  }

  // As OperandForm's, in the form in force.
  OperandTarget Target(const Pass& pass,
                       bool keep_plain,
                       bool blocks = false,
                       Forms forms = Forms::kBoth) const;
  absl::Status Settle(const kernels::Exec& exec,
                      const Pass& pass,
                      const OperandTarget& target = OperandTarget(),
                      Forms forms = Forms::kBoth) const;
  absl::Status Make(const kernels::Exec& exec,
                    const Pass& pass,
                    const kernels::TensorView& plain,
                    Forms forms = Forms::kBoth) const;

  const kernels::TensorView& plain() const { return plain_; }
  // The form of one precision, which the operand has.
  const OperandForm& In(spec::LayerFormat format) const {
    return *forms_[static_cast<size_t>(format)];
  }
  const OperandForm& In(const Pass& pass) const { return In(InForce(pass)); }

 private:
  kernels::TensorView plain_;
  FormTable forms_;
  const spec::PrecisionPlan* precision_ = nullptr;
  int layer_ = -1;
};

}  // namespace hearth::trainer
