#include "common/dataset/dataset.h"

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/dataset/build.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {
namespace {

struct Options {
  CLI::App* build = nullptr;
  CLI::App* inspect = nullptr;
  dataset::BuildOptions build_options;
  std::string max_bytes;
  std::string path;
  bool scan = true;
};

absl::StatusOr<int> Build(Context& context, Options& options) {
  if (!options.max_bytes.empty()) {
    HEARTH_ASSIGN_OR_RETURN(options.build_options.max_bytes, ParseBytes(options.max_bytes));
  }
  if (!context.quiet) {
    options.build_options.progress = [](std::string_view line) {
      WriteErr(absl::StrCat(std::string(line), "\n"));
    };
  }
  HEARTH_ASSIGN_OR_RETURN(const dataset::BuildReport report, dataset::Build(options.build_options));
  WriteOut(absl::StrCat(dataset::ToText(report), "\n"));
  return kExitOk;
}

absl::StatusOr<int> Inspect(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const dataset::Summary summary,
                          dataset::Inspect(options.path, options.scan));
  WriteOut(context.format == OutputFormat::kJson ? dataset::ToJson(summary)
                                                 : dataset::ToText(summary));
  return summary.problems.empty() ? kExitOk : kExitError;
}

}  // namespace

Action SetupDataset(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.require_subcommand(1);

  options->build = app.add_subcommand("build", "Make a dataset folder from text files");
  dataset::BuildOptions& build = options->build_options;
  options->build
      ->add_option("--input", build.inputs,
                   "Files and folders (recursively); .gz and .zst are unpacked. A file is one "
                   "document; .jsonl files have one in each line")
      ->required();
  options->build->add_option("--field", build.field,
                             "Field of each line of .jsonl files that has the text: text, or a "
                             "path such as data.text");
  options->build
      ->add_option("--threads", build.threads,
                   "Threads that encode (default: all CPUs); changes no byte")
      ->check(CLI::Range(1, 1024));
  options->build
      ->add_option("--tokenizer", build.tokenizer,
                   "bytes; sentencepiece:VOCAB or bpe:VOCAB (trained on the input); FILE.model of "
                   "sentencepiece; tokenizer.json of a byte-level BPE, or the folder that has it")
      ->required();
  options->build->add_option("--end-token", build.end_token,
                             "Token of a given tokenizer.json that ends a document (default: "
                             "eos_token of the tokenizer_config.json beside it)");
  options->build->add_option("--out", build.out, "Folder to create")->required();
  options->build->add_option("--name", build.name,
                             "Name of the dataset (default: last part of --out)");
  options->build
      ->add_option("--validation-fraction", build.validation_fraction,
                   "Hold out this share of the documents: OUT/train and OUT/validation")
      ->check(CLI::Range(0.0, 0.9));
  options->build->add_option("--max-bytes", options->max_bytes,
                             "Read at most this much text, e.g. 8MiB");

  options->inspect = app.add_subcommand("inspect", "Check a dataset and print what is in it");
  options->inspect->add_option("path", options->path, "Dataset folder or .bin file")->required();
  options->inspect->add_flag("!--no-scan", options->scan, "Read only the headers, not the tokens");

  return [options](Context& context) {
    return options->build->parsed() ? Build(context, *options) : Inspect(context, *options);
  };
}

}  // namespace hearth::jobctl
