// A generator on the device that a command names.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/spec/recipe/recipe.h"
#include "common/weights/model_files.h"
#include "kernels/cuda/context.h"
#include "worker/trainer/generate/generator.h"

namespace hearth::trainer {

struct GeneratingModelOptions {
  GeneratorOptions generator;  // but recipe, threads and cuda, which follow
  std::string device;          // cpu | cuda:N
  std::string weights;         // a name that GenerationRecipe takes; empty: the default
  int threads = 0;             // 0 = all cores
  // CudaOptions::deterministic; the CPU always is.
  bool deterministic = false;
};

struct GeneratingModel {
  std::unique_ptr<kernels::CudaContext> cuda;  // outlives the generator; null: the CPU
  std::unique_ptr<Generator> generator;
  const spec::Recipe* recipe = nullptr;  // of the weights; a row
};

// Weights are zero. Errors: those of OpenGpu and Generator::Create; kInvalidArgument: no such
// device or format of weights.
absl::StatusOr<std::unique_ptr<GeneratingModel>> OpenGeneratingModel(
    const GeneratingModelOptions& options);

// Once its weights are there: Generator::Prepare, and plans of products are kept.
absl::Status PrepareGeneratingModel(GeneratingModel& model);

// Weights of a checkpoint or another Hugging Face folder.
struct FolderChoice {
  std::string folder;
  weights::WeightChoice choice = weights::WeightChoice::kStep;
  Env* env = &Env::Real();
};

// Against the hashes recorded for the folder. Comes before anything is read from it: changed bytes
// of its tokenizer would fail in another way, or pass. Errors: those of VerifyFiles.
absl::Status VerifyFolder(const FolderChoice& weights);

// Ready to write with them. Errors also those of LoadFolderWeights.
absl::StatusOr<std::unique_ptr<GeneratingModel>> OpenFolderModel(
    const GeneratingModelOptions& options, const FolderChoice& weights);

}  // namespace hearth::trainer
