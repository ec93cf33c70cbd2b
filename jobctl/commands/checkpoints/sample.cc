// `jobctl sample`: a text by a job's checkpoint, written on an idle worker.
#include <unistd.h>

#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/env.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/commands/command_row.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

struct Options {
  v1::SampleCheckpointRequest request;
  std::string prompt_file;
};

absl::Status ReadPrompt(Options& options) {
  v1::TextRequest& text = *options.request.mutable_text();
  if (options.prompt_file == "-") {
    text.set_prompt(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  } else if (!options.prompt_file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(*text.mutable_prompt(), Env::Real().ReadFile(options.prompt_file));
  }
  return absl::OkStatus();
}

std::string ToJson(const Options& options,
                   const v1::SampleCheckpointResponse& first,
                   const std::string& text,
                   v1::TextEnd end) {
  const nlohmann::ordered_json out = {{"schema", "hearth.sample/v1"},
                                      {"job_id", options.request.job_id()},
                                      {"step", first.checkpoint().step()},
                                      {"worker", first.worker_id()},
                                      {"device", first.device()},
                                      {"seed", first.seed()},
                                      {"prompt", options.request.text().prompt()},
                                      {"text", text},
                                      {"end", std::string(spec::TextEndName(end))}};
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<int> Run(Context& context, Options& options) {
  HEARTH_RETURN_IF_ERROR(ReadPrompt(options));
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  const bool data = context.format.data();
  v1::SampleCheckpointResponse first;
  std::string text;
  v1::TextEnd end = v1::TEXT_END_UNSPECIFIED;
  const absl::Status status =
      client->SampleCheckpoint(options.request, [&](const v1::SampleCheckpointResponse& response) {
        if (response.has_checkpoint()) {
          first = response;
          if (!context.quiet && !data) {
            WriteErr(absl::StrCat("step ", first.checkpoint().step(), " on ", first.worker_id(),
                                  " (", first.device(), "), seed ", first.seed(), "\n"));
            WriteOut(options.request.text().prompt());
          }
        }
        text += response.text();
        end = response.end();
        if (!data) {
          WriteOut(response.text());
        }
        return true;
      });
  if (!data && first.has_checkpoint()) {
    WriteOut("\n");
  }
  HEARTH_RETURN_IF_ERROR(status);
  if (data) {
    WriteOut(JsonAs(context.format, ToJson(options, first, text, end)));
  }
  return kExitOk;
}

template <typename T, typename Set>
void AddField(CLI::App& app, const char* name, const char* help, const Set& set) {
  app.add_option_function<T>(name, set, help);
}

}  // namespace

Action SetupSample(CLI::App& app) {
  auto options = std::make_shared<Options>();
  v1::SampleCheckpointRequest& request = options->request;
  v1::TextRequest& text = *request.mutable_text();
  // As hearth-trainer sample has them.
  text.set_temperature(0.8);
  text.set_top_k(40);
  app.add_option("job", *request.mutable_job_id(), "Job id, or an unambiguous beginning of one")
      ->required();
  CLI::Option* const prompt =
      app.add_option("--prompt", *text.mutable_prompt(), "Text to continue (default: none)");
  app.add_option("--prompt-file", options->prompt_file,
                 "File with the prompt; - reads standard input")
      ->excludes(prompt);
  AddField<int32_t>(app, "--max-tokens", "Most tokens to add (default: 100)",
                    [&text](int32_t tokens) { text.set_max_tokens(tokens); });
  AddField<int64_t>(app, "--step", "Step of the checkpoint (default: the newest)",
                    [&request](int64_t step) { request.set_step(step); });
  app.add_option(
      "--worker", *request.mutable_worker_id(),
      "Worker that continues the text (default: any that is idle and sees the checkpoint)");
  AddField<double>(app, "--temperature", "0 = always the most likely token (default: 0.8)",
                   [&text](double value) { text.set_temperature(value); });
  AddField<int32_t>(app, "--top-k", "Draw from the K most likely tokens; 0 = all (default: 40)",
                    [&text](int32_t value) { text.set_top_k(value); });
  AddField<double>(
      app, "--top-p",
      "Draw from the likeliest tokens that together have this probability (default: 1, all)",
      [&text](double value) { text.set_top_p(value); });
  AddField<double>(app, "--min-p",
                   "Draw from tokens with at least this share of the likeliest one's probability "
                   "(default: 0, all)",
                   [&text](double value) { text.set_min_p(value); });
  AddField<double>(app, "--repetition-penalty",
                   "Above 1, avoids tokens that the text already has (default: 1)",
                   [&text](double value) { text.set_repetition_penalty(value); });
  AddField<int64_t>(app, "--seed",
                    "The same seed gives the same text (default: a new seed each time)",
                    [&text](int64_t value) { text.set_seed(value); });
  app.add_option_function<std::vector<std::string>>(
         "--stop",
         [&text](const std::vector<std::string>& stops) {
           text.mutable_stop()->Assign(stops.begin(), stops.end());
         },
         "Text that ends the continuation and is not printed (repeatable)")
      ->allow_extra_args(false);
  app.add_flag_callback(
      "--ema", [&text] { text.set_ema(true); },
      "Use the running average of the weights (train.ema) instead of the step's weights");
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
