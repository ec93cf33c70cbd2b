#include "jobctl/commands/data/dataset_mix.h"

#include <cmath>
#include <filesystem>
#include <system_error>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/dataset/report/mix_report.h"
#include "common/facts/complete_spec.h"
#include "common/io/env.h"
#include "common/spec/resolve/resolve.h"
#include "jobctl/commands/command_context.h"
#include "jobctl/commands/job_file/load_job_file.h"
#include "jobctl/views/output/table.h"

namespace hearth::jobctl {
namespace {

// The sources as a job file has them.
struct Drawn {
  v1::JobSpec spec;
  int64_t tokens = 0;
};

absl::Status AddSource(const std::string& text, v1::JobSpec& spec) {
  v1::DataSource& source = *spec.mutable_data()->add_train();
  source.set_path(text);
  source.set_weight(1);
  const size_t at = text.rfind('=');
  std::error_code error;
  if (at == std::string::npos || std::filesystem::exists(text, error)) {
    return absl::OkStatus();
  }
  double weight = 0;
  if (!absl::SimpleAtod(text.substr(at + 1), &weight) || !std::isfinite(weight) || weight <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(text, ": the weight behind = must be a number > 0"));
  }
  source.set_path(text.substr(0, at));
  source.set_weight(weight);
  return absl::OkStatus();
}

absl::StatusOr<Drawn> OfJob(const DatasetMixOptions& options) {
  Drawn drawn;
  HEARTH_ASSIGN_OR_RETURN(drawn.spec, LoadJobFile(options.job_file, options.assignments));
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(drawn.spec, violations);
  HEARTH_RETURN_IF_ERROR(spec::ViolationsToStatus(violations));
  const int64_t batch = drawn.spec.batch().global_batch_tokens();
  if (batch == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.job_file,
                     ": batch.global_batch_tokens is not given and follows from the worker that "
                     "runs the job; add --set batch.global_batch_tokens=N"));
  }
  drawn.tokens = drawn.spec.train().steps() * batch;
  return drawn;
}

absl::StatusOr<Drawn> OfArguments(const DatasetMixOptions& options) {
  if (options.sources.empty()) {
    return absl::InvalidArgumentError("give datasets, or a job file with --file");
  }
  Drawn drawn;
  drawn.tokens = options.tokens;
  drawn.spec.mutable_data()->set_sequence_length(static_cast<int32_t>(options.sequence_length));
  for (const std::string& source : options.sources) {
    HEARTH_RETURN_IF_ERROR(AddSource(source, drawn.spec));
  }
  return drawn;
}

std::string ToTable(const dataset::MixReport& report) {
  Table table({"SOURCE", "TOKENS", "WEIGHT", "SHARE", "DRAWN", "EPOCHS"});
  for (const dataset::MixReport::Row& row : report.rows) {
    table.Add({row.source.path, absl::StrCat(row.tokens), absl::StrFormat("%g", row.source.weight),
               absl::StrFormat("%.2f %%", 100 * row.share), absl::StrCat(row.drawn),
               absl::StrFormat("%.2f", row.epochs)});
  }
  return absl::StrCat(table.Render(FitColumns()), report.samples, " samples of ",
                      report.sequence_length, " tokens\n");
}

}  // namespace

CLI::App* AddDatasetMix(CLI::App& app, DatasetMixOptions& options) {
  CLI::App* mix = app.add_subcommand("mix", "Show what a mixture of datasets will draw");
  CLI::Option* sources =
      mix->add_option("sources", options.sources, "Datasets: PATH, or PATH=WEIGHT (default: 1)");
  CLI::Option* file =
      mix->add_option("-f,--file", options.job_file, "Job file: its data.train, steps and batch")
          ->excludes(sources);
  mix->add_option("--set", options.assignments, "Override a field of the job file: path=value")
      ->allow_extra_args(false)
      ->needs(file);
  mix->add_option("--sequence-length", options.sequence_length,
                  "Tokens of a sample (default: 1024)")
      ->check(CLI::Range(2, 1048576))
      ->excludes(file);
  mix->add_option("--tokens", options.tokens,
                  "Tokens that are drawn (default: as many as the datasets have)")
      ->check(CLI::PositiveNumber)
      ->excludes(file);
  return mix;
}

absl::StatusOr<int> DatasetMix(Context& context, const DatasetMixOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const Drawn drawn,
                          options.job_file.empty() ? OfArguments(options) : OfJob(options));
  std::vector<dataset::MixSource> sources;
  for (const v1::DataSource& source : drawn.spec.data().train()) {
    sources.push_back({source.path(), source.weight()});
  }
  HEARTH_ASSIGN_OR_RETURN(
      const dataset::MixReport report,
      dataset::MakeMixReport(sources, drawn.spec.data().sequence_length(), drawn.tokens));
  HEARTH_RETURN_IF_ERROR(facts::CompareTokenizers(drawn.spec, Env::Real()));
  WriteOut(context.format.data() ? JsonAs(context.format, dataset::ToJson(report))
                                 : ToTable(report));
  for (const std::string& warning : report.warnings) {
    WriteErr(absl::StrCat("warning: ", warning, "\n"));
  }
  return kExitOk;
}

}  // namespace hearth::jobctl
