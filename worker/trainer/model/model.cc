#include "worker/trainer/model/model.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/model/blocks/block_maker.h"
#include "worker/trainer/model/residual_dropout.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;
using spec::Slot;

Model::Model(const ModelContext& context, const ObjectiveDef& objective)
    : context_(context),
      time_(spec::TimelineOf(context.shape())),
      walk_(context.parameters->units()),
      objective_(objective),
      embedding_dropout_(ResidualDropout(context, time_.Embedding())) {
  const Arena& arena = *context_.arena;
  const spec::TokenBuffers& ids = arena.ids().batch;
  batch_.tokens = arena.Typed(ids.tokens, DType::kI32).as<int32_t>();
  batch_.targets = arena.Typed(ids.targets, DType::kI32).as<int32_t>();
  batch_.position = arena.Typed(ids.positions, DType::kI32).as<int32_t>();
  batch_.start = arena.Typed(ids.starts, DType::kI32).as<int32_t>();
  batch_.loss_weight = arena.Typed(ids.loss_weight, DType::kF32).as<float>();
  batch_.source = arena.Typed(ids.sources, DType::kI32).as<int32_t>();
  d_stream_ = arena.Floats(arena.ids().gradients.stream);
  d_normed_ = arena.Floats(arena.ids().gradients.norm);
  BindEmbedding();
  BindLayers();
  BindHead();
  if (context_.plan.training) {
    BindGradients();
  }
}

void Model::BindGradients() {
  const ParameterStore& p = *context_.parameters;
  gradients_.resize(static_cast<size_t>(time_.Update()));
  for (int i = 0; i < p.size(); ++i) {
    const spec::Parameter& parameter = p.table()[static_cast<size_t>(i)];
    // An embedding that is the output projection too is complete with the embedding's part.
    MomentGradients& at = gradients_[static_cast<size_t>(time_.Backward(parameter.block))];
    if (!parameter.roles.fprop_w || parameter.is_bias) {
      at.zeroed.push_back(p.gradient(i));
    }
    const DType to = context_.numerics.Gradient(parameter.gradient);
    if (to != p.gradient(i).dtype) {
      at.rounded.push_back({p.gradient(i), p.gradient(i), to});
    }
  }
}

void Model::BindLayers() {
  for (const spec::PlacedBlock& placed : spec::BlocksOf(context_.shape())) {
    if (placed.layer < 0) {
      continue;  // embedding and head are the model's own
    }
    if (placed.first) {
      Layer& layer = layers_.emplace_back();
      layer.input = context_.Floats(context_.Ids(placed.layer).input);
      layer.first = placed.number;
    }
    layers_.back().blocks.push_back(MakeBlock(context_, placed));
  }
}

void Model::BindEmbedding() {
  const ParameterStore& p = *context_.parameters;
  const spec::TokenBuffers& ids = context_.ids().batch;
  embedding_forward_.tokens = embedding_backward_.tokens =
      context_.arena->Typed(ids.tokens, DType::kI32);
  embedding_forward_.table = p.FindWeight(Slot::kTokenEmbedding, -1);
  embedding_forward_.position_table = p.FindWeight(Slot::kPositionEmbedding, -1);
  if (!embedding_forward_.position_table.empty()) {
    embedding_forward_.positions = embedding_backward_.positions =
        context_.arena->Typed(ids.positions, DType::kI32);
  }
  embedding_forward_.out = context_.Floats(context_.Ids(0).input);
  embedding_forward_.round_out = context_.numerics.activation;
  embedding_backward_.d_out = d_stream_;
  embedding_backward_.d_table = p.FindGradient(Slot::kTokenEmbedding, -1);
  embedding_backward_.d_position_table = p.FindGradient(Slot::kPositionEmbedding, -1);
}

void Model::BindHead() {
  const ParameterStore& p = *context_.parameters;
  const spec::ModelShape& s = context_.shape();
  const Arena& arena = *context_.arena;
  const spec::HeadBuffers& ids = arena.ids().head;
  const TensorView normed = arena.Floats(ids.norm);
  final_norm_ = std::make_unique<NormLayer>(context_, Slot::kFinalNorm, -1, arena.Floats(ids.input),
                                            arena.Floats(ids.norm_stats));
  nll_ = arena.Floats(arena.ids().batch.nll);
  top_ = arena.Typed(arena.ids().batch.top, DType::kI32);
  const int projection = spec::FindHead(p.table());
  const Slot slot = p.table()[static_cast<size_t>(projection)].slot;
  head_.hidden = normed;
  head_.weight = p.weight(projection);
  head_.targets = arena.Typed(arena.ids().batch.targets, DType::kI32);
  head_.loss_weight = arena.Typed(arena.ids().batch.loss_weight, DType::kF32);
  head_.vocab = s.vocab;
  head_.d_hidden = d_normed_;
  head_.d_weight = p.FindGradient(slot, -1);
  head_.round_logits = context_.numerics.head;
  head_.round_d_hidden = context_.numerics.dgrad;
  const bool quantised = context_.quant->Quantises(projection);
  OperandBuffers buffers;
  buffers.plain = normed;
  buffers.rows = arena.Bytes(ids.rows);
  buffers.columns = arena.Bytes(ids.columns);
  head_x_ = context_.quant->Bind(Role::kX, projection, buffers);
  if (quantised) {
    // One scale a tensor: precision.lm_head.
    const OperandForm& x = head_x_.In(spec::LayerFormat::kOwn);
    const Operand weight = context_.WOperand(slot, -1);
    const OperandForm& w = weight.In(spec::LayerFormat::kOwn);
    head_quant_ = {x.Rows(normed).values,       x.Columns(normed).values,
                   w.Rows(head_.weight).values, w.Columns(head_.weight).values,
                   x.Rows(normed).scale,        w.Rows(head_.weight).scale};
  }
}

kernels::LinearCrossEntropyArgs Model::HeadArgs(const Pass& pass,
                                                double* loss,
                                                double* weight) const {
  kernels::LinearCrossEntropyArgs head = head_;
  head.loss_sum = loss;
  head.weight_sum = weight;
  head.accumulate = pass.accumulate;
  if (head_x_.Quantised(pass)) {
    head.quant = head_quant_;
  }
  return head;
}

absl::StatusOr<kernels::AttentionEngines> Model::CheckAttention(const kernels::Exec& exec,
                                                                int64_t documents,
                                                                double tolerance) const {
  for (const Layer& layer : layers_) {
    for (const std::unique_ptr<SubBlock>& block : layer.blocks) {
      HEARTH_ASSIGN_OR_RETURN(const kernels::AttentionEngines engines,
                              block->CheckAttention(exec, documents, tolerance));
      // All layers have one shape: the first with attention speaks for all.
      if (!engines.forward.empty()) {
        return engines;
      }
    }
  }
  return kernels::AttentionEngines();
}

std::vector<int64_t> Model::DocumentBounds(const kernels::Exec& exec) const {
  for (const Layer& layer : layers_) {
    for (const std::unique_ptr<SubBlock>& block : layer.blocks) {
      std::vector<int64_t> bounds = block->DocumentBounds(exec);
      if (!bounds.empty()) {
        return bounds;
      }
    }
  }
  return {};
}

size_t Model::WorkspaceBytes(const kernels::Exec& exec) const {
  kernels::LinearCrossEntropyArgs head = head_;
  head.quant = head_quant_;
  return std::max({kernels::LinearCrossEntropyWorkspaceBytes(exec, head_),
                   kernels::LinearCrossEntropyWorkspaceBytes(exec, head),
                   HiddenWorkspaceBytes(exec)});
}

size_t Model::HiddenWorkspaceBytes(const kernels::Exec& exec) const {
  size_t bytes = final_norm_->WorkspaceBytes(context_.plan.training);
  if (context_.plan.training) {
    bytes = std::max(bytes, kernels::EmbeddingBackwardWorkspaceBytes(embedding_backward_));
  }
  // All layers have the same shapes; the outer ones may be in high precision.
  for (const Layer& layer : layers_) {
    for (const std::unique_ptr<SubBlock>& block : layer.blocks) {
      bytes = std::max(bytes, block->WorkspaceBytes(exec));
    }
  }
  return bytes;
}

absl::Status Model::Begin(const kernels::Exec& exec, const Pass& pass, bool backward) {
  if (context_.lane != nullptr) {
    context_.lane->Begin(backward);
  }
  return walk_.Begin(exec, pass.weights, backward);
}

absl::Status Model::Before(const kernels::Exec& exec, const Pass& pass, int block) {
  if (pass.hook != nullptr) {
    HEARTH_RETURN_IF_ERROR(pass.hook->BeforeForward(exec, time_.Forward(block)));
  }
  return Enter(exec, pass, block, true);
}

absl::Status Model::Enter(const kernels::Exec& exec, const Pass& pass, int block, bool forward) {
  HEARTH_ASSIGN_OR_RETURN(const int arrived, walk_.Enter(exec, block));
  return arrived < 0 ? absl::OkStatus() : context_.quant->Arrived(exec, pass, arrived, forward);
}

absl::Status Model::BeforeBackward(const kernels::Exec& exec,
                                   const Pass& pass,
                                   int32_t moment) const {
  if (pass.hook != nullptr) {
    HEARTH_RETURN_IF_ERROR(pass.hook->BeforeBackward(exec, moment));
  }
  if (pass.accumulate) {
    return absl::OkStatus();
  }
  // Gradients of products' weights are overwritten (beta 0); all others are added to.
  for (const TensorView& gradient : gradients_[static_cast<size_t>(moment)].zeroed) {
    HEARTH_RETURN_IF_ERROR(kernels::Zero(exec, gradient.data, gradient.bytes()));
  }
  return absl::OkStatus();
}

absl::Status Model::AfterBackward(const kernels::Exec& exec,
                                  const Pass& pass,
                                  int32_t moment) const {
  for (const kernels::RoundToArgs& round : gradients_[static_cast<size_t>(moment)].rounded) {
    HEARTH_RETURN_IF_ERROR(kernels::RoundTo(exec, round));
  }
  return pass.hook == nullptr ? absl::OkStatus() : pass.hook->AfterBackward(exec, moment);
}

absl::Status Model::ForwardLayer(const kernels::Exec& exec,
                                 const Pass& pass,
                                 size_t number,
                                 Stream& stream) {
  const Layer& layer = layers_[number];
  ActivationLane* const lane = context_.lane;
  HEARTH_RETURN_IF_ERROR(lane == nullptr ? absl::OkStatus() : lane->BeforeForward(exec, number));
  for (size_t b = 0; b < layer.blocks.size(); ++b) {
    HEARTH_RETURN_IF_ERROR(Before(exec, pass, layer.number(b)));
    HEARTH_RETURN_IF_ERROR(layer.blocks[b]->Forward(exec, pass, stream));
  }
  return lane == nullptr ? absl::OkStatus() : lane->AfterForward(exec, number);
}

absl::Status Model::Forward(const kernels::Exec& exec, const Pass& pass) {
  HEARTH_RETURN_IF_ERROR(Before(exec, pass, time_.Embedding()));
  HEARTH_RETURN_IF_ERROR(kernels::EmbeddingForward(exec, embedding_forward_));
  HEARTH_RETURN_IF_ERROR(DropForward(exec, pass, embedding_dropout_, embedding_forward_.out));
  Stream stream = {embedding_forward_.out, TensorView()};
  for (size_t l = 0; l < layers_.size(); ++l) {
    HEARTH_RETURN_IF_ERROR(ForwardLayer(exec, pass, l, stream));
  }
  HEARTH_RETURN_IF_ERROR(Before(exec, pass, time_.Head()));
  // The final norm adds what the last block left in the stream, and writes the head's operand.
  HEARTH_RETURN_IF_ERROR(final_norm_->Forward(exec, stream, head_x_.Target(pass, false)));
  return head_x_.Settle(exec, pass);
}

absl::Status Model::Backward(const kernels::Exec& exec, const Pass& pass) {
  HEARTH_RETURN_IF_ERROR(final_norm_->Backward(exec, pass, d_normed_, d_stream_, false,
                                               layers_.back().blocks.back()->OutputGradient()));
  HEARTH_RETURN_IF_ERROR(AfterBackward(exec, pass, time_.Head()));
  for (size_t l = layers_.size(); l-- > 0;) {
    HEARTH_RETURN_IF_ERROR(BackwardLayer(exec, pass, l));
  }
  HEARTH_RETURN_IF_ERROR(walk_.End(exec));
  HEARTH_RETURN_IF_ERROR(BeforeBackward(exec, pass, time_.EmbeddingBackward()));
  HEARTH_RETURN_IF_ERROR(BackwardEmbedding(exec, pass));
  return AfterBackward(exec, pass, time_.EmbeddingBackward());
}

absl::Status Model::BackwardLayer(const kernels::Exec& exec, const Pass& pass, size_t number) {
  const Layer& layer = layers_[number];
  const Operand* const before =
      number == 0 ? nullptr : layers_[number - 1].blocks.back()->OutputGradient();
  ActivationLane* const lane = context_.lane;
  HEARTH_RETURN_IF_ERROR(lane == nullptr ? absl::OkStatus() : lane->BeforeBackward(exec, number));
  HEARTH_RETURN_IF_ERROR(Enter(exec, pass, layer.first, false));
  Pass again = pass;
  again.count = false;  // forward has
  // The whole layer in the order of forward, before any of its blocks goes backward: where a level
  // recomputes whole blocks, each begins with what the one before it makes again.
  Stream stream = {layer.input, TensorView()};
  for (const std::unique_ptr<SubBlock>& block : layer.blocks) {
    HEARTH_RETURN_IF_ERROR(block->Restore(exec, again, stream));
  }
  for (size_t b = layer.blocks.size(); b-- > 0;) {
    const int32_t moment = time_.Backward(layer.number(b));
    const Operand* next = b == 0 ? before : layer.blocks[b - 1]->OutputGradient();
    HEARTH_RETURN_IF_ERROR(BeforeBackward(exec, pass, moment));
    HEARTH_RETURN_IF_ERROR(layer.blocks[b]->Backward(exec, pass, d_stream_, next));
    HEARTH_RETURN_IF_ERROR(AfterBackward(exec, pass, moment));
  }
  return lane == nullptr ? absl::OkStatus() : lane->AfterBackward(exec, number);
}

absl::Status Model::BackwardEmbedding(const kernels::Exec& exec, const Pass& pass) {
  TensorView d_out = d_stream_;
  HEARTH_RETURN_IF_ERROR(DropBackward(exec, pass, embedding_dropout_, d_stream_, d_out));
  return kernels::EmbeddingBackward(exec, embedding_backward_);
}

absl::Status Model::ForwardBackward(
    const kernels::Exec& exec, const Pass& pass, double d_loss, double* loss, double* weight) {
  if (pass.format.own()) {
    HEARTH_RETURN_IF_ERROR(context_.quant->BeginMicroBatch(exec));
  }
  HEARTH_RETURN_IF_ERROR(Begin(exec, pass, /*backward=*/true));
  HEARTH_RETURN_IF_ERROR(Forward(exec, pass));
  kernels::LinearCrossEntropyArgs head = HeadArgs(pass, loss, weight);
  head.d_loss = d_loss;
  if (pass.source_sums != nullptr) {
    head.source = context_.arena->Typed(context_.ids().batch.sources, DType::kI32);
    head.source_sums = pass.source_sums;
    head.sources = context_.plan.sources;
  }
  HEARTH_RETURN_IF_ERROR(BeforeBackward(exec, pass, time_.Head()));
  HEARTH_RETURN_IF_ERROR(objective_.head(exec, head));
  return Backward(exec, pass);
}

absl::Status Model::ForwardLoss(const kernels::Exec& exec,
                                const Pass& pass,
                                double* loss,
                                double* weight) {
  if (pass.format.own()) {
    HEARTH_RETURN_IF_ERROR(context_.quant->BeginMicroBatch(exec));
  }
  HEARTH_RETURN_IF_ERROR(Begin(exec, pass, /*backward=*/false));
  HEARTH_RETURN_IF_ERROR(Forward(exec, pass));
  kernels::LinearCrossEntropyArgs head = HeadArgs(pass, loss, weight);
  head.d_hidden = TensorView();
  head.d_weight = TensorView();
  head.nll = nll_;
  head.top = top_;
  HEARTH_RETURN_IF_ERROR(objective_.head(exec, head));
  return walk_.End(exec);
}

absl::Status Model::IdleBlocks(const kernels::Exec& exec, const Pass& pass) {
  for (int block = 0; block < time_.blocks; ++block) {
    HEARTH_RETURN_IF_ERROR(Before(exec, pass, block));
  }
  return absl::OkStatus();
}

absl::Status Model::IdleForwardBackward(const kernels::Exec& exec, const Pass& idle) {
  Pass pass = idle;
  pass.format = {};  // nobody reads quantised weights
  HEARTH_RETURN_IF_ERROR(walk_.Begin(exec, pass.weights, /*backward=*/true));
  HEARTH_RETURN_IF_ERROR(IdleBlocks(exec, pass));
  const auto backward = [&](int block) -> absl::Status {
    if (pass.hook == nullptr) {
      return absl::OkStatus();
    }
    const int32_t moment = time_.Backward(block);
    HEARTH_RETURN_IF_ERROR(pass.hook->BeforeBackward(exec, moment));
    return pass.hook->AfterBackward(exec, moment);
  };
  HEARTH_RETURN_IF_ERROR(backward(time_.Head()));
  for (size_t l = layers_.size(); l-- > 0;) {
    HEARTH_RETURN_IF_ERROR(Enter(exec, pass, layers_[l].first, false));
    for (size_t b = layers_[l].blocks.size(); b-- > 0;) {
      HEARTH_RETURN_IF_ERROR(backward(layers_[l].number(b)));
    }
  }
  HEARTH_RETURN_IF_ERROR(walk_.End(exec));
  return backward(time_.Embedding());
}

absl::Status Model::IdleForward(const kernels::Exec& exec, const Pass& idle) {
  Pass pass = idle;
  pass.format = {};
  HEARTH_RETURN_IF_ERROR(walk_.Begin(exec, pass.weights, /*backward=*/false));
  HEARTH_RETURN_IF_ERROR(IdleBlocks(exec, pass));
  return walk_.End(exec);
}

absl::Status Model::ForwardHidden(const kernels::Exec& exec, const Pass& pass) {
  HEARTH_RETURN_IF_ERROR(Begin(exec, pass, /*backward=*/false));
  return Forward(exec, pass);
}

absl::Status Model::Logits(const kernels::Exec& exec,
                           const TensorView& hidden,
                           const TensorView& logits) const {
  kernels::LinearLogitsArgs args;
  args.hidden = hidden;
  args.weight = head_.weight;
  args.logits = logits;
  args.round_logits = context_.numerics.head;
  return kernels::LinearLogits(exec, args);
}

absl::Status Model::ForwardLogits(const kernels::Exec& exec,
                                  int64_t row,
                                  const TensorView& logits) {
  HEARTH_RETURN_IF_ERROR(ForwardHidden(exec));
  const TensorView& normed = hidden();
  const int64_t width = context_.shape().hidden;
  const TensorView one(
      static_cast<void*>(normed.as<uint8_t>() + kernels::DTypeBytes(normed.dtype, row * width)),
      normed.dtype, {1, width});
  return Logits(exec, one, logits);
}

}  // namespace hearth::trainer
