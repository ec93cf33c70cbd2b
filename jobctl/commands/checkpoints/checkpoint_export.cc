#include "jobctl/commands/checkpoints/checkpoint_export.h"

#include <algorithm>
#include <filesystem>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/weights/average.h"
#include "jobctl/commands/checkpoints/checkpoint_download.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {
namespace {

const weights::ExportFormat& FormatNamed(const std::string& name) {
  return **std::find_if(std::begin(weights::kExportFormats), std::end(weights::kExportFormats),
                        [&](const weights::ExportFormat* each) { return each->name == name; });
}

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const weights::ExportFormat* format : weights::kExportFormats) {
    names.emplace_back(format->name);
  }
  return names;
}

std::string FormatHelp() {
  std::vector<std::string> lines;
  for (const weights::ExportFormat* format : weights::kExportFormats) {
    lines.push_back(absl::StrCat(std::string(format->name), ": ", std::string(format->help)));
  }
  return absl::StrJoin(lines, "; ");
}

// Names of formats of matrices; those that safetensors files have, or all.
std::vector<std::string> DTypeNames(bool all) {
  std::vector<std::string> names;
  for (const formats::StoredFormat* format : formats::kStoredFormats) {
    if (all || !format->torch.empty()) {
      names.emplace_back(format->name);
    }
  }
  return names;
}

void AddOutput(CLI::App& app, weights::ExportOptions& options) {
  app.add_option("--out", options.out, "Where to write; must not exist yet")->required();
  app.add_option("--threads", options.threads,
                 "Threads (default: half of the CPUs); does not change the result")
      ->check(CLI::Range(1, 1024));
}

weights::ExportOptions WithDType(weights::ExportOptions options, const std::string& dtype) {
  options.dtype = formats::FindStoredFormat(dtype);
  return options;
}

FileVerifier Verifier(const weights::ExportOptions& options) {
  return FileVerifier(VerifiedFilesFolder(), options.threads);
}

void Say(const Context& context, const std::string& out, const weights::Exported& done) {
  for (const std::string& note : done.notes) {
    WriteErr(absl::StrCat("note: ", note, "\n"));
  }
  if (!context.quiet) {
    WriteOut(absl::StrCat(out, ": ", done.tensors, " tensors, ", FormatBytes(done.bytes), "\n"));
  }
}

// The folders to average: of a job those of its last checkpoints.
absl::StatusOr<std::vector<LocalModel>> FindModels(Context& context,
                                                   const CheckpointAverageOptions& options) {
  std::vector<LocalModel> models;
  std::error_code unknown;
  const bool job =
      options.sources.size() == 1 && !std::filesystem::is_directory(options.sources[0], unknown);
  if (!job && options.last.has_value()) {
    return absl::InvalidArgumentError("--last is for a job's checkpoints, not for folders");
  }
  if (!job) {
    for (const std::string& source : options.sources) {
      HEARTH_ASSIGN_OR_RETURN(LocalModel model,
                              LocalModel::Find(context, source, 0, options.options.out));
      models.push_back(std::move(model));
    }
    return models;
  }
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::ListCheckpointsRequest request;
  request.set_job_id(options.sources[0]);
  HEARTH_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse response,
                          client->Call<v1::ListCheckpointsResponse>(request));
  const auto count = std::min<int64_t>(options.last.value_or(5),
                                       static_cast<int64_t>(response.checkpoints_size()));
  for (int64_t i = count; i-- > 0;) {  // newest first there
    HEARTH_ASSIGN_OR_RETURN(
        LocalModel model,
        LocalModel::Find(context, options.sources[0],
                         response.checkpoints(static_cast<int>(i)).step(), options.options.out));
    models.push_back(std::move(model));
  }
  if (models.empty()) {
    return absl::NotFoundError(absl::StrCat(options.sources[0], " has no checkpoint"));
  }
  return models;
}

}  // namespace

CLI::App* AddCheckpointExport(CLI::App& app, CheckpointExportOptions& options) {
  CLI::App* add = app.add_subcommand("export", "Write a checkpoint for other programs");
  add->add_option("source", options.source,
                  "Job id (its checkpoint is copied here first if this machine does not have it), "
                  "or a checkpoint or Hugging Face folder")
      ->required();
  add->add_option("--step", options.step, "Step of the job's checkpoint (default: the newest)")
      ->check(CLI::PositiveNumber);
  add->add_flag_callback(
      "--ema", [&options] { options.options.weights = weights::WeightChoice::kEma; },
      "Use the running average of the weights (train.ema) instead of the step's weights");
  add->add_option("--format", options.format, FormatHelp())
      ->check(CLI::IsMember(FormatNames()))
      ->capture_default_str();
  add->add_option("--dtype", options.dtype, "Format of matrices; vectors of GGUF files stay f32")
      ->check(CLI::IsMember(DTypeNames(/*all=*/true)))
      ->capture_default_str();
  add->add_option("--name", options.options.name,
                  "general.name of a GGUF file (default: the folder's name)");
  add->add_flag("!--no-tokenizer", options.options.tokenizer,
                "Write a GGUF file without tokenizer");
  AddOutput(*add, options.options);
  return add;
}

CLI::App* AddCheckpointAverage(CLI::App& app, CheckpointAverageOptions& options) {
  CLI::App* add = app.add_subcommand(
      "average", "Write a Hugging Face folder with the mean of several checkpoints' weights");
  add->add_option("source", options.sources,
                  "Job id (its last checkpoints), or checkpoint or Hugging Face folders")
      ->required();
  add->add_option("--last", options.last, "Number of the job's newest checkpoints (default: 5)")
      ->check(CLI::PositiveNumber);
  add->add_option("--dtype", options.dtype, "Format of the weights")
      ->check(CLI::IsMember(DTypeNames(/*all=*/false)))
      ->capture_default_str();
  AddOutput(*add, options.options);
  return add;
}

absl::StatusOr<int> CheckpointExport(Context& context, CheckpointExportOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(
      const LocalModel model,
      LocalModel::Find(context, options.source, options.step, options.options.out,
                       /*state=*/options.options.weights == weights::WeightChoice::kEma));
  // The name of a job says more than that of the folder that its checkpoint was copied to.
  if (options.options.name.empty() && !std::filesystem::is_directory(options.source)) {
    options.options.name = options.source;
  }
  HEARTH_ASSIGN_OR_RETURN(
      const weights::Exported done,
      weights::ExportModel(Env::Real(), Verifier(options.options), model.folder(),
                           FormatNamed(options.format), WithDType(options.options, options.dtype)));
  HEARTH_RETURN_IF_ERROR(model.Release());
  Say(context, options.options.out, done);
  return kExitOk;
}

absl::StatusOr<int> CheckpointAverage(Context& context, CheckpointAverageOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<LocalModel> models, FindModels(context, options));
  std::vector<std::string> folders;
  for (const LocalModel& model : models) {
    folders.push_back(model.folder());
  }
  HEARTH_ASSIGN_OR_RETURN(const weights::Exported done,
                          weights::AverageModels(Env::Real(), Verifier(options.options), folders,
                                                 WithDType(options.options, options.dtype)));
  for (const LocalModel& model : models) {
    HEARTH_RETURN_IF_ERROR(model.Release());
  }
  Say(context, options.options.out, done);
  if (!context.quiet) {
    WriteOut(absl::StrCat("the mean of ", folders.size(), ":\n  ", absl::StrJoin(folders, "\n  "),
                          "\n"));
  }
  return kExitOk;
}

}  // namespace hearth::jobctl
