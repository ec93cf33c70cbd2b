#include "common/spec/plan/blocks/ffn_block.h"

#include "common/spec/plan/blocks/block.h"

namespace hearth::spec {
namespace {

using Ids = DenseFfnBuffers;

Handle Id(BufferId Ids::*id) {
  return Of(&LayerBuffers::ffn, id);
}

std::vector<WeightRow> Weights(const ModelShape& s) {
  const bool bias = s.spec.mlp_bias();
  const WeightRow in =
      s.activation == Activation::kSwiglu
          ? LinearWeight(Slot::kFfnIn, "gate_up",
                         {{"gate", {"mlp.gate_proj", "", "mlp.gate_up_proj"}, s.ffn_hidden},
                          {"up", {"mlp.up_proj", "", "mlp.gate_up_proj"}, s.ffn_hidden}},
                         s.hidden, bias)
          : LinearWeight(Slot::kFfnIn, "fc", {{"fc", {"mlp.up_proj", "mlp.c_fc"}, s.ffn_hidden}},
                         s.hidden, bias);
  WeightRow down =
      LinearWeight(Slot::kFfnDown, "down", {{"down", {"mlp.down_proj", "mlp.c_proj"}, s.hidden}},
                   s.ffn_hidden, bias);
  down.init_scale = ResidualScale(s);
  return {NormWeight(Slot::kFfnNorm, "ffn_norm", {"post_attention_layernorm", "ln_2"}, s.hidden,
                     s.norm),
          in, down};
}

bool BackwardMakesColumns(const BlockScope& b) {
  return b.narrow || b.columns_again;
}

// Where the activation's backward writes quantised columns, and down's x is quantised too, it makes
// those of its output again in the same pass, and so comes between down's dgrad and wgrad.
bool DownGradientWaits(const BlockScope& b) {
  if (!b.narrow || b.shape.activation != Activation::kSwiglu) {
    return false;
  }
  const PrecisionPlan& precision = b.options.precision;
  return precision.RecipeOf(Slot::kFfnDown).wgrad.a.scale_known_before() &&
         precision.RecipeOf(Slot::kFfnIn).wgrad.b.scale_known_before();
}

// The product of gate and up may write the rows of SwiGLU's output in its own kernel
// (kernels/gated_gemm).
bool ProductWritesActivated(const BlockScope& b) {
  return b.narrow && b.shape.activation == Activation::kSwiglu &&
         b.options.precision.RecipeOf(Slot::kFfnDown).fprop.a.scale_known_before();
}

std::vector<GemmSites> Sites(const ModelShape& /*shape*/) {
  GemmSites in = NormedSites(Slot::kFfnIn, Id, Id(&Ids::projected), Recompute::kFfn);
  in.x_rows_apart = &ProductWritesActivated;
  return {
      in,
      {.weight = Slot::kFfnDown,
       .x = Id(&Ids::activated),
       .x_columns = Id(&Ids::activated_columns),
       .dy = Of(&GradientBuffers::stream),
       .backward_makes_columns = &BackwardMakesColumns,
       .dy_waits = &DownGradientWaits},
  };
}

std::vector<ActivationRow> Activations(const BlockScope& b) {
  const ModelShape& s = b.shape;
  const int64_t n = b.tokens;
  std::vector<ActivationRow> rows = NormedRows(b, Id, Of(&GradientBuffers::norm));
  rows.insert(rows.end(),
              {
                  {.id = Id(&Ids::projected),
                   .name = "projected",
                   .shape = {n, s.ffn_in_width()},
                   .format = b.activation,
                   .shared_from = b.narrow ? Recompute::kNone : Recompute::kFfn},
                  {.id = Id(&Ids::kept),
                   .name = "kept",
                   .bytes = b.narrow ? n * s.ffn_in_width() + n * s.ffn_in_width() / kKeptBlock : 0,
                   .shared_from = Recompute::kFfn,
                   .in_quantised_layers = true},
                  {.id = Id(&Ids::activated),
                   .name = "activated",
                   .shape = {n, s.ffn_hidden},
                   .format = b.activation,
                   .shared_from = b.plain_operand,
                   .stand_in = Of(&GradientBuffers::ffn, &DenseFfnGradients::activated)},
                  ColumnsRow(b, Id(&Ids::activated_columns), "activated_columns", s.ffn_hidden,
                             BackwardMakesColumns(b), Recompute::kNormAct),
              });
  return rows;
}

std::vector<WorkRow> Work(const BlockScope& b) {
  return {GradientRow(b, Of(&GradientBuffers::ffn, &DenseFfnGradients::activated), "grad.ffn_act",
                      b.shape.ffn_hidden)};
}

// The activation function reads `in` values and writes `out`; backward reads `in` and a gradient,
// and writes another. Narrow passes keep the input in 8 bits and make the columns of the output
// again in backward.
std::vector<PassRow> Passes(const BlockScope& b) {
  const ModelShape& s = b.shape;
  const double w = b.ActivationBytes();
  const double o = b.OperandBytes();
  const auto in = static_cast<double>(s.ffn_in_width());
  const auto out = static_cast<double>(s.ffn_hidden);
  const double kept = b.narrow ? in * (1 + 1.0 / kKeptBlock) : in * w;
  PassRow activation = {.name = "activation function", .again_from = Recompute::kNormAct};
  if (b.quantised) {
    activation.forward_bytes = in * w + out * o + (b.narrow ? kept : out * o);
    activation.backward_bytes = kept + out * w + 2 * in * o + (b.narrow ? out * o : 0);
  } else {
    activation.forward_bytes = (in + out) * w;
    activation.backward_bytes = (2 * in + out) * w;
  }
  std::vector<PassRow> rows = {NormPass(b), activation};
  if (s.spec.mlp_bias()) {
    rows.push_back(BiasPass(b, s.ffn_in_width() + s.hidden));
  }
  return rows;
}

}  // namespace

constinit const Block kDenseFfnBlock = {"ffn", &Weights, &Sites, &Activations, &Work, &Passes};

}  // namespace hearth::spec
