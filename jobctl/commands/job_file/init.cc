// A job file to start from.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/dataset/dataset.h"
#include "common/io/env.h"
#include "common/spec/fields/idle.h"
#include "common/spec/recipe/forward_recipe.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_file/load_job_file.h"
#include "jobctl/views/jobs/job_template.h"

namespace hearth {

// NOLINTBEGIN(readability-identifier-naming): the build makes them of configs/job.schema.json
extern const unsigned char job_schema[];
extern const std::size_t job_schema_size;
// NOLINTEND(readability-identifier-naming)

namespace jobctl {
namespace {

constexpr const char* kSmallPreset = "hearth-tiny";
constexpr int64_t kSteps = 1000;
// So that a first run of a few steps, `submit --set train.steps=20`, needs no other change.
constexpr int64_t kStepsPerWarmupStep = 100;
constexpr const char* kSchemaFile = "job.schema.json";

struct Options {
  std::string preset;
  std::string from;
  std::string data;
  std::string file;
  std::vector<std::string> assignments;
};

std::string Absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// `text` as the name of a job: lower case, other characters as '-'.
std::string JobName(const std::string& text) {
  std::string name = absl::AsciiStrToLower(text).substr(0, 63);
  for (char& c : name) {
    c = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ? c : '-';
  }
  const auto is_end = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  name.erase(std::find_if(name.rbegin(), name.rend(), is_end).base(), name.end());
  name.erase(name.begin(), std::find_if(name.begin(), name.end(), is_end));
  return name.empty() ? "my-job" : name;
}

absl::Status SetModel(const Options& options, v1::JobSpec& spec) {
  if (options.from.empty()) {
    const std::string preset = options.preset.empty() ? kSmallPreset : options.preset;
    spec.set_name(JobName(preset));
    spec.mutable_model()->set_preset(preset);
    return absl::OkStatus();
  }
  const std::filesystem::path folder = Absolute(options.from);
  if (!Env::Real().Exists((folder / "config.json").string())) {
    return absl::NotFoundError(
        absl::StrCat("--from ", options.from,
                     ": there is no config.json; give a Hugging Face model folder, or --preset"));
  }
  spec.set_name(JobName(folder.filename().empty() ? folder.parent_path().filename().string()
                                                  : folder.filename().string()));
  spec.mutable_model()->set_from(folder.string());
  return absl::OkStatus();
}

// That --data names datasets: jobs of the file it writes would fail on anything else.
absl::Status CheckDataset(const Options& options, const std::string& path) {
  const absl::Status opened = dataset::Dataset::Open(path).status();
  if (opened.ok()) {
    return opened;
  }
  return absl::Status(opened.code(),
                      absl::StrCat("--data ", options.data, ": ", opened.message(),
                                   "; `jobctl dataset build` makes a dataset of text"));
}

// --data is a dataset, or a folder of the two that `dataset build --validation-fraction` makes.
absl::Status SetData(const Options& options, v1::JobSpec& spec) {
  const std::filesystem::path data = Absolute(options.data.empty() ? "data" : options.data);
  const std::string train = (data / "train").string();
  const std::string validation = (data / "validation").string();
  Env& env = Env::Real();
  const bool split = options.data.empty() || env.Exists(train);
  spec.mutable_data()->add_train()->set_path(split ? train : data.string());
  if (split && env.Exists(validation)) {
    spec.mutable_data()->add_validation()->set_path(validation);
  }
  if (options.data.empty()) {
    return absl::OkStatus();  // a place to put them later
  }
  for (const auto& sources : {spec.data().train(), spec.data().validation()}) {
    for (const v1::DataSource& source : sources) {
      HEARTH_RETURN_IF_ERROR(CheckDataset(options, source.path()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::JobSpec> StartingPoint(const Options& options) {
  v1::JobSpec spec;
  HEARTH_RETURN_IF_ERROR(SetModel(options, spec));
  HEARTH_RETURN_IF_ERROR(SetData(options, spec));
  spec.mutable_optimizer()->set_lr(3e-4);
  spec.mutable_train()->set_steps(kSteps);
  spec.mutable_resources()->set_workers(1);
  spec.mutable_resources()->set_device("cpu");
  HEARTH_RETURN_IF_ERROR(ApplyAssignments(options.assignments, spec));
  const int64_t warmup = spec.train().steps() / kStepsPerWarmupStep;
  if (!spec.schedule().has_warmup_steps() && warmup > 0) {
    spec.mutable_schedule()->set_warmup_steps(warmup);
  }
  if (!spec.precision().has_recipe()) {
    spec.mutable_precision()->set_recipe(
        std::string(spec::DefaultRecipeOn(spec.resources().device()).name));
  }
  v1::JobSpec resolved = spec;
  HEARTH_RETURN_IF_ERROR(spec::ResolveSubmitted(resolved));
  return spec;
}

// Writes the job file, and the schema with which editors check it beside it unless there is one.
absl::StatusOr<int> WriteFiles(const Context& context,
                               const std::string& file,
                               const std::string& text) {
  Env& env = Env::Real();
  if (env.Exists(file)) {
    return absl::AlreadyExistsError(
        absl::StrCat(file, " exists and is not overwritten; give another -f"));
  }
  const std::string schema = (std::filesystem::path(file).parent_path() / kSchemaFile).string();
  const bool has_schema = env.Exists(schema);
  if (!has_schema) {
    HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(
        schema, std::string_view(reinterpret_cast<const char*>(job_schema), job_schema_size)));
  }
  HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(
      file, absl::StrCat("# yaml-language-server: $schema=", kSchemaFile, "\n", text)));
  if (!context.quiet) {
    WriteErr(absl::StrCat(
        "wrote ", file, has_schema ? "" : absl::StrCat(", and ", schema, " for editors"),
        "; jobctl submit ", file, " --dry-run client checks it, without --dry-run it starts\n"));
  }
  return kExitOk;
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec spec, StartingPoint(options));
  const std::string text = JobTemplate(spec);
  if (options.file.empty() || options.file == "-") {
    WriteOut(text);
    return kExitOk;
  }
  return WriteFiles(context, options.file, text);
}

}  // namespace

Action SetupInit(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::Option* preset = app.add_option(
      "--preset", options->preset,
      absl::StrCat("Model preset (default ", kSmallPreset, "); jobctl plan --presets lists them"));
  app.add_option("--from", options->from, "Start from this Hugging Face model folder")
      ->excludes(preset);
  app.add_option("--data", options->data,
                 "Dataset, or folder with train and validation datasets (default: ./data)");
  app.add_option("-f,--file", options->file,
                 "File to write, with job.schema.json beside it (default: standard output)");
  app.add_option("--set", options->assignments, "Set a field: path=value, repeatable")
      ->allow_extra_args(false);
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace jobctl
}  // namespace hearth
