// hearth-trainer: the training engine, one rank. Started by hearth-worker it speaks trainer.proto
// over HEARTH_TRAINER_FD; started by a person it runs the verb given.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/base/system.h"
#include "common/base/version.h"
#include "common/fault/fault.h"
#include "common/fault/points.h"
#include "common/log/log.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/recipe/forward_recipe.h"
#include "worker/trainer/cli/bench/calibration_list.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/generate/text_writer.h"

namespace hearth::trainer {
namespace {

void AddJob(CLI::App& app, JobOptions& job, bool required = true) {
  app.add_option("job", job.job_file, "job file (YAML)")->required(required);
  app.add_option("--set", job.overrides, "override a field: path=value (repeatable)");
}

void AddVerify(CLI::App& app, bool& verify) {
  app.add_flag_callback(
      "--no-verify", [&verify] { verify = false; },
      "do not compare the files of datasets and models with their recorded checksums");
}

void AddEma(CLI::App& app, weights::WeightChoice& choice) {
  app.add_flag_callback(
      "--ema", [&choice] { choice = weights::WeightChoice::kEma; },
      "the checkpoint's running average of the weights (train.ema), not those of its step");
}

void AddRule(CLI::App& app, kernels::SamplingRule& rule) {
  app.add_option("--temperature", rule.temperature, "0 = most likely")->capture_default_str();
  app.add_option("--top-k", rule.top_k, "0 = all")->capture_default_str();
  app.add_option("--top-p", rule.top_p, "the likeliest tokens that have this share; 1 = all")
      ->capture_default_str();
  app.add_option("--min-p", rule.min_p,
                 "tokens with this share of the likeliest one's probability; 0 = all")
      ->capture_default_str();
  app.add_option("--repetition-penalty", rule.repetition_penalty,
                 "> 1 avoids tokens that the text has; 1 = none")
      ->capture_default_str();
  app.add_option("--seed", rule.seed, "same seed, same text")->capture_default_str();
}

// "a | b | ...".
std::string Choices(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) {
    text.append(text.empty() ? "" : " | ").append(name);
  }
  return text;
}

// "on the CPU a | b (default: a), on a GPU ...".
std::string WeightChoices() {
  std::string text;
  for (const auto& [kind, device] : {std::pair("cpu", "the CPU"), std::pair("cuda", "a GPU")}) {
    text.append(text.empty() ? "on " : ", on ").append(device).append(" ");
    text += Choices(spec::GenerationRecipeNames(kind));
    text.append(" (default: ").append(spec::DefaultRecipeOn(kind).name).append(")");
  }
  return text;
}

// What all that write texts have.
template <typename Options>
void AddWriting(CLI::App& app, Options& options) {
  app.add_option("checkpoint", options.checkpoint, "checkpoint or model folder")->required();
  AddRule(app, options.rule);
  app.add_option("--device", options.device, "cpu | cuda:N")->capture_default_str();
  app.add_option("--weights", options.weights, "recipe of what passes read: " + WeightChoices());
  app.add_option("--threads", options.threads, "CPU threads (default: all)");
  AddEma(app, options.choice);
  AddVerify(app, options.verify);
}

void AddChat(CLI::App& parent, int& result) {
  const auto options = std::make_shared<ChatOptions>();
  ChatOptions& chat = *options;
  CLI::App& app = *parent.add_subcommand("chat", "talk to a checkpoint, a line a message");
  app.footer("/reset begins a new conversation, /quit or the end of the input ends.");
  app.add_option("--system", chat.system, "first message of the conversation, of the system");
  app.add_option("--chat-template", chat.chat_template,
                 "chatml, or a file (default: the folder's)");
  app.add_option("--tokens", chat.tokens, "tokens of an answer, at most")->capture_default_str();
  app.add_option("--context", chat.context,
                 "tokens of the conversation, at most (default: 4096, or what the model learned)");
  AddWriting(app, chat);
  app.callback([options, &result] { result = ChatCommand(*options); });
}

void AddLogProbs(CLI::App& app, LogProbsOptions& options) {
  CLI::Option* const from = app.add_option(
      "--log-probs", options.from,
      "whose log-probabilities -o json has: auto | " + Choices(LogProbsNames()) +
          ": of the pass that drew the token, or of training's forward pass over the "
          "text (default: training if the checkpoint's job has train.deterministic: "
          "true and quantises nothing, else generation)");
  app.add_option("--micro-batch", options.micro_batch,
                 "sequences of training's forward pass (default: of the checkpoint's job)")
      ->check(CLI::PositiveNumber)
      ->needs(from);
  app.add_option("--sequence-length", options.sequence_length,
                 "tokens of such a sequence (default: of the checkpoint's job)")
      ->check(CLI::PositiveNumber)
      ->needs(from);
}

void AddSample(CLI::App& parent, int& result) {
  const auto options = std::make_shared<SampleOptions>();
  SampleOptions& sample = *options;
  CLI::App& app = *parent.add_subcommand("sample", "continue texts with a checkpoint");
  app.add_option("--prompt", sample.prompt, "text to continue");
  app.add_option("--prompts", sample.prompts, "file with a text to continue in each line");
  app.add_option("--tokens", sample.tokens, "tokens to add to each")->capture_default_str();
  app.add_option("--stop", sample.stops, "text that ends a continuation, left out (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--batch", sample.batch, "texts at a time, at most")->capture_default_str();
  app.add_option_function<std::string>(
         "-o,--output", [&sample](const std::string& format) { sample.json = format == "json"; },
         "text | json: a line a text, with its tokens and their log-probabilities")
      ->check(CLI::IsMember({"text", "json"}));
  AddLogProbs(app, sample.log_probs);
  AddWriting(app, sample);
  app.callback([options, &result] { result = SampleCommand(*options); });
}

void AddSampleBench(CLI::App& parent, int& result) {
  const auto options = std::make_shared<SampleBenchOptions>();
  SampleBenchOptions& bench = *options;
  CLI::App& app = *parent.add_subcommand(
      "sample-bench", "how fast a job's model writes, with random weights and prompts");
  AddJob(app, bench.job);
  app.add_option("--batch", bench.batches, "texts at a time; several as 1,64,512")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--prompt", bench.prompt, "tokens of each prompt")->capture_default_str();
  app.add_option("--tokens", bench.tokens, "tokens to add to each")->capture_default_str();
  app.add_option("--rounds", bench.rounds, "of which the median counts")->capture_default_str();
  AddRule(app, bench.rule);
  app.add_option("--device", bench.device, "cpu | cuda:N (default: the job's)");
  app.add_option("--weights", bench.weights, "recipe of what passes read: " + WeightChoices());
  app.add_option("--threads", bench.threads, "CPU threads (default: all)");
  app.add_flag_callback(
      "--no-graph", [&bench] { bench.graph = false; }, "launch kernel by kernel, to look at them");
  app.add_option_function<std::string>(
         "-o,--output", [&bench](const std::string& format) { bench.json = format == "json"; },
         "text | json")
      ->check(CLI::IsMember({"text", "json"}));
  app.callback([options, &result] { result = SampleBenchCommand(*options); });
}

void AddEval(CLI::App& parent, int& result) {
  const auto options = std::make_shared<EvalOptions>();
  EvalOptions& eval = *options;
  CLI::App& app = *parent.add_subcommand(
      "eval", "loss of a checkpoint on datasets, or its answers to the questions of a task");
  app.add_option("checkpoint", eval.checkpoint, "checkpoint or model folder")->required();
  CLI::Option* const data =
      app.add_option(
             "--data", eval.data,
             "dataset folders or .bin files, as A,B or repeated; each is measured by itself")
          ->delimiter(',');
  CLI::Option* const items =
      app.add_option("--items", eval.items, "file of the task's items (.jsonl; mmlu also .csv)");
  CLI::Option* const task =
      app.add_option("--task", eval.task,
                     "how the model is asked: " + Choices(spec::EvaluationNames()))
          ->excludes(data)
          ->needs(items);
  items->needs(task);
  app.add_option("--limit", eval.limit, "ask only the first N items")
      ->check(CLI::PositiveNumber)
      ->needs(task);
  app.add_option("--shots", eval.shots, "examples before each question (mmlu)")
      ->check(CLI::Range(0, 100))
      ->needs(task);
  app.add_option("--examples", eval.examples, "file of items that examples are taken from")
      ->needs(task);
  app.add_option("--details", eval.details, "file for the log-likelihoods of each item (.jsonl)")
      ->needs(task);
  app.add_option("--device", eval.device, "cpu | cuda:N")->capture_default_str();
  app.add_option("--recipe", eval.recipe, "fp32 | bf16 (default: fp32 on the CPU, bf16 on a GPU)");
  app.add_option("--batch", eval.micro_batch,
                 "sequences of a forward pass (default: 8, for tasks by their size)")
      ->check(CLI::PositiveNumber);
  app.add_option("--sequence-length", eval.sequence_length,
                 "tokens that the model reads at once (default: as in training)");
  app.add_option("--batches", eval.batches, "batches of each dataset (default: all)")
      ->excludes(task);
  app.add_option("--threads", eval.threads, "CPU threads (default: all)");
  app.add_option_function<std::string>(
         "-o,--output", [&eval](const std::string& format) { eval.json = format == "json"; },
         "table | json")
      ->check(CLI::IsMember({"table", "json"}));
  AddEma(app, eval.choice);
  AddVerify(app, eval.verify);
  app.callback([options, &result] { result = EvalCommand(*options); });
}

void AddProbe(CLI::App& parent, int& result) {
  const auto options = std::make_shared<ProbeOptions>();
  ProbeOptions& probe = *options;
  CLI::App& probe_app =
      *parent.add_subcommand("probe", "device, versions and what runs natively, as JSON");
  probe_app.add_option("--device", probe.device, "cpu | cuda:N (default: the first GPU, else cpu)");
  probe_app.callback([options, &result] { result = ProbeCommand(*options); });
  CLI::App& doctor_app =
      *parent.add_subcommand("doctor", "what is wrong with this machine, and what to do about it");
  doctor_app.add_option("--device", probe.device,
                        "cpu | cuda:N (default: the first GPU, else cpu)");
  doctor_app.add_flag("--json", probe.json, "as JSON");
  doctor_app.callback([options, &result] { result = DoctorCommand(*options); });
}

void AddCalibration(CLI::App& app, BenchOptions& bench) {
  CLI::Option* const calibrate =
      app.add_flag("--calibrate", bench.calibrate,
                   "no job: what kernels reach on this GPU, as a file for jobctl plan "
                   "--calibration (a minute)");
  std::vector<std::string> schemes;
  std::string about;
  for (const LoadScheme& scheme : LoadSchemes()) {
    schemes.emplace_back(scheme.name);
    about.append(about.empty() ? "" : " | ").append(scheme.name);
    about.append(" (").append(scheme.about).append(")");
  }
  app.add_option("--scheme", bench.calibration.scheme,
                 "where products and attention are timed: " + about + "; default: the first")
      ->check(CLI::IsMember(schemes))
      ->needs(calibrate);
  app.add_flag("-v,--verbose", bench.calibration.verbose,
               "every scheme (1.5 minutes): each figure with the GPU's clock, and the files of the "
               "other schemes, to stderr")
      ->needs(calibrate);
}

void AddBench(CLI::App& parent, int& result) {
  const auto options = std::make_shared<BenchOptions>();
  BenchOptions& bench = *options;
  CLI::App& bench_app = *parent.add_subcommand("bench", "speed of a job's step on random tokens");
  AddJob(bench_app, bench.job, /*required=*/false);
  AddCalibration(bench_app, bench);
  bench_app
      .add_option("--steps", bench.steps,
                  "steps measured, >= 1 (default: 60 or 5 s of them, on a GPU at least 3 s)")
      ->check(CLI::PositiveNumber);
  bench_app.add_option("--device", bench.device,
                       "cpu | cuda:N (default: the job's resources.device)");
  bench_app
      .add_option("--devices", bench.devices,
                  "several GPUs, as 0,1,2,3 (or cpu,cpu): a rank on each, against the first alone")
      ->excludes("--device");
  bench_app.add_flag_callback(
      "--no-floor", [&bench] { bench.floor = false; },
      "do not measure the GEMMs and attention alone");
  bench_app
      .add_option_function<std::string>(
          "-o,--output", [&bench](const std::string& format) { bench.json = format == "json"; },
          "text | json")
      ->check(CLI::IsMember({"text", "json"}));
  bench_app.add_option("--micro-batch", bench.micro_batch, "sequences (default: the job's)");
  bench_app.add_option("--threads", bench.threads, "CPU threads (default: all)");
  bench_app.callback([options, &result] {
    if (options->calibrate) {
      options->calibration.device = options->device;
      result = CalibrateCommand(options->calibration);
      return;
    }
    if (options->job.job_file.empty()) {
      result = Fail(absl::InvalidArgumentError("bench: give a job file, or --calibrate"));
      return;
    }
    result = options->devices.empty() ? BenchCommand(*options) : ScalingBenchCommand(*options);
  });
}

void AddTune(CLI::App& parent, int& result) {
  const auto options = std::make_shared<TuneOptions>();
  TuneOptions& tune = *options;
  CLI::App& app = *parent.add_subcommand(
      "tune", "time the algorithms of all matrix products of jobs, for as long as that takes");
  app.add_option("jobs", tune.jobs, "job files (YAML)")->required();
  app.add_option("--set", tune.overrides, "override a field of every job: path=value (repeatable)");
  app.add_option("--device", tune.device, "cuda:N (default: the jobs' resources.device)");
  app.add_option("--output", tune.output,
                 "file that the plans are added to (default: $HEARTH_HOME/plans.txt)");
  app.add_option("--threads", tune.threads, "CPU threads (default: all)");
  app.callback([options, &result] { result = TuneCommand(*options); });
}

void AddCompare(CLI::App& parent, int& result) {
  const auto options = std::make_shared<CompareOptions>();
  CompareOptions& compare = *options;
  CLI::App& app = *parent.add_subcommand(
      "compare", "train a job in each of several recipes: loss gaps, speed, memory");
  AddJob(app, compare.job);
  app.add_option("--recipes", compare.recipes,
                 "as bf16,fp8,nvfp4: the first is what the others are compared with")
      ->required()
      ->delimiter(',');
  app.add_option("--seeds", compare.seeds,
                 "runs of each, with seeds from train.seed on: means and standard errors")
      ->check(CLI::PositiveNumber);
  app.add_option("--vary", compare.vary,
                 "as precision.bf16_tail=0,0.1: each recipe with each value; again for more fields")
      ->allow_extra_args(false);
  app.add_option(
         "--each", compare.each,
         "FIELD=VALUE,...: run each recipe as it is, and with each of these values alone, e.g. "
         "precision.techniques.bf16_operands=forward.x,dgrad.dy; may be given several times")
      ->allow_extra_args(false);
  app.add_flag("--share", compare.share,
               "share --out with other processes, each on a GPU of its own; prints no table");
  app.add_option("--minutes", compare.minutes,
                 "start no run after this many minutes; the same command later continues")
      ->check(CLI::PositiveNumber);
  app.add_flag("--report", compare.report,
               "start no run; compare the runs in --out that have ended");
  app.add_option("--steps", compare.steps, "steps of each run (default: the job's train.steps)")
      ->check(CLI::PositiveNumber);
  app.add_option("--window", compare.window,
                 "steps whose mean is the final training loss (default: a tenth, at most 200)")
      ->check(CLI::PositiveNumber);
  app.add_option("--device", compare.device, "cpu | cuda:N (default: the job's resources.device)");
  app.add_option("--out", compare.out,
                 "folder for the runs, the table and the picture (default runs/NAME-compare)");
  app.add_option("--threads", compare.threads, "CPU threads (default: all)");
  app.add_option_function<std::string>(
         "-o,--output", [&compare](const std::string& format) { compare.json = format == "json"; },
         "text | json")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_flag("-q,--quiet", compare.quiet, "no progress");
  app.callback([options, &result] { result = CompareCommand(*options); });
}

void AddWorker(CLI::App& parent, int& result) {
  const auto options = std::make_shared<WorkerRunOptions>();
  WorkerRunOptions& worker = *options;
  CLI::App& worker_app =
      *parent.add_subcommand("worker", "one rank under hearth-worker (HEARTH_TRAINER_FD)");
  worker_app
      .add_option("--hang-seconds", worker.hang_seconds,
                  "a step that makes no progress for this many seconds, and for 3 times a step's "
                  "time, hangs; 0 = never")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  worker_app.add_option("--worker", worker.worker, "name of the worker, for errors");
  worker_app
      .add_option("--data-root", worker.data_roots,
                  "folder in which datasets and models must lie, repeatable (default: anywhere)")
      ->allow_extra_args(false);
  worker_app.add_option("--checkpoint-root", worker.checkpoint_root,
                        "folder below which checkpoints must lie (default: anywhere)");
  worker_app.callback([options, &result] { result = WorkerCommand(*options); });
}

void AddWriteText(CLI::App& parent, int& result) {
  const auto options = std::make_shared<WriteTextOptions>();
  WriteTextOptions& text = *options;
  CLI::App& app = *parent.add_subcommand(
      "write-text", "write a text with a checkpoint; started by hearth-worker (HEARTH_TRAINER_FD)");
  app.add_option("--device", text.device, "cpu | cuda:N")->capture_default_str();
  app.add_option("--threads", text.threads, "CPU threads (default: all)");
  app.add_option("--checkpoint-root", text.checkpoint_root,
                 "folder below which the checkpoint must lie")
      ->required();
  app.callback([options, &result] { result = WriteTextCommand(*options); });
}

void AddFaultPoints(CLI::App& app, int& /*result*/) {
  const auto print = [] { std::fputs(fault::PointList().c_str(), stdout); };
  app.add_subcommand("fault-points", "places where HEARTH_FAULTS makes a program fail, for tests")
      ->callback(print);
  app.add_flag_callback(
      "--list-fault-points",
      [&app, print] {
        print();
        app.require_subcommand(0);
      },
      "the same as fault-points");
}

void AddRun(CLI::App& parent, int& result) {
  const auto options = std::make_shared<RunOptions>();
  RunOptions& run = *options;
  CLI::App& app = *parent.add_subcommand("run", "train a job in this process, without daemons");
  AddJob(app, run.job);
  app.add_option("--device", run.device, "cpu | cuda:N (default: the job's resources.device)");
  app.add_option("--out", run.out, "folder for metrics.jsonl and checkpoints/ (default runs/NAME)");
  app.add_option("--resume", run.resume, "checkpoint folder, or a folder of checkpoints");
  app.add_option("--threads", run.threads, "CPU threads (default: all)");
  app.add_option("--dump-gradients", run.dump_gradients,
                 "folder for the first step's gradients, as safetensors");
  app.add_flag("-q,--quiet", run.quiet, "no line per step");
  AddVerify(app, run.verify);
  app.callback([options, &result] { result = RunCommand(*options); });
}

void AddPlan(CLI::App& parent, int& result) {
  const auto options = std::make_shared<PlanOptions>();
  PlanOptions& plan = *options;
  CLI::App& app = *parent.add_subcommand("plan", "print the memory plan of a job");
  AddJob(app, plan.job);
  app.add_flag("-v,--verbose", plan.verbose, "every buffer");
  app.add_option("--memory-bytes", plan.memory_bytes,
                 "memory of the device that the job is planned for (default: this machine's)");
  app.add_option("--threads", plan.threads, "CPU threads")->capture_default_str();
  app.callback([options, &result] { result = PlanCommand(*options); });
}

// In the order of the help. Each subcommand keeps its options in its callback, and leaves the exit
// status in `result`.
using AddCommand = void (*)(CLI::App& app, int& result);
constexpr AddCommand kCommands[] = {
    &AddRun,    &AddWorker,      &AddWriteText, &AddPlan, &AddEval,    &AddFaultPoints, &AddChat,
    &AddSample, &AddSampleBench, &AddBench,     &AddTune, &AddCompare, &AddProbe};

int Main(int argc, char** argv) {
  CLI::App app("Hearth's training engine: one rank.");
  app.set_version_flag("--version", VersionString());
  app.require_subcommand(1);
  int result = 0;
  for (const AddCommand add : kCommands) {
    add(app, result);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  return result;
}

// OpenMP threads that spin at barriers starve one another, and everybody else, as soon as the
// machine has other work: twice the step time, measured with two threads on two busy cores. libgomp
// reads its environment when it is loaded, so the program starts itself again, once, with a short
// spin. Goes on as it is where that fails.
void ShortenSpin(char** argv) {
  if (hearth::GetEnv("OMP_WAIT_POLICY") != nullptr || hearth::GetEnv("GOMP_SPINCOUNT") != nullptr) {
    return;
  }
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length > 0 && hearth::SetEnv("GOMP_SPINCOUNT", "2000", false)) {
    path[length] = '\0';
    execv(path, argv);
  }
}

// Ranks exchange the parts of FP8 gradients over connections of their own, for which NCCL takes
// 13 MB a peer and channel: 1.28 GB on four GPUs with the 32 channels of its default. Four move
// gradients as fast as a step needs (docs/memory.md). Before there are threads.
void LimitConnections() {
  static_cast<void>(hearth::SetEnv("NCCL_MAX_P2P_NCHANNELS", "4", false));
}

}  // namespace
}  // namespace hearth::trainer

// NOLINTNEXTLINE(bugprone-exception-escape): what escapes is a failed allocation, which may end it
int main(int argc, char** argv) {
  hearth::trainer::ShortenSpin(argv);
  hearth::trainer::LimitConnections();
  static_cast<void>(hearth::log::Init("hearth-trainer"));
  if (const absl::Status faults = hearth::fault::InitFromEnvironment(); !faults.ok()) {
    std::fprintf(stderr, "hearth-trainer: %s\n", std::string(faults.message()).c_str());
    return 2;
  }
  // As a daemon of an earlier version starts it.
  if (argc == 1 && hearth::GetEnv("HEARTH_TRAINER_FD") != nullptr) {
    return hearth::trainer::WorkerCommand({});
  }
  return hearth::trainer::Main(argc, argv);
}
