#include "worker/trainer/precision/block/block_scaling.h"

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/precision/numerics.h"

namespace hearth::trainer {

using kernels::TensorView;

namespace {

// What the recipe says of the two forms of x or dy.
const spec::Operand& RowsOperand(const spec::Recipe& recipe, Role role) {
  return role == Role::kX ? recipe.fprop.a : recipe.dgrad.a;
}

const spec::Operand& ColumnsOperand(const spec::Recipe& recipe, Role role) {
  return role == Role::kX ? recipe.wgrad.a : recipe.wgrad.b;
}

// x or dy.
class BlockOperand : public StoredForm {
 public:
  BlockOperand(const BlockScaling& scaling, Role role, int k, const OperandBuffers& b)
      : BlockOperand(scaling,
                     RowsOperand(*scaling.context().precision->recipe, role),
                     ColumnsOperand(*scaling.context().precision->recipe, role),
                     scaling.context().Site(role, k),
                     k,
                     b) {}

  OperandTarget Target(const Pass& pass, bool keep_plain, bool blocks, Forms forms) const override {
    OperandTarget target;
    target.plain = keep_plain || !blocks ? buffers_.plain : TensorView();
    if (blocks) {
      target.blocks = Blocks(pass, forms);
    }
    return target;
  }

  absl::Status Settle(const kernels::Exec& exec,
                      const Pass& pass,
                      const OperandTarget& target,
                      Forms forms) const override {
    return target.blocks.empty() ? Make(exec, pass, buffers_.plain, forms) : absl::OkStatus();
  }

  absl::Status Make(const kernels::Exec& exec,
                    const Pass& pass,
                    const TensorView& plain,
                    Forms forms) const override {
    const kernels::BlockQuantizeTensor tensor = {plain, Blocks(pass, forms)};
    kernels::BlockQuantizeArgs args;
    args.tensors = absl::MakeConstSpan(&tensor, 1);
    return kernels::BlockQuantize(exec, args);
  }

 private:
  BlockOperand(const BlockScaling& scaling,
               const spec::Operand& rows,
               const spec::Operand& columns,
               int64_t site,
               int k,
               const OperandBuffers& b)
      : StoredForm(scaling.Product(rows, site, false, b.rows, b.plain.rows(), b.plain.cols()),
                   scaling.Product(columns, site, true, b.columns, b.plain.cols(), b.plain.rows())),
        scaling_(scaling),
        rows_(rows),
        columns_(columns),
        site_(site),
        rotation_(static_cast<uint32_t>(k)),
        buffers_(b) {}

  kernels::BlockQuantView Blocks(const Pass& pass, Forms forms) const {
    const ScalingContext& context = scaling_.context();
    const int64_t rows = buffers_.plain.rows();
    const int64_t cols = buffers_.plain.cols();
    kernels::BlockQuantView quant;
    quant.dtype = rows_.dtype;
    quant.layout = rows_.layout;
    // Magnitude and counts are taken with the rows, once a tensor.
    if (forms != Forms::kColumns) {
      quant.rows = scaling_.Form(rows_, site_, false, buffers_.rows, rows, cols);
      quant.amax = pass.record ? context.sites.At(site_).amax : nullptr;
      quant.rows.counts = pass.count ? context.counts + 2 * site_ : nullptr;
    }
    // Evaluation has no use for columns.
    if (forms != Forms::kRows && pass.record) {
      quant.columns = scaling_.Form(columns_, site_, true, buffers_.columns, cols, rows);
    }
    quant.key.seed = pass.seed;
    quant.key.step = pass.step;
    quant.key.micro_batch = pass.micro_batch;
    quant.key.tensor = static_cast<uint32_t>(site_);
    quant.position = pass.position;
    quant.rotation = rotation_;
    return quant;
  }

  const BlockScaling& scaling_;
  const spec::Operand& rows_;
  const spec::Operand& columns_;
  int64_t site_;
  uint32_t rotation_;
  OperandBuffers buffers_;
};

}  // namespace

BlockScaling::BlockScaling(const ScalingContext& context)
    : context_(context),
      column_scale_inverse_(
          context.arena
              ->Typed(context.arena->ids().quant.column_scale_inverse, kernels::DType::kF32)
              .as<float>()) {
  for (int k = 0; k < context_.size(); ++k) {
    AddWeight(k);
  }
}

void BlockScaling::AddWeight(int k) {
  const QuantisedWeight& weight = context_.weights[static_cast<size_t>(k)];
  const spec::Recipe& recipe = *context_.precision->recipe;
  const int64_t site = context_.Site(Role::kW, k);
  const int64_t out = weight.weight.rows();
  const int64_t in = weight.weight.cols();
  kernels::BlockQuantizeTensor tensor;
  tensor.x = weight.weight;
  tensor.quant.dtype = recipe.fprop.b.dtype;
  tensor.quant.layout = recipe.fprop.b.layout;
  tensor.quant.square = recipe.fprop.b.square;
  // The key of the random numbers: every tensor draws others.
  tensor.quant.key.tensor = static_cast<uint32_t>(site);
  tensor.quant.rotation = static_cast<uint32_t>(k);
  const kernels::BlockForm columns = Form(recipe.dgrad.b, site, true, weight.columns, in, out);
  // Signs that are drawn in each step are not known yet when the update writes the weights: these
  // columns are made when the step begins (BeginStep).
  if (recipe.dgrad.b.signs == spec::HadamardSigns::kSeeded) {
    tensor.quant.columns = columns;
    each_step_.push_back(tensor);
    tensor.quant.columns = {};
  } else {
    tensor.quant.columns = columns;
  }
  tensor.quant.rows = Form(recipe.fprop.b, site, false, weight.rows, out, in);
  weights_.push_back(tensor);
}

std::shared_ptr<const OperandForm> BlockScaling::Bind(Role role,
                                                      int k,
                                                      const OperandBuffers& buffers) const {
  if (role != Role::kW) {
    return std::make_shared<BlockOperand>(*this, role, k, buffers);
  }
  const QuantisedWeight& weight = context_.weights[static_cast<size_t>(k)];
  const spec::Recipe& recipe = *context_.precision->recipe;
  const int64_t site = context_.Site(role, k);
  const int64_t out = weight.weight.rows();
  const int64_t in = weight.weight.cols();
  return std::make_shared<StoredForm>(Product(recipe.fprop.b, site, false, weight.rows, out, in),
                                      Product(recipe.dgrad.b, site, true, weight.columns, in, out));
}

float* BlockScaling::TensorScale(int64_t site, bool columns) const {
  return columns ? column_scale_inverse_ + site * kernels::kScaleInverseStride
                 : context_.sites.At(site).scale_inverse;
}

kernels::BlockForm BlockScaling::Form(const spec::Operand& operand,
                                      int64_t site,
                                      bool columns,
                                      void* data,
                                      int64_t lines,
                                      int64_t extent) const {
  kernels::BlockForm form;
  form.values = data;
  // Values and scales lie one behind the other in one buffer.
  form.scales = static_cast<uint8_t*>(data) + spec::FormScaleOffset(operand, lines, extent);
  if (operand.delayed()) {
    form.amax = context_.sites.At(site).carried;
    form.tensor_scale = TensorScale(site, columns);
  }
  form.rounding = operand.rounding;
  form.hadamard = operand.hadamard;
  form.signs = operand.signs;
  return form;
}

ProductOperand BlockScaling::Product(const spec::Operand& operand,
                                     int64_t site,
                                     bool columns,
                                     void* data,
                                     int64_t lines,
                                     int64_t extent) const {
  ProductOperand product;
  product.values = TensorView(data, operand.dtype, {lines, extent});
  product.block_scales =
      static_cast<const uint8_t*>(data) + spec::FormScaleOffset(operand, lines, extent);
  product.layout = operand.layout;
  product.scale = operand.delayed() ? TensorScale(site, columns) : nullptr;
  return product;
}

absl::Status BlockScaling::Reset(const kernels::Exec& exec) const {
  return FillOnes(exec, column_scale_inverse_, 3 * context_.size() * kernels::kScaleInverseStride);
}

void BlockScaling::BindStep(uint64_t seed, const kernels::StepInputs* position) {
  for (kernels::BlockQuantizeTensor& tensor : each_step_) {
    tensor.quant.key.seed = seed;
    tensor.quant.position = position;
  }
}

absl::Status BlockScaling::BeginStep(const kernels::Exec& exec, const WeightRange& weights) const {
  if (each_step_.empty()) {
    return absl::OkStatus();
  }
  kernels::BlockQuantizeArgs args;
  args.tensors = absl::MakeConstSpan(each_step_).subspan(weights.first, weights.count);
  return kernels::BlockQuantize(exec, args);
}

absl::Status BlockScaling::UpdateAmax(const kernels::Exec& exec,
                                      int64_t first,
                                      int64_t count,
                                      const int32_t* skip) const {
  if (!context_.precision->recipe->delayed()) {
    return absl::OkStatus();  // no operand has a scale of the tensor
  }
  kernels::UpdateBlockAmaxArgs args;
  args.n = count;
  args.measured = context_.sites.At(first).amax;
  args.amax = context_.sites.At(first).carried;
  args.margin = kBlockMargin;
  args.skip = skip;
  return kernels::UpdateBlockAmax(exec, args);
}

absl::Status BlockScaling::UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const {
  return UpdateAmax(exec, 0, 2 * context_.size(), skip);
}

absl::Status BlockScaling::UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const {
  // Sites are all x, then all dy, then all weights.
  return UpdateAmax(exec, 2 * context_.size(), context_.size(), skip);
}

absl::Status BlockScaling::QuantizeWeights(const kernels::Exec& exec,
                                           const WeightRange& weights,
                                           const int32_t* skip,
                                           uint64_t* counter) const {
  kernels::BlockQuantizeArgs args;
  args.tensors = absl::MakeConstSpan(weights_).subspan(weights.first, weights.count);
  args.skip = skip;
  args.counter = counter;
  return kernels::BlockQuantize(exec, args);
}

}  // namespace hearth::trainer
