#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/facts/complete_spec.h"
#include "common/io/available_memory.h"
#include "common/io/env.h"
#include "common/nvml/nvml.h"
#include "common/spec/feasibility/accuracy.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/feasibility_text.h"
#include "common/spec/feasibility/largest.h"
#include "common/spec/fields/idle.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/model/presets.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/plan/plan_report.h"
#include "common/spec/resolve/resolve.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_file/load_job_file.h"
#include "jobctl/commands/job_file/plan_at_coordinator.h"
#include "jobctl/commands/settings.h"
#include "jobctl/views/jobs/feasibility_view.h"
#include "jobctl/views/output/table.h"

namespace hearth::jobctl {
namespace {

struct Options {
  std::string file;
  std::vector<std::string> assignments;
  std::string memory;
  std::string host_memory;
  int threads = 1;
  bool verbose = false;
  bool presets = false;
  std::string gpu;     // a name, "all" or "here"
  std::string tokens;  // "3e9", "3B", "20x"
  std::string calibration;
  std::string format = "table";
  std::string sort = "hours";
  bool largest = false;
  bool smallest = false;
  bool bytes = false;
  bool accuracy = false;
  bool on_coordinator = false;
  spec::FeasibilityQuery query;
};

// Presets without a vocabulary of their own take the dataset's; their row counts this many tokens.
constexpr int kOpenVocab = 4096;
constexpr const char* kAllGpus = "all";
constexpr const char* kThisGpu = "here";

absl::StatusOr<int> Presets() {
  Table table({"NAME", "PARAMETERS", "LAYERS", "HIDDEN", "WHAT"});
  for (const spec::Preset& preset : spec::Presets()) {
    v1::JobSpec job_spec;
    job_spec.mutable_model()->set_preset(std::string(preset.name));
    if (!preset.model.has_vocab()) {
      job_spec.mutable_model()->set_vocab(kOpenVocab);
    }
    std::vector<spec::FieldViolation> violations;  // of fields that a preset lacks: name, data
    spec::Resolve(job_spec, violations);
    HEARTH_ASSIGN_OR_RETURN(
        const spec::ModelShape shape,
        spec::ResolveModelShape(job_spec.model(), job_spec.data().sequence_length()));
    table.Add(
        {std::string(preset.name), FormatCount(static_cast<double>(spec::CountParameters(shape))),
         absl::StrCat(shape.layers), absl::StrCat(shape.hidden), std::string(preset.comment)});
  }
  WriteOut(table.Render(FitColumns()));
  return kExitOk;
}

// Puts everything that a plan needs into the job of a file, from what lies on this machine.
absl::StatusOr<v1::JobSpec> Completed(v1::JobSpec job_spec) {
  HEARTH_RETURN_IF_ERROR(spec::ResolveSubmitted(job_spec));
  const absl::Status completed = facts::CompleteForPlan(job_spec, Env::Real());
  if (absl::IsNotFound(completed) && !job_spec.model().has_from()) {
    return absl::NotFoundError(
        absl::StrCat(completed.message(),
                     "; it is read for the vocabulary: --set model.vocab=N plans without it"));
  }
  HEARTH_RETURN_IF_ERROR(completed);
  return job_spec;
}

// Memory alone, of a device of any name.
absl::StatusOr<int> PlanMemory(const v1::JobSpec& job_file, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec job_spec, Completed(job_file));
  spec::PlanQuery query;
  query.threads = options.threads;
  query.verbose = options.verbose;
  if (!options.memory.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const int64_t memory, ParseBytes(options.memory));
    query.plan_bytes = spec::PlannableBytes(job_spec.resources().device(), memory,
                                            std::max(1, job_spec.resources().workers()));
  } else if (job_spec.batch().micro_batch_size() == 0) {
    return absl::InvalidArgumentError(
        "batch.micro_batch_size is auto: give a worker's memory with --memory, e.g. --memory "
        "32GiB, or a GPU with --gpu");
  }
  HEARTH_ASSIGN_OR_RETURN(const spec::PlanReport report, spec::ReportPlan(job_spec, query));
  WriteOut(report.text);
  HEARTH_RETURN_IF_ERROR(report.fits);
  return kExitOk;
}

// "3e9", "3B", "300M", "20x": tokens, or a multiple of the parameters.
absl::Status ParseTokens(const std::string& text, spec::FeasibilityQuery& query) {
  if (text.empty()) {
    return absl::OkStatus();
  }
  std::string number = text;
  double unit = 1;
  const std::string_view units = "kMBTx";
  const double values[] = {1e3, 1e6, 1e9, 1e12, 1};
  const size_t at = units.find(text.back());
  if (at != std::string_view::npos) {
    number.pop_back();
    unit = values[at];
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !std::isfinite(value) || !(value > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokens: \"", text,
                     "\" is neither tokens (3e9, 3B) nor a multiple of the parameters (20x)"));
  }
  (text.back() == 'x' ? query.tokens_per_parameter : query.tokens) = value * unit;
  return absl::OkStatus();
}

// The first GPU of this machine; `memory_bytes` gets what NVML says of it.
absl::StatusOr<const spec::GpuRow*> GpuHere(int64_t& memory_bytes) {
  const absl::StatusOr<std::unique_ptr<nvml::Nvml>> nvml = nvml::Nvml::Open(nvml::DefaultLibrary());
  if (!nvml.ok()) {
    return absl::Status(nvml.status().code(),
                        absl::StrCat("--gpu here: ", nvml.status().message(),
                                     "; elsewhere give the GPU's name, e.g. --gpu H200"));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<nvml::Gpu> gpu, (*nvml)->ByIndex(0));
  const std::string name = gpu->info().name;
  const spec::GpuRow* const row = spec::FindGpu(name);
  if (row == nullptr) {
    return absl::NotFoundError(absl::StrCat("--gpu here: ", name, " is not in configs/gpus.yaml"));
  }
  memory_bytes = memory_bytes > 0 ? memory_bytes : gpu->info().memory_bytes;
  return row;
}

absl::StatusOr<std::vector<const spec::GpuRow*>> ChosenGpus(const std::string& name,
                                                            int64_t& memory_bytes) {
  std::vector<const spec::GpuRow*> rows;
  if (name == kAllGpus) {
    for (const spec::GpuRow& row : spec::Gpus()) {
      rows.push_back(&row);
    }
  } else if (name == kThisGpu) {
    HEARTH_ASSIGN_OR_RETURN(rows.emplace_back(), GpuHere(memory_bytes));
  } else {
    const absl::StatusOr<const spec::GpuRow*> row = spec::GpuByName(name);
    if (!row.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--gpu: ", row.status().message()));
    }
    rows.push_back(*row);
  }
  return rows;
}

void PrintAccuracy(const spec::GpuRow& gpu, const spec::Calibration& calibration) {
  Table table({"MODEL", "RECIPE", "HEAD", "BATCH", "TOKENS", "MICRO-BATCHES", "GPUS", "MEASURED",
               "PLANNED", "ERROR", "W", "PLANNED-W", "FITTED"});
  for (const spec::AccuracyRow& row : spec::Accuracy(gpu, calibration)) {
    const spec::MeasuredRun& run = row.run;
    table.Add({run.preset, run.recipe, run.lm_head, absl::StrCat(run.micro_batch),
               absl::StrCat(run.sequence_length), absl::StrCat(run.micro_batches),
               absl::StrCat(run.gpus), absl::StrFormat("%.0f", run.tok_s),
               absl::StrFormat("%.0f", row.tok_s),
               absl::StrFormat("%+.1f %%", 100 * row.tok_s_error),
               run.watts > 0 ? absl::StrFormat("%.0f", run.watts) : "-",
               run.watts > 0 ? absl::StrFormat("%.0f", row.watts) : "-", run.tuned ? "yes" : "no"});
  }
  WriteOut(table.Render(FitColumns()));
  WriteOut(calibration.measured ? absl::StrCat(gpu.name, ": from ", calibration.source,
                                               "; FITTED: the calibration was fitted to it\n")
                                : absl::StrCat("nothing measured on ", gpu.name, "\n"));
}

// The calibration of a GPU: the file given, if it is of that GPU.
absl::StatusOr<const spec::Calibration*> CalibrationOf(const spec::GpuRow& gpu,
                                                       const std::string& path,
                                                       spec::Calibration& read) {
  if (path.empty()) {
    return &spec::CalibrationFor(gpu);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  std::string name;
  HEARTH_ASSIGN_OR_RETURN(read, spec::ParseCalibration(text, path, name));
  return name == gpu.name ? &read : &spec::CalibrationFor(gpu);
}

void PrintPlans(const Options& options, const std::vector<spec::Feasibility>& plans) {
  const bool one = plans.size() == 1;
  WriteOut(options.format == "json"   ? PlanJson(plans)
           : options.format == "md"   ? PlanMarkdown(plans, options.query)
           : options.format == "html" ? PlanHtml(plans, options.query)
           : one ? spec::FeasibilityText(plans.front(), options.query, options.verbose)
                 : PlanTable(plans, options.query, FitColumns()));
}

// The job fits, and Hearth runs on this GPU.
bool CanTrain(const spec::Feasibility& f) {
  return f.verdict != spec::Verdict::kNo && f.plan_only.empty();
}

// The smallest GPU that can train the job, by memory and then by time.
void KeepSmallest(std::vector<spec::Feasibility>& plans) {
  const auto smallest =
      std::min_element(plans.begin(), plans.end(), [&](const auto& a, const auto& b) {
        return CanTrain(a) != CanTrain(b)         ? CanTrain(a)
               : a.device_bytes != b.device_bytes ? a.device_bytes < b.device_bytes
                                                  : a.seconds < b.seconds;
      });
  if (smallest != plans.end() && CanTrain(*smallest)) {
    std::swap(plans.front(), *smallest);
    plans.resize(1);
  }
}

absl::StatusOr<std::vector<spec::Feasibility>> JudgeHere(
    const v1::JobSpec& job_spec,
    const Options& options,
    const std::vector<const spec::GpuRow*>& gpus) {
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec completed, Completed(job_spec));
  // One for all GPUs: it makes each memory plan once.
  spec::FeasibilityJudge judge(completed, options.query);
  std::vector<spec::Feasibility> plans;
  for (const spec::GpuRow* gpu : gpus) {
    spec::Calibration read;
    HEARTH_ASSIGN_OR_RETURN(const spec::Calibration* const calibration,
                            CalibrationOf(*gpu, options.calibration, read));
    HEARTH_ASSIGN_OR_RETURN(plans.emplace_back(), judge.Judge(*gpu, *calibration));
  }
  return plans;
}

// The error about a path that this machine does not have.
bool IsAboutPaths(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status);
}

// The coordinator plans if that is requested, or if the job's paths are not here and it has them.
absl::StatusOr<std::vector<spec::Feasibility>> Judge(Context& context,
                                                     const v1::JobSpec& job_spec,
                                                     const Options& options,
                                                     const std::vector<const spec::GpuRow*>& gpus) {
  std::vector<std::string> names;
  for (const spec::GpuRow* gpu : gpus) {
    names.push_back(gpu->name);
  }
  if (options.on_coordinator) {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    return JudgeAtCoordinator(*client, job_spec, names, options.query);
  }
  absl::StatusOr<std::vector<spec::Feasibility>> here = JudgeHere(job_spec, options, gpus);
  if (here.ok() || !IsAboutPaths(here.status()) || !options.calibration.empty()) {
    return here;
  }
  const absl::StatusOr<Client*> client = context.client();
  if (!client.ok()) {
    return here;
  }
  absl::StatusOr<std::vector<spec::Feasibility>> there =
      JudgeAtCoordinator(**client, job_spec, names, options.query);
  return absl::IsUnavailable(there.status()) || IsRefusedCaller(there.status()) ? here : there;
}

// The host's memory for all GPUs of a plan; 0 = not known.
absl::StatusOr<int64_t> HostMemory(const Options& options) {
  if (!options.host_memory.empty()) {
    return ParseBytes(options.host_memory);
  }
  const int64_t here = options.gpu == kThisGpu ? AvailableMemory(Env::Real()) : 0;
  return here == std::numeric_limits<int64_t>::max() ? 0 : here;
}

absl::StatusOr<int> PlanGpus(Context& context, const v1::JobSpec& job_spec, Options options) {
  HEARTH_RETURN_IF_ERROR(ParseTokens(options.tokens, options.query));
  HEARTH_RETURN_IF_ERROR(spec::CheckQuery(options.query));
  if (!options.memory.empty()) {
    HEARTH_ASSIGN_OR_RETURN(options.query.memory_bytes, ParseBytes(options.memory));
  }
  HEARTH_ASSIGN_OR_RETURN(options.query.host_memory_bytes, HostMemory(options));
  const std::string name = options.smallest ? kAllGpus : options.gpu;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<const spec::GpuRow*> gpus,
                          ChosenGpus(name, options.query.memory_bytes));
  HEARTH_ASSIGN_OR_RETURN(std::vector<spec::Feasibility> plans,
                          Judge(context, job_spec, options, gpus));
  SortPlans(options.sort, plans);
  if (options.smallest) {
    KeepSmallest(plans);
  }
  PrintPlans(options, plans);
  // Asked about one GPU, the verdict is of that one, whether or not Hearth runs on it.
  const bool yes = gpus.size() == 1 ? plans.front().verdict != spec::Verdict::kNo
                                    : std::any_of(plans.begin(), plans.end(), CanTrain);
  return yes ? kExitOk : kExitDoesNotFit;
}

absl::StatusOr<int> PlanLargest(const v1::JobSpec& job_file, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec job_spec, Completed(job_file));
  int64_t ignored = 0;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<const spec::GpuRow*> rows,
                          ChosenGpus(options.gpu.empty() ? kAllGpus : options.gpu, ignored));
  int64_t most = 0;
  for (const spec::GpuRow* gpu : rows) {
    most = std::max(most, gpu->memory_bytes());
  }
  const int gpus =
      options.query.gpus > 0 ? options.query.gpus : std::max(1, job_spec.resources().workers());
  HEARTH_ASSIGN_OR_RETURN(const std::vector<spec::FormatFamily> families,
                          spec::FamiliesOf(job_spec, gpus, most));
  WriteOut(options.format == "json" ? LargestJson(families, rows)
           : rows.size() == 1       ? LargestOfGpu(families, *rows.front(), gpus, FitColumns())
                                    : LargestTable(families, rows, gpus, FitColumns()));
  return kExitOk;
}

// The errors of plans: for the runs of calibrations, or for the jobs that ended at the coordinator.
absl::StatusOr<int> PlanAccuracy(Context& context, const Options& options) {
  int64_t ignored = 0;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<const spec::GpuRow*> gpus,
                          ChosenGpus(options.gpu.empty() ? kAllGpus : options.gpu, ignored));
  if (options.on_coordinator) {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(
        const std::string table,
        AccuracyOfEndedJobs(*client, gpus.size() == 1 ? gpus.front()->name : "", FitColumns()));
    WriteOut(table);
    return kExitOk;
  }
  for (const spec::GpuRow* gpu : gpus) {
    spec::Calibration read;
    HEARTH_ASSIGN_OR_RETURN(const spec::Calibration* const calibration,
                            CalibrationOf(*gpu, options.calibration, read));
    if (gpus.size() == 1 || !calibration->runs.empty()) {
      PrintAccuracy(*gpu, *calibration);
    }
  }
  return kExitOk;
}

// An error about the number of workers also says which option sets it.
absl::StatusOr<int> NamingGpus(absl::StatusOr<int> planned) {
  const absl::Status& status = planned.status();
  return absl::IsInvalidArgument(status) && absl::StrContains(status.message(), "resources.workers")
             ? absl::InvalidArgumentError(
                   absl::StrCat(status.message(), "; --gpus N sets resources.workers"))
             : planned;
}

absl::StatusOr<int> Run(Context& context, Options options) {
  if (options.presets) {
    return Presets();
  }
  if (options.bytes) {
    WriteOut(spec::StateFormatsText());
    return kExitOk;
  }
  if (options.accuracy) {
    return PlanAccuracy(context, options);
  }
  spec::Prices& prices = options.query.prices;
  prices.per_kwh = prices.per_kwh == 0 ? context.prices.per_kwh : prices.per_kwh;
  prices.per_gpu_hour =
      prices.per_gpu_hour == 0 ? context.prices.per_gpu_hour : prices.per_gpu_hour;
  prices.currency = context.prices.currency;
  HEARTH_ASSIGN_OR_RETURN(v1::JobSpec job_spec, LoadJobFile(options.file, options.assignments));
  job_spec = spec::JobOfQuestion(std::move(job_spec), options.query);
  if (options.largest) {
    return NamingGpus(PlanLargest(job_spec, options));
  }
  return !options.gpu.empty() || options.smallest
             ? NamingGpus(PlanGpus(context, job_spec, std::move(options)))
             : PlanMemory(job_spec, options);
}

std::string DefaultText(double value) {
  return absl::StrFormat(" (default: %g)", value);
}

// The questions that go with the job file. Returns the options that mean nothing without a GPU.
std::vector<const CLI::Option*> AddQuestions(CLI::App& app, Options& options) {
  app.add_option(
      "--gpu", options.gpu,
      "GPU to plan for, with time, energy and cost: a name of configs/gpus.yaml, all, or "
      "here (this machine's, found by NVML); exit status 3 = NO");
  app.add_flag("--largest", options.largest,
               "Show the largest model of the job's family on every GPU, or on that of --gpu");
  app.add_flag("--smallest", options.smallest, "Show the smallest GPU that trains the job");
  app.add_option(
         "--gpus", options.query.gpus,
         "GPUs of one host: plans the job with so many resources.workers (default: its own)")
      ->check(CLI::Range(1, spec::kMostPlannedGpus));
  app.add_option("--calibration", options.calibration,
                 "File of hearth-trainer bench --calibrate, instead of the shipped one");
  app.add_flag("--on-coordinator", options.on_coordinator,
               "Let the coordinator plan: it knows what its workers see in the job's paths, and "
               "what earlier jobs measured. --coordinator and --context imply this");
  spec::FeasibilityQuery& query = options.query;
  return {
      app.add_option(
          "--tokens", options.tokens,
          "Tokens to train on: 3e9, 3B, or 20x the parameters (default: those of train.steps)"),
      app.add_option("--host-memory", options.host_memory,
                     "Memory of the host that the processes of these GPUs may pin, e.g. 100GiB: "
                     "offload is then proposed or refused (default: with --gpu here what is free "
                     "on this machine, else not known)"),
      app.add_option("--tok-s", query.wanted_tok_s,
                     "Wanted tokens/s: says whether the GPU can reach it"),
      app.add_option("--price-kwh", query.prices.per_kwh, "Price of a kWh"),
      app.add_option("--price-hour", query.prices.per_gpu_hour, "Price of a GPU's hour, rented"),
      app.add_option("--card-price", query.card_price,
                     "Price of a GPU, bought (default: the list price)"),
      app.add_option("--lifetime", query.lifetime_hours,
                     absl::StrCat("Hours that a bought GPU serves, above 0",
                                  DefaultText(query.lifetime_hours))),
      app.add_option("--mtbf", query.mtbf_hours,
                     absl::StrCat("Hours between two failures of a GPU; 0 = no failures",
                                  DefaultText(query.mtbf_hours))),
      app.add_option("--restart", query.restart_seconds,
                     absl::StrCat("Seconds from a failure to the next step",
                                  DefaultText(query.restart_seconds))),
      app.add_option("--checkpoint", query.checkpoint_seconds,
                     absl::StrCat("Seconds that a checkpoint stops training for",
                                  DefaultText(query.checkpoint_seconds))),
      app.add_option("--sort", options.sort,
                     "With --gpu all, order by hours (default), cost, memory or name")
          ->check(CLI::IsMember({"hours", "cost", "memory", "name"})),
      app.add_option("-o,--output", options.format,
                     "With --gpu: table (default), json, md, html; with --largest: table, json")
          ->check(CLI::IsMember({"table", "json", "md", "html"})),
  };
}

// The first option of `asked` that the command line has and `read` does not name; null: none.
const CLI::Option* Unread(const std::vector<const CLI::Option*>& asked,
                          std::initializer_list<std::string_view> read) {
  const auto unread = std::find_if(asked.begin(), asked.end(), [&](const CLI::Option* option) {
    return option->count() > 0 &&
           std::find(read.begin(), read.end(), option->get_name()) == read.end();
  });
  return unread == asked.end() ? nullptr : *unread;
}

// Refuses options that nothing would read.
absl::Status CheckQuestions(const Options& options,
                            const std::vector<const CLI::Option*>& about_gpus) {
  if (options.smallest && (options.largest || !options.gpu.empty())) {
    return absl::InvalidArgumentError(
        "--smallest looks at all GPUs for this job: leave --gpu and --largest out");
  }
  const bool judged = (!options.gpu.empty() || options.smallest) && !options.largest;
  if (options.largest && options.format != "table" && options.format != "json") {
    return absl::InvalidArgumentError("--largest has -o table and -o json");
  }
  if (!judged && !options.largest && options.format != "table") {
    return absl::InvalidArgumentError(
        "-o is for plans of GPUs: give --gpu NAME, all or here, or --smallest");
  }
  if (options.on_coordinator && (!options.calibration.empty() || !(judged || options.accuracy))) {
    return absl::InvalidArgumentError(
        options.calibration.empty()
            ? "--on-coordinator needs --gpu, --smallest or --accuracy"
            : "--calibration is a file of this machine: leave --on-coordinator out");
  }
  if (options.largest) {
    const CLI::Option* const unread = Unread(about_gpus, {"--output"});
    return unread == nullptr
               ? absl::OkStatus()
               : absl::InvalidArgumentError(absl::StrCat(
                     unread->get_name(), " asks about time, cost or order: leave --largest out"));
  }
  const bool sorts = std::any_of(about_gpus.begin(), about_gpus.end(), [](const CLI::Option* o) {
    return o->get_name() == "--sort" && o->count() > 0;
  });
  if (sorts && !options.gpu.empty() && options.gpu != kAllGpus) {
    return absl::InvalidArgumentError("--sort orders several GPUs: give --gpu all");
  }
  if (!options.gpu.empty() || options.smallest || options.accuracy) {
    return absl::OkStatus();
  }
  if (options.query.gpus > 0 || !options.calibration.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.query.gpus > 0 ? "--gpus" : "--calibration",
                     " asks about a GPU: give --gpu NAME, all or here, --smallest or --largest"));
  }
  const CLI::Option* const unread = Unread(about_gpus, {});
  return unread == nullptr ? absl::OkStatus()
                           : absl::InvalidArgumentError(absl::StrCat(
                                 unread->get_name(),
                                 " asks about a GPU: give --gpu NAME, all or here, or --smallest"));
}

}  // namespace

Action SetupPlan(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::Option* file =
      app.add_option("-f,--file,file", options->file, "Job file (YAML), - for standard input");
  app.add_option("--set", options->assignments, "Override a field: path=value, repeatable")
      ->allow_extra_args(false);
  app.add_option("--memory", options->memory,
                 "Memory of a worker's device, e.g. 32GiB: says whether the job fits, and resolves "
                 "micro_batch_size: auto; with --gpu in place of that GPU's memory");
  app.add_option("--threads", options->threads, "CPU threads per rank")->check(CLI::PositiveNumber);
  app.add_flag("--verbose", options->verbose,
               "Print a line per buffer; with --gpu one per product");
  const std::vector<const CLI::Option*> about_gpus = AddQuestions(app, *options);
  CLI::Option* presets =
      app.add_flag("--presets", options->presets, "List the model presets instead");
  file->excludes(presets);
  app.add_flag("--bytes", options->bytes,
               "Print the bytes per parameter for each format of its state instead");
  app.add_flag("--accuracy", options->accuracy,
               "Print how far plans are from measurements instead");
  return [&app, options, about_gpus](Context& context) -> absl::StatusOr<int> {
    if (context.format == OutputFormat::kJson) {  // given before the command
      options->format = "json";
    }
    const bool may = options->calibration.empty() && !options->largest &&
                     (!options->gpu.empty() || options->smallest || options->accuracy);
    options->on_coordinator =
        options->on_coordinator || (may && NamesCoordinator(*app.get_parent()));
    const bool needs_file = !options->presets && !options->bytes && !options->accuracy;
    if (needs_file && options->file.empty()) {
      return absl::InvalidArgumentError("give a job file, --presets, --bytes or --accuracy");
    }
    HEARTH_RETURN_IF_ERROR(CheckQuestions(*options, about_gpus));
    return Run(context, *options);
  };
}

}  // namespace hearth::jobctl
