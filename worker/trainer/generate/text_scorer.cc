#include "worker/trainer/generate/text_scorer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/plan/step_buffers.h"
#include "common/spec/recipe/recipe.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/objective/objective.h"
#include "worker/trainer/precision/numerics.h"

namespace hearth::trainer {

using kernels::DType;

namespace {

absl::Status CheckShape(const spec::ModelShape& model, const ScoringShape& shape, int64_t tokens) {
  const std::string pass = absl::StrCat("training's forward pass of ", shape.micro_batch, " x ",
                                        shape.length, " tokens");
  if (shape.micro_batch < 1 || shape.length < 1) {
    return absl::InvalidArgumentError(absl::StrCat(pass, ": both must be at least 1"));
  }
  if (model.max_position > 0 && shape.length > model.max_position) {
    return absl::InvalidArgumentError(
        absl::StrCat(pass, ": the model learned ", model.max_position, " positions"));
  }
  // The last token is only a target.
  return tokens <= shape.length + 1
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   absl::StrCat(pass, " has no room for texts of ", tokens,
                                " tokens, prompt included; it has for ", shape.length + 1,
                                ": ask for fewer tokens, for a longer sequence, or for the ",
                                "log-probabilities of generation"));
}

}  // namespace

absl::StatusOr<spec::TrainingPlanOptions> ScoringPlan(const spec::TrainingPlanOptions& model,
                                                      const ScoringShape& shape,
                                                      int64_t tokens) {
  HEARTH_RETURN_IF_ERROR(CheckShape(model.shape, shape, tokens));
  spec::TrainingPlanOptions pass = model;
  pass.micro_batch = shape.micro_batch;
  pass.sequence_length = shape.length;
  pass.op_workspace_bytes = 0;
  if (model.recipe->quantised()) {
    pass.recipe = &spec::PlainRecipe();
    pass.precision = {};
    if (pass.recipe->parameters.storage != model.recipe->parameters.storage) {
      return absl::UnimplementedError(
          absl::StrCat("log-probabilities of training: ", std::string(model.recipe->name),
                       " keeps weights in another format than ", std::string(pass.recipe->name)));
    }
  }
  return pass;
}

absl::StatusOr<size_t> TextScorer::MeasureScratch(const spec::TrainingPlanOptions& options,
                                                  const spec::TrainingPlan& plan,
                                                  const ParameterStore& parameters,
                                                  const kernels::Exec& exec,
                                                  bool documents) {
  TextScorer scorer;
  scorer.exec_ = exec;
  scorer.arena_ = Arena::WithoutMemory(plan, exec.device, DType::kF32);
  HEARTH_RETURN_IF_ERROR(scorer.Bind(options, parameters, documents));
  return scorer.model_->WorkspaceBytes(exec);
}

absl::StatusOr<std::unique_ptr<TextScorer>> TextScorer::Create(
    const spec::TrainingPlanOptions& options,
    spec::TrainingPlan plan,
    const ParameterStore& parameters,
    const Arena& all,
    const spec::GenerationBuffers& ids,
    const kernels::Exec& exec,
    bool documents) {
  std::unique_ptr<TextScorer> scorer(new TextScorer());
  scorer->exec_ = exec;
  scorer->arena_ = Arena::Within(std::move(plan), exec, DType::kF32, all.Bytes(ids.scoring));
  HEARTH_RETURN_IF_ERROR(scorer->Bind(options, parameters, documents));
  scorer->BindHost(all, ids);
  return scorer;
}

absl::Status TextScorer::Bind(const spec::TrainingPlanOptions& options,
                              const ParameterStore& parameters,
                              bool documents) {
  options_ = options;
  ModelContext context;
  context.plan = options;
  context.plan.training = false;
  HEARTH_ASSIGN_OR_RETURN(
      context.numerics,
      MakeNumerics(*options.recipe, spec::GradientFormats(*options.table), DType::kF32));
  context.arena = arena_.get();
  context.parameters = &parameters;
  context.quant = &quant_;
  context.documents = documents;
  // All objectives have one loss of a token.
  model_ = std::make_unique<Model>(context, *FindObjectiveDef(spec::ObjectiveKind::kPretrain));
  const spec::BufferId workspace = arena_->ids().workspace;
  exec_.workspace = {arena_->Bytes(workspace), static_cast<size_t>(arena_->BytesOf(workspace))};
  return absl::OkStatus();
}

void TextScorer::BindHost(const Arena& all, const spec::GenerationBuffers& ids) {
  losses_ = reinterpret_cast<double*>(all.Bytes(ids.losses));
  staged_ = model_->batch();
  uint8_t* const host = all.Bytes(ids.scoring_staging);
  if (host == nullptr) {
    return;
  }
  const spec::BatchLayout layout = spec::BatchLayout::Of(model_->rows(), 0);
  staged_.tokens = reinterpret_cast<int32_t*>(host + layout.tokens);
  staged_.targets = reinterpret_cast<int32_t*>(host + layout.targets);
  staged_.position = reinterpret_cast<int32_t*>(host + layout.positions);
  staged_.start = reinterpret_cast<int32_t*>(host + layout.starts);
  staged_.loss_weight = reinterpret_cast<float*>(host + layout.loss_weight);
  host_nll_ = reinterpret_cast<float*>(host + layout.bytes);
}

absl::Status TextScorer::Upload() const {
  if (host_nll_ == nullptr) {
    return absl::OkStatus();
  }
  const BatchBuffers to = model_->batch();
  const auto bytes = static_cast<size_t>(model_->rows()) * 4;
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, to.tokens, staged_.tokens, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, to.targets, staged_.targets, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, to.position, staged_.position, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, to.start, staged_.start, bytes));
  return kernels::Copy(exec_, to.loss_weight, staged_.loss_weight, bytes);
}

absl::StatusOr<const float*> TextScorer::RunPass() {
  HEARTH_RETURN_IF_ERROR(Upload());
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec_, losses_, 2 * sizeof(double)));
  HEARTH_RETURN_IF_ERROR(model_->ForwardLoss(exec_, Pass{}, &losses_[0], &losses_[1]));
  const kernels::TensorView nll = arena_->Floats(arena_->ids().batch.nll);
  if (host_nll_ == nullptr) {
    return nll.as<float>();
  }
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, host_nll_, nll.data, nll.bytes()));
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec_));
  return host_nll_;
}

absl::StatusOr<std::vector<std::vector<float>>> TextScorer::Score(
    absl::Span<const ScoreRequest> requests) {
  ScoreShape shape;
  shape.micro_batch = options_.micro_batch;
  shape.length = options_.sequence_length;
  shape.vocab = options_.shape.vocab;
  HEARTH_ASSIGN_OR_RETURN(const ScoreBatches batches, ScoreBatches::Place(shape, requests));
  std::vector<std::vector<float>> log_probs(requests.size());
  // Passes of the generator may still read what lies here.
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec_));
  for (int64_t i = 0; i < batches.size(); ++i) {
    batches.Fill(i, staged_);
    HEARTH_ASSIGN_OR_RETURN(const float* const nll, RunPass());
    for (const ScoreBatches::Scored& scored : batches.ScoredIn(i)) {
      std::vector<float>& own = log_probs[scored.request];
      for (int64_t k = 0; k < requests[scored.request].scored; ++k) {
        own.push_back(-nll[scored.row + k]);
      }
    }
  }
  return log_probs;
}

}  // namespace hearth::trainer
