#include "worker/trainer/precision/block/block_scaling.h"

#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/model/pass.h"
#include "worker/trainer/precision/plain/plain_copy.h"

namespace hearth::trainer {

using kernels::BlockQuantView;
using kernels::TensorView;

namespace {

// Whether one call can write both forms.
bool InOnePass(const spec::Operand& rows, const spec::Operand& columns) {
  return rows.dtype == columns.dtype && rows.layout == columns.layout &&
         rows.square == columns.square;
}

// What both forms have in common.
BlockQuantView Common(const spec::Operand& operand, const BlockQuantView& key) {
  BlockQuantView quant = key;
  quant.dtype = operand.dtype;
  quant.layout = operand.layout;
  quant.square = operand.square;
  return quant;
}

absl::Status QuantizeOne(const kernels::Exec& exec,
                         const TensorView& plain,
                         const BlockQuantView& quant) {
  if (quant.empty()) {
    return absl::OkStatus();
  }
  const kernels::BlockQuantizeTensor tensor = {plain, quant};
  kernels::BlockQuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return kernels::BlockQuantize(exec, args);
}

// x or dy.
class BlockOperand : public StoredForm {
 public:
  BlockOperand(const BlockScaling& scaling, Role role, int k, const OperandBuffers& b)
      : StoredForm(scaling.Product(scaling.context().Operands(role, k).rows,
                                   scaling.context().Site(role, k),
                                   false,
                                   b.rows,
                                   b.plain.rows(),
                                   b.plain.cols()),
                   scaling.Product(scaling.context().Operands(role, k).columns,
                                   scaling.context().Site(role, k),
                                   true,
                                   b.columns,
                                   b.plain.cols(),
                                   b.plain.rows())),
        scaling_(scaling),
        operands_(scaling.context().Operands(role, k)),
        site_(scaling.context().Site(role, k)),
        rotation_(static_cast<uint32_t>(k)),
        buffers_(b) {}

  OperandTarget Target(const Pass& pass, bool keep_plain, bool blocks, Forms forms) const override {
    // A producer writes forms of one kind, in one pass, for scales that are known.
    const bool by_producer = blocks && operands_.rows.quantised() &&
                             operands_.columns.quantised() && !own_scale() &&
                             InOnePass(operands_.rows, operands_.columns);
    OperandTarget target;
    target.plain = keep_plain || !by_producer ? buffers_.plain : TensorView();
    if (by_producer) {
      BlockForms made = Blocks(pass, forms);
      target.blocks = made.rows;
      target.blocks.columns = made.columns.columns;
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
    if (own_scale() && forms != Forms::kColumns) {
      HEARTH_RETURN_IF_ERROR(scaling_.ScaleTensor(exec, site_, plain));
    }
    BlockForms made = Blocks(pass, forms);
    if (InOnePass(operands_.rows, operands_.columns)) {
      made.rows.columns = made.columns.columns;
      made.columns = {};
    }
    HEARTH_RETURN_IF_ERROR(QuantizeOne(exec, plain, made.rows));
    HEARTH_RETURN_IF_ERROR(QuantizeOne(exec, plain, made.columns));
    HEARTH_RETURN_IF_ERROR(CopyPlain(exec, plain, made.plain_rows));
    return CopyPlain(exec, plain, made.plain_columns);
  }

 private:
  // What is to be written of the forms: each in blocks or as a copy.
  struct BlockForms {
    BlockQuantView rows;
    BlockQuantView columns;
    void* plain_rows = nullptr;
    void* plain_columns = nullptr;
  };

  bool own_scale() const {
    return operands_.rows.own_tensor_scale || operands_.columns.own_tensor_scale;
  }

  BlockQuantView Key(const Pass& pass) const {
    BlockQuantView key;
    key.key.seed = pass.seed;
    key.key.step = pass.step;
    key.key.micro_batch = pass.micro_batch;
    key.key.tensor = static_cast<uint32_t>(site_);
    key.position = pass.position;
    key.rotation = rotation_;
    return key;
  }

  BlockForms Blocks(const Pass& pass, Forms forms) const {
    const ScalingContext& context = scaling_.context();
    const int64_t rows = buffers_.plain.rows();
    const int64_t cols = buffers_.plain.cols();
    const BlockQuantView key = Key(pass);
    BlockForms made;
    // Magnitude and counts are taken with the rows, once a tensor.
    if (forms != Forms::kColumns) {
      // A view in some layout carries the magnitude also where the rows are a copy.
      made.rows = operands_.rows.quantised() ? Common(operands_.rows, key) : key;
      made.rows.amax = pass.record ? context.sites.At(site_).amax : nullptr;
      if (operands_.rows.quantised()) {
        made.rows.rows = scaling_.Form(operands_.rows, site_, false, buffers_.rows, rows, cols);
        made.rows.rows.counts = pass.count ? context.counts + 2 * site_ : nullptr;
      } else {
        made.plain_rows = buffers_.rows;
      }
    }
    // Evaluation has no use for columns.
    if (forms != Forms::kRows && pass.record) {
      if (operands_.columns.quantised()) {
        made.columns = Common(operands_.columns, key);
        made.columns.columns =
            scaling_.Form(operands_.columns, site_, true, buffers_.columns, cols, rows);
      } else {
        made.plain_columns = buffers_.columns;
      }
    }
    // The view of rows speaks for both where they are written together.
    if (forms == Forms::kColumns && InOnePass(operands_.rows, operands_.columns)) {
      made.rows = made.columns;
      made.rows.columns = {};
    }
    return made;
  }

  const BlockScaling& scaling_;
  FormOperands operands_;
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
  const FormOperands operands = context_.Operands(Role::kW, k);
  const int64_t site = context_.Site(Role::kW, k);
  const int64_t out = weight.weight.rows();
  const int64_t in = weight.weight.cols();
  BlockQuantView key;
  // The key of the random numbers: every tensor draws others.
  key.key.tensor = static_cast<uint32_t>(site);
  key.rotation = static_cast<uint32_t>(k);
  kernels::BlockQuantizeTensor rows = {weight.weight, Common(operands.rows, key)};
  kernels::BlockQuantizeTensor columns = {weight.weight, Common(operands.columns, key)};
  if (operands.rows.quantised()) {
    rows.quant.rows = Form(operands.rows, site, false, weight.rows, out, in);
  }
  if (operands.columns.quantised()) {
    columns.quant.columns = Form(operands.columns, site, true, weight.columns, in, out);
  }
  // Signs that are drawn in each step are not known yet when the update writes the weights: these
  // columns are made when the step begins (BeginStep).
  const bool each_step =
      operands.columns.quantised() && operands.columns.signs == spec::HadamardSigns::kSeeded;
  if (!each_step && InOnePass(operands.rows, operands.columns)) {
    rows.quant.columns = columns.quant.columns;
    columns.quant.columns = {};
  }
  rows_.Add(rows);
  columns_.Add(each_step ? kernels::BlockQuantizeTensor() : columns);
  each_step_.Add(each_step ? columns : kernels::BlockQuantizeTensor());
}

void BlockScaling::WeightForms::Add(const kernels::BlockQuantizeTensor& tensor) {
  if (!tensor.quant.empty()) {
    tensors.push_back(tensor);
  }
  ends.push_back(tensors.size());
}

absl::Span<const kernels::BlockQuantizeTensor> BlockScaling::WeightForms::Of(
    const WeightRange& weights) const {
  const size_t begin = ends[weights.first];
  return absl::MakeConstSpan(tensors).subspan(begin, ends[weights.first + weights.count] - begin);
}

std::shared_ptr<const OperandForm> BlockScaling::Bind(Role role,
                                                      int k,
                                                      const OperandBuffers& buffers) const {
  if (role != Role::kW) {
    return std::make_shared<BlockOperand>(*this, role, k, buffers);
  }
  const QuantisedWeight& weight = context_.weights[static_cast<size_t>(k)];
  const FormOperands operands = context_.Operands(role, k);
  const int64_t site = context_.Site(role, k);
  const int64_t out = weight.weight.rows();
  const int64_t in = weight.weight.cols();
  return std::make_shared<StoredForm>(
      Product(operands.rows, site, false, weight.rows, out, in),
      Product(operands.columns, site, true, weight.columns, in, out));
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
  if (operand.tensor_scale()) {
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
  if (!operand.quantised()) {
    return columns ? PlainCopy(data, extent, lines, true) : PlainCopy(data, lines, extent, false);
  }
  ProductOperand product;
  product.values = TensorView(data, operand.dtype, {lines, extent});
  product.block_scales =
      static_cast<const uint8_t*>(data) + spec::FormScaleOffset(operand, lines, extent);
  product.layout = operand.layout;
  product.scale = operand.tensor_scale() ? TensorScale(site, columns) : nullptr;
  return product;
}

absl::Status BlockScaling::Reset(const kernels::Exec& exec) const {
  return FillOnes(exec, column_scale_inverse_, 3 * context_.size() * kernels::kScaleInverseStride);
}

void BlockScaling::BindStep(uint64_t seed, const kernels::StepInputs* position) {
  for (kernels::BlockQuantizeTensor& tensor : each_step_.tensors) {
    tensor.quant.key.seed = seed;
    tensor.quant.position = position;
  }
}

absl::Status BlockScaling::BeginStep(const kernels::Exec& exec, const WeightRange& weights) const {
  kernels::BlockQuantizeArgs args;
  args.tensors = each_step_.Of(weights);
  return args.tensors.empty() ? absl::OkStatus() : kernels::BlockQuantize(exec, args);
}

float BlockScaling::Margin() const {
  const spec::Recipe& recipe = *context_.precision->recipe;
  if (recipe.delayed()) {
    return kBlockMargin;
  }
  // A rotation of h elements makes none larger than sqrt(h) times the largest.
  float margin = 1.0F;
  for (const spec::Operand* operand : recipe.operands()) {
    while (margin * margin < static_cast<float>(operand->hadamard)) {
      margin *= 2;
    }
  }
  return margin;
}

absl::Status BlockScaling::UpdateAmax(const kernels::Exec& exec,
                                      int64_t first,
                                      int64_t count,
                                      const int32_t* skip) const {
  kernels::UpdateBlockAmaxArgs args;
  args.n = count;
  args.measured = context_.sites.At(first).amax;
  args.amax = context_.sites.At(first).carried;
  args.margin = Margin();
  args.skip = skip;
  return kernels::UpdateBlockAmax(exec, args);
}

absl::Status BlockScaling::ScaleTensor(const kernels::Exec& exec,
                                       int64_t site,
                                       const TensorView& plain) const {
  float* const amax = context_.sites.At(site).amax;
  // Passes that only evaluate begin with what training has left there.
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, amax, sizeof(float)));
  BlockQuantView measured;
  measured.amax = amax;
  HEARTH_RETURN_IF_ERROR(QuantizeOne(exec, plain, measured));
  return UpdateAmax(exec, site, 1, nullptr);
}

absl::Status BlockScaling::UpdateActivations(const kernels::Exec& exec, const int32_t* skip) const {
  // Without delayed scales nothing is made of magnitudes of x and dy after the step.
  return context_.precision->recipe->delayed() ? UpdateAmax(exec, 0, 2 * context_.size(), skip)
                                               : absl::OkStatus();
}

absl::Status BlockScaling::UpdateWeights(const kernels::Exec& exec, const int32_t* skip) const {
  const bool scaled = context_.precision->recipe->Any(
      [](const spec::Operand& operand) { return operand.tensor_scale(); });
  // Sites are all x, then all dy, then all weights.
  return scaled ? UpdateAmax(exec, 2 * context_.size(), context_.size(), skip) : absl::OkStatus();
}

absl::Status BlockScaling::QuantizeWeights(const kernels::Exec& exec,
                                           const WeightRange& weights,
                                           const int32_t* skip,
                                           uint64_t* counter) const {
  kernels::BlockQuantizeArgs args;
  args.skip = skip;
  for (const WeightForms* forms : {&rows_, &columns_}) {
    args.tensors = forms->Of(weights);
    // Each weight counts once.
    args.counter = forms == &rows_ ? counter : nullptr;
    HEARTH_RETURN_IF_ERROR(args.tensors.empty() ? absl::OkStatus()
                                                : kernels::BlockQuantize(exec, args));
  }
  return CopyPlainWeights(exec, context_, weights);
}

}  // namespace hearth::trainer
