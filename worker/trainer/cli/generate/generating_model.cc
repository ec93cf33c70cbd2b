#include "worker/trainer/cli/generate/generating_model.h"

#include <cstdio>

#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/io/verified_files.h"
#include "common/spec/recipe/forward_recipe.h"
#include "worker/trainer/checkpoint/folder_weights.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/device/rank_device.h"

namespace hearth::trainer {

absl::StatusOr<std::unique_ptr<GeneratingModel>> OpenGeneratingModel(
    const GeneratingModelOptions& options) {
  auto model = std::make_unique<GeneratingModel>();
  if (options.device != "cpu") {
    HEARTH_ASSIGN_OR_RETURN(model->cuda, OpenGpu(options.device, options.deterministic));
  }
  const absl::StatusOr<const spec::Recipe*> recipe =
      spec::GenerationRecipe(options.weights, model->cuda != nullptr ? "cuda" : "cpu");
  if (!recipe.ok()) {
    return Annotate(recipe.status(), "--weights");
  }
  GeneratorOptions generator = options.generator;
  model->recipe = *recipe;
  generator.recipe = model->recipe->name;
  generator.threads = ThreadsOrAll(options.threads);
  generator.cuda = model->cuda.get();
  HEARTH_ASSIGN_OR_RETURN(model->generator, Generator::Create(generator));
  return model;
}

absl::Status PrepareGeneratingModel(GeneratingModel& model) {
  HEARTH_RETURN_IF_ERROR(model.generator->Prepare());
  if (model.cuda == nullptr) {
    return absl::OkStatus();
  }
  if (const absl::Status saved = model.cuda->SavePlans(); !saved.ok()) {
    std::fprintf(stderr, "plans are not kept: %s\n", std::string(saved.message()).c_str());
  }
  return absl::OkStatus();
}

absl::Status VerifyFolder(const FolderChoice& weights) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<RecordedFile> files,
                          RecordedModelFiles(*weights.env, weights.folder, weights.choice));
  return VerifyFiles(files);
}

absl::StatusOr<std::unique_ptr<GeneratingModel>> OpenFolderModel(
    const GeneratingModelOptions& options, const FolderChoice& weights) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<GeneratingModel> model, OpenGeneratingModel(options));
  const Generator& generator = *model->generator;
  HEARTH_RETURN_IF_ERROR(LoadFolderWeights(*weights.env, weights.folder, generator.exec(),
                                           generator.parameters(), weights.choice));
  HEARTH_RETURN_IF_ERROR(PrepareGeneratingModel(*model));
  return model;
}

}  // namespace hearth::trainer
