#include "common/spec/plan/op_scratch.h"

#include <algorithm>

#include "common/formats/head_layout.h"
#include "common/formats/product_scratch.h"
#include "common/spec/optimizer/orthogonal_work.h"

namespace hearth::spec {
namespace {

// Most bytes that cuDNN's fused attention takes for an element of q (kernels/attention/cudnn.cc),
// and with documents as sequences of their own: sums of dQ in rows as wide as q, k and v together,
// and gradients of k and v by query head for up to four documents a sample.
constexpr int64_t kAttentionBytes = 12;
constexpr int64_t kDocumentBytes = 24;

int64_t Tokens(const TrainingPlanOptions& o) {
  return o.micro_batch * o.sequence_length;
}

formats::HeadShape HeadOf(const TrainingPlanOptions& o) {
  formats::HeadShape head;
  head.tokens = Tokens(o);
  head.padded = o.shape.padded_vocab;
  head.fp8_gradient = o.training && o.precision.quantised() && o.precision.head;
  return head;
}

// The largest product that is widened where a GPU has no units for it needs this.
int64_t EmulatedBytes(const TrainingPlanOptions& o) {
  if (!o.precision.quantised() ||
      (!o.precision.recipe->column_scales() && !o.precision.recipe->mixes())) {
    return 0;
  }
  int64_t bytes = 0;
  for (const int i : QuantisedParameters(*o.table, o.precision)) {
    const Parameter& weight = (*o.table)[static_cast<size_t>(i)];
    const int64_t out = weight.shape[0];
    const int64_t in = weight.shape[1];
    bytes = std::max({bytes, formats::EmulatedProductBytes(Tokens(o), out, in),
                      formats::EmulatedProductBytes(Tokens(o), in, out),
                      formats::EmulatedProductBytes(out, in, Tokens(o))});
  }
  return bytes + formats::kProductScratchBytes;
}

int64_t EstimateOnGpu(const TrainingPlanOptions& o) {
  const auto head = static_cast<int64_t>(formats::HeadLayoutOf(HeadOf(o)).bytes);
  if (!o.training) {
    return head;
  }
  const int64_t attention =
      Tokens(o) * o.shape.q_width() * (o.documents ? kDocumentBytes : kAttentionBytes);
  int64_t bytes = std::max({head, attention, EmulatedBytes(o)});
  for (const auto& [shape, count] : OrthogonalShapes(*o.table)) {
    bytes = std::max(bytes, OrthogonalScratchBytes(shape.first, shape.second, count));
  }
  return bytes;
}

// A chunk of logits, or per thread a block of attention scores, and the partial sums of norm weight
// gradients.
int64_t EstimateOnCpu(const TrainingPlanOptions& o) {
  const int64_t element = o.wide_bytes;
  const int64_t logits_row = o.shape.padded_vocab * element;
  const int64_t logits =
      std::min(Tokens(o) * logits_row, std::max<int64_t>(int64_t{8} << 20, logits_row));
  const int64_t scores =
      int64_t{4} * o.threads * 64 * (o.sequence_length + o.shape.head_dim) * element;
  const int64_t partial_sums = int64_t{64} * 2 * o.shape.hidden * element;
  const int64_t angles = Tokens(o) * o.shape.head_dim * element;
  return std::max({logits + logits / 8, scores, partial_sums + angles});
}

}  // namespace

int64_t HeadCalls(const TrainingPlanOptions& options) {
  const int64_t chunk = formats::HeadChunk(HeadOf(options));
  return (Tokens(options) + chunk - 1) / chunk;
}

int64_t LogitsBytes(const TrainingPlanOptions& options) {
  const formats::HeadLayout layout = formats::HeadLayoutOf(HeadOf(options));
  return static_cast<int64_t>(layout.gemm - layout.logits);
}

int64_t EstimateOpScratch(const TrainingPlanOptions& options) {
  return options.wide_bytes == 0 ? EstimateOnGpu(options) : EstimateOnCpu(options);
}

}  // namespace hearth::spec
