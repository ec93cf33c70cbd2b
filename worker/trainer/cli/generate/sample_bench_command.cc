// `sample-bench`: how fast a job's model writes, with random weights and prompts.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/recipe/recipe.h"
#include "common/time/clock.h"
#include "kernels/core/rng.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/cli/generate/generating_model.h"
#include "worker/trainer/cli/verbs.h"

namespace hearth::trainer {
namespace {

constexpr uint64_t kSeed = 20240517;

double Seconds() {
  return absl::ToDoubleSeconds(Clock::Real().Monotonic());
}

// What one round took.
struct Round {
  double first_token_s = 0;
  double decode_s = 0;
};

// `tokens` tokens of all texts; as a caller who reads each of them does it.
absl::StatusOr<Round> WriteOnce(Generator& generator,
                                const std::vector<TextStart>& starts,
                                int64_t tokens) {
  Round round;
  const double begin = Seconds();
  HEARTH_RETURN_IF_ERROR(generator.Begin(starts));
  HEARTH_RETURN_IF_ERROR(generator.Take().status());
  const double first = Seconds();
  round.first_token_s = first - begin;
  int64_t launched = 1;
  for (int64_t taken = 1; taken < tokens; ++taken) {
    while (launched < tokens && launched - taken < 2) {
      HEARTH_RETURN_IF_ERROR(generator.Launch());
      ++launched;
    }
    HEARTH_RETURN_IF_ERROR(generator.Take().status());
  }
  round.decode_s = Seconds() - first;
  return round;
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Report(const SampleBenchOptions& options,
            const GeneratingModel& model,
            const std::string& name,
            const std::vector<Round>& rounds) {
  const Generator& generator = *model.generator;
  const spec::GenerationPlanOptions& plan = generator.plan_options();
  std::vector<double> first;
  std::vector<double> decode;
  for (const Round& round : rounds) {
    first.push_back(round.first_token_s);
    decode.push_back(round.decode_s);
  }
  const auto passes = static_cast<double>(options.tokens - 1);
  const double pass_s = MedianOf(decode) / passes;
  // A pass reads the keys and values of what is there: the mean over the passes.
  const int64_t mean_length = options.prompt + options.tokens / 2;
  const int64_t element = spec::DTypeBytes(model.recipe->parameters.storage, 1);
  const auto bytes = static_cast<double>(spec::DecodeBytes(plan, mean_length, element));
  const auto batch = static_cast<double>(plan.batch);
  nlohmann::json out = {
      {"job", name},
      {"commit", std::string(GitCommit())},
      {"device", model.cuda == nullptr ? "cpu" : model.cuda->gpu().name},
      {"weights", std::string(model.recipe->name)},
      {"parameters", spec::CountParameters(generator.shape())},
      {"batch", plan.batch},
      {"prompt", options.prompt},
      {"tokens", options.tokens},
      {"rounds", rounds.size()},
      {"temperature", options.rule.temperature},
      {"top_k", options.rule.top_k},
      {"top_p", options.rule.top_p},
      {"tok_s", batch / pass_s},
      {"tok_s_least", batch * passes / *std::max_element(decode.begin(), decode.end())},
      {"tok_s_most", batch * passes / *std::min_element(decode.begin(), decode.end())},
      {"pass_ms", pass_s * 1e3},
      {"first_token_ms", MedianOf(first) * 1e3},
      {"pass_bytes", bytes},
      {"bytes_s", bytes / pass_s},
      {"arena_bytes", generator.plan().arena_bytes()},
      {"graph_nodes", generator.graph_nodes()}};
  if (model.cuda != nullptr) {
    out["untuned_products"] = model.cuda->untuned_products();
    if (const spec::GpuRow* row = spec::FindGpu(model.cuda->gpu().name); row != nullptr) {
      out["share_of_bytes"] = bytes / pass_s / row->bandwidth;
    }
  }
  if (options.json) {
    std::printf("%s\n", out.dump().c_str());
  } else {
    std::printf(
        "batch %4ld  %9.0f tok/s  %7.3f ms a token  first token %7.2f ms  %6.1f GB/s%s\n",
        static_cast<long>(plan.batch), batch / pass_s, pass_s * 1e3, MedianOf(first) * 1e3,
        bytes / pass_s * 1e-9,
        out.contains("share_of_bytes")
            ? ("  " + std::to_string(out["share_of_bytes"].get<double>() * 100).substr(0, 4) +
               " % of the limit")
                  .c_str()
            : "");
  }
  std::fflush(stdout);
}

absl::Status BenchBatch(const SampleBenchOptions& options, const v1::JobSpec& spec, int64_t batch) {
  GeneratingModelOptions wanted;
  wanted.generator.model = spec.model();
  wanted.generator.batch = batch;
  wanted.generator.prompt = options.prompt;
  wanted.generator.length = options.prompt + options.tokens;
  wanted.generator.rule = options.rule;
  wanted.generator.graph = options.graph;
  wanted.device = !options.device.empty()               ? options.device
                  : spec.resources().device() == "cuda" ? "cuda:0"
                                                        : "cpu";
  wanted.weights = options.weights;
  wanted.threads = options.threads;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<GeneratingModel> model,
                          OpenGeneratingModel(wanted));
  Generator& generator = *model->generator;
  HEARTH_RETURN_IF_ERROR(generator.parameters().Initialise(generator.exec(), kSeed));
  HEARTH_RETURN_IF_ERROR(PrepareGeneratingModel(*model));
  std::vector<int32_t> tokens(static_cast<size_t>(batch * options.prompt));
  const kernels::RngKey key = {kSeed, kernels::RngPurpose::kTest, 0, 0, 0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(kernels::RngWord(key, i) %
                                     static_cast<uint32_t>(generator.shape().vocab));
  }
  std::vector<TextStart> starts(static_cast<size_t>(batch));
  for (size_t b = 0; b < starts.size(); ++b) {
    const auto prompt = static_cast<size_t>(options.prompt);
    starts[b].tokens = absl::MakeConstSpan(tokens).subspan(b * prompt, prompt);
    starts[b].stream = static_cast<int32_t>(b);
    starts[b].add = options.tokens;
  }
  std::vector<Round> rounds;
  for (int i = 0; i <= options.rounds; ++i) {
    HEARTH_ASSIGN_OR_RETURN(const Round round, WriteOnce(generator, starts, options.tokens));
    if (i > 0) {
      rounds.push_back(round);
    }
  }
  Report(options, *model, spec.name(), rounds);
  return absl::OkStatus();
}

absl::Status Bench(const SampleBenchOptions& options) {
  if (options.prompt < 1 || options.tokens < 2 || options.rounds < 1) {
    return absl::InvalidArgumentError("--prompt and --rounds: at least 1; --tokens: at least 2");
  }
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec spec, LoadJob(options.job));
  for (const int64_t batch : options.batches) {
    HEARTH_RETURN_IF_ERROR(BenchBatch(options, spec, batch));
  }
  return absl::OkStatus();
}

}  // namespace

int SampleBenchCommand(const SampleBenchOptions& options) {
  return ExitCodeOf(Bench(options));
}

}  // namespace hearth::trainer
