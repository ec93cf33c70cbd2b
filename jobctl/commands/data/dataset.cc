#include "common/dataset/dataset.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/chat/chat_data.h"
#include "common/dataset/build/build.h"
#include "common/dataset/build/record_reader.h"
#include "common/dataset/report/decode.h"
#include "common/time/clock.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/data/dataset_mix.h"

namespace hearth::jobctl {
namespace {

struct Options {
  CLI::App* build = nullptr;
  CLI::App* inspect = nullptr;
  dataset::BuildOptions build_options;
  std::string max_bytes;
  std::string path;
  bool scan = true;
  CLI::Option* decode = nullptr;
  dataset::DecodeOptions decode_options;
  CLI::App* mix = nullptr;
  DatasetMixOptions mix_options;
};

// A line on a terminal that says how far a build is.
class ProgressLine {
 public:
  explicit ProgressLine(Clock& clock) : clock_(clock) {}

  void Show(const dataset::BuildProgress& progress) {
    const absl::Duration now = clock_.Monotonic();
    if (phase_ != progress.phase) {
      phase_ = progress.phase;
      began_ = now;
    }
    // Often enough for eyes, and little for a slow terminal.
    if (now - shown_ < absl::Milliseconds(200)) {
      return;
    }
    shown_ = now;
    visible_ = true;
    WriteErr(absl::StrCat("\r\x1b[K", dataset::ToLine(progress, now - began_)));
  }

  void Clear() {
    if (visible_) {
      WriteErr("\r\x1b[K");
      visible_ = false;
    }
  }

 private:
  Clock& clock_;
  std::string phase_;
  absl::Duration began_;
  absl::Duration shown_ = -absl::InfiniteDuration();
  bool visible_ = false;
};

absl::StatusOr<int> Build(Context& context, Options& options) {
  if (!options.max_bytes.empty()) {
    HEARTH_ASSIGN_OR_RETURN(options.build_options.max_bytes, ParseBytes(options.max_bytes));
  }
  ProgressLine line(Clock::Real());
  if (!context.quiet) {
    options.build_options.progress = [&line](std::string_view text) {
      line.Clear();
      WriteErr(absl::StrCat(std::string(text), "\n"));
    };
    if (isatty(STDERR_FILENO) == 1) {
      options.build_options.on_progress = [&line](const dataset::BuildProgress& progress) {
        line.Show(progress);
      };
    }
  }
  const absl::StatusOr<dataset::BuildReport> report = dataset::Build(options.build_options);
  // First, or an error would stand behind the rest of that line.
  line.Clear();
  HEARTH_RETURN_IF_ERROR(report.status());
  WriteOut(absl::StrCat(dataset::ToText(*report), "\n"));
  return kExitOk;
}

absl::StatusOr<int> Decode(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<dataset::DecodedPart> parts,
                          dataset::DecodeParts(options.path, options.decode_options));
  WriteOut(context.format.data() ? JsonAs(context.format, dataset::ToJson(parts))
                                 : dataset::ToText(parts));
  return kExitOk;
}

absl::StatusOr<int> Inspect(Context& context, const Options& options) {
  if (options.decode->count() > 0) {
    return Decode(context, options);
  }
  HEARTH_ASSIGN_OR_RETURN(const dataset::Summary summary,
                          dataset::Inspect(options.path, options.scan));
  WriteOut(context.format.data() ? JsonAs(context.format, dataset::ToJson(summary))
                                 : dataset::ToText(summary));
  return summary.problems.empty() ? kExitOk : kExitError;
}

std::vector<std::string> FormatNames() {
  std::vector<std::string> names;
  for (const dataset::InputFormat& format : dataset::InputFormats()) {
    names.emplace_back(format.name);
  }
  return names;
}

void AddBuild(CLI::App& app, Options& options) {
  options.build = app.add_subcommand("build", "Make a dataset folder from text files");
  dataset::BuildOptions& build = options.build_options;
  options.build
      ->add_option(
          "--input", build.inputs,
          "Files, folders (recursively), quoted patterns, or - for standard input; .gz and "
          ".zst are unpacked. A text file is one document; .jsonl files have one in each "
          "line, .csv files in each record")
      ->required();
  options.build->add_option("--field", build.field,
                            "Field of .jsonl and .csv files that has the text: text, or in .jsonl "
                            "a path such as data.text");
  options.build
      ->add_option("--chat", build.chat,
                   "Lines are conversations, and the dataset gets a mask of the answers, for task: "
                   "sft. Their layout: messages (OpenAI), sharegpt, alpaca; auto (default) finds "
                   "each line's layout by its keys")
      ->expected(0, 1)
      ->default_str(std::string(chat::kAnyLayout))
      ->check(CLI::IsMember(chat::ChatLayoutNames()));
  options.build->add_option("--chat-template", build.chat_template,
                            "Template of conversations: chatml or a Jinja file (default: that of "
                            "the tokenizer's folder)");
  options.build
      ->add_option(
          "--format", build.format,
          "Format of standard input and of files whose names do not say it (default: text)")
      ->check(CLI::IsMember(FormatNames()));
  options.build
      ->add_option("--threads", build.threads,
                   "Threads (default: all CPUs); does not change the result")
      ->check(CLI::Range(1, 1024));
  options.build
      ->add_option("--tokenizer", build.tokenizer,
                   "bytes; sentencepiece:VOCAB or bpe:VOCAB (trained on the input); FILE.model of "
                   "sentencepiece; tokenizer.json of a byte-level BPE, or the folder that has it")
      ->required();
  options.build->add_option("--end-token", build.end_token,
                            "Token of a given tokenizer.json that ends a document (default: "
                            "eos_token of the tokenizer_config.json beside it)");
  options.build->add_option("--out", build.out, "Folder to create")->required();
  options.build->add_option("--name", build.name,
                            "Name of the dataset (default: last part of --out)");
  options.build
      ->add_option("--validation-fraction", build.validation_fraction,
                   "Hold out this share of the documents: OUT/train and OUT/validation")
      ->check(CLI::Range(0.0, 0.9));
  options.build->add_option("--max-bytes", options.max_bytes,
                            "Take at most this much text, e.g. 8MiB");
  options.build
      ->add_option("--max-tokens", build.max_tokens,
                   "Stop before the dataset exceeds this many tokens")
      ->check(CLI::PositiveNumber);
  options.build
      ->add_option(
          "--near-duplicates", build.near_duplicates,
          "Drop a document that is this similar to an earlier one: the share of their word "
          "5-grams that both have, estimated. 0.8 without a value; off unless given")
      ->expected(0, 1)
      ->default_str("0.8")
      ->check(CLI::Range(0.5, 1.0));
  options.build
      ->add_option("--fraction", build.fraction,
                   "Take this share of the documents, chosen by their text")
      ->check(CLI::Range(0.0, 1.0));
}

void AddInspect(CLI::App& app, Options& options) {
  options.inspect = app.add_subcommand(
      "inspect", "Check a dataset and print what is in it, or the text of some of its documents");
  options.inspect->add_option("path", options.path, "Dataset folder or .bin file")->required();
  options.inspect->add_flag("!--no-scan", options.scan, "Read only the headers, not the tokens");
  options.decode =
      options.inspect
          ->add_option("--decode", options.decode_options.parts,
                       "Print the text of this many documents (of a dataset without end tokens: "
                       "windows of 256 tokens) instead")
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  CLI::Option* from = options.inspect
                          ->add_option("--from", options.decode_options.from,
                                       "With --decode: begin at this token, from 0")
                          ->check(CLI::NonNegativeNumber)
                          ->needs(options.decode);
  options.inspect
      ->add_option("--document", options.decode_options.document,
                   "With --decode: begin with this document, from 0")
      ->check(CLI::NonNegativeNumber)
      ->needs(options.decode)
      ->excludes(from);
}

}  // namespace

Action SetupDataset(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.require_subcommand(1);
  AddBuild(app, *options);
  AddInspect(app, *options);
  options->mix = AddDatasetMix(app, options->mix_options);
  return [options](Context& context) {
    if (options->mix->parsed()) {
      return DatasetMix(context, options->mix_options);
    }
    return options->build->parsed() ? Build(context, *options) : Inspect(context, *options);
  };
}

}  // namespace hearth::jobctl
