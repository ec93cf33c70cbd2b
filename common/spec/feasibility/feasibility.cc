#include "common/spec/feasibility/feasibility.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/spec/feasibility/accuracy.h"
#include "common/spec/feasibility/memory/varied_plans.h"
#include "common/spec/feasibility/savings.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::spec {
namespace {

constexpr double kHour = 3600;
constexpr double kLargestNumber = 1e18;  // of a question

double Gb(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

std::string Str(std::string_view text) {
  return std::string(text);
}

std::string StepText(double seconds) {
  return seconds < 10 ? absl::StrFormat("%.1f ms", seconds * 1e3)
                      : absl::StrFormat("%.1f s", seconds);
}

// Puts the GPU's and the calibration's share into a judgement of one variation.
class Assessment {
 public:
  Assessment(VariedPlans& plans,
             const FeasibilityQuery& query,
             absl::Span<const v1::JobPlan> ended,
             const GpuRow& gpu,
             const Calibration& calibration)
      : plans_(plans), query_(query), ended_(ended), gpu_(gpu), calibration_(calibration) {
    f_.job = plans.spec().name();
    f_.gpu = gpu.name;
    f_.gpus = plans.gpus();
    f_.plan_only = gpu.plan_only;
    f_.device_bytes = query.memory_bytes > 0 ? query.memory_bytes : gpu.memory_bytes();
  }

  absl::StatusOr<Feasibility> Run() {
    HEARTH_ASSIGN_OR_RETURN(const Choice choice,
                            ChooseVariation(plans_, gpu_, calibration_, f_.device_bytes,
                                            query_.host_memory_bytes / f_.gpus));
    HEARTH_ASSIGN_OR_RETURN(const VariedPlan* const chosen, plans_.Get(choice.variation));
    HEARTH_RETURN_IF_ERROR(Describe(*chosen, choice.variation));
    FillMemory(*chosen);
    FillTime(*chosen);
    HEARTH_RETURN_IF_ERROR(FillRun(*chosen));
    FillCost();
    HEARTH_ASSIGN_OR_RETURN(
        f_.levels, LevelsOf(plans_, choice.variation, gpu_, calibration_, f_.device_bytes));
    HEARTH_ASSIGN_OR_RETURN(f_.savings, SavingsOf(plans_, choice.as_is, gpu_, calibration_));
    for (const LevelRow& level : f_.levels) {
      if (level.recompute == f_.recompute) {
        f_.largest_micro_batch = level.largest_micro_batch;
      }
    }
    f_.changes = choice.changes;
    Conclude(choice);
    f_.confidence = ConfidenceText(gpu_, calibration_, ended_, f_);
    return std::move(f_);
  }

 private:
  absl::Status Describe(const VariedPlan& chosen, const Variation& variation) {
    const TrainingPlanOptions& options = chosen.job->options;
    f_.parameters = CountParameters(options.shape);
    f_.flops_per_token = FlopsPerToken(options.shape, options.sequence_length);
    f_.recipe = variation.recipe;
    f_.recompute = variation.recompute;
    f_.micro_batch = variation.micro_batch;
    f_.shards = options.shards;
    f_.shard = Str(RowOf(variation.shard).name);
    f_.sequence_length = options.sequence_length;
    const RecipeOnGpu on = RecipeOn(gpu_, *options.recipe);
    f_.execution = Str(ExecutionName(on.execution));
    f_.execution_note = on.why;
    HEARTH_ASSIGN_OR_RETURN(const BatchPlan batch,
                            ResolveBatchPlan(chosen.spec, variation.micro_batch, plans_.gpus()));
    f_.micro_batches = batch.micro_batches;
    return absl::OkStatus();
  }

  void FillMemory(const VariedPlan& chosen) {
    f_.memory = MemoryParts(chosen.plan, chosen.job->options);
    for (const MemoryPart& part : f_.memory) {
      f_.total_bytes += part.bytes;
    }
    f_.host_bytes = chosen.plan.arena_bytes(MemoryTier::kPinnedHost);
  }

  void FillTime(const VariedPlan& chosen) {
    f_.time = TimeOfPlan(chosen, plans_.gpus(), gpu_, calibration_);
    if (!f_.time.known()) {
      return;
    }
    const double tokens =
        static_cast<double>(f_.micro_batches * f_.micro_batch * f_.sequence_length);
    f_.tok_s = tokens / f_.time.seconds;
    f_.mfu = f_.tok_s / f_.gpus * f_.flops_per_token / gpu_.bf16_flops();
    // Each product at its data sheet's rate, attention at that of BF16; of a micro-batch.
    const StepWork work = WorkOf(chosen.job->options, FormatOnGpu(gpu_, chosen));
    double seconds = 0;
    for (const ProductWork& product : work.products) {
      seconds += product.flops() / gpu_.Flops(product.format);
    }
    for (const PassWork& pass : work.passes) {
      seconds += (pass.forward_flops + pass.backward_flops) / gpu_.bf16_flops();
    }
    for (const ProductWork& product : work.update_products) {
      seconds += product.flops() / gpu_.Flops(product.format) * f_.gpus /
                 static_cast<double>(f_.micro_batches);
    }
    f_.peak_tok_s = static_cast<double>(f_.micro_batch * f_.sequence_length) / seconds * f_.gpus;
  }

  absl::Status FillRun(const VariedPlan& chosen) {
    const double step_tokens =
        static_cast<double>(f_.micro_batches * f_.micro_batch * f_.sequence_length);
    f_.tokens = query_.tokens > 0 ? query_.tokens
                : query_.tokens_per_parameter > 0
                    ? query_.tokens_per_parameter * static_cast<double>(f_.parameters)
                    : step_tokens * static_cast<double>(chosen.spec.train().steps());
    if (!(f_.tok_s > 0)) {
      return absl::OkStatus();
    }
    const double training = TrainingSeconds(f_.tokens, f_.tok_s, 1);
    const auto every = static_cast<double>(chosen.spec.checkpoint().every_steps());
    const double interval = every > 0 ? every * f_.time.seconds : training;
    // Each evaluation is a forward pass: a third of a micro-batch's time.
    double evaluations = 0;
    if (chosen.spec.data().validation_size() > 0 && chosen.spec.train().eval_every() > 0) {
      evaluations = static_cast<double>(chosen.spec.train().eval_batches()) / 3 /
                    static_cast<double>(f_.micro_batches) * f_.gpus /
                    static_cast<double>(chosen.spec.train().eval_every());
    }
    // A failure loses half an interval and the restart; any of the GPUs may fail.
    const double checkpoints = every > 0 ? query_.checkpoint_seconds / interval : 0;
    const double failures = query_.mtbf_hours > 0 ? (interval / 2 + query_.restart_seconds) *
                                                        f_.gpus / (query_.mtbf_hours * kHour)
                                                  : 0;
    f_.goodput = 1 / (1 + checkpoints + evaluations + failures);
    f_.seconds = TrainingSeconds(f_.tokens, f_.tok_s, f_.goodput);
    return absl::OkStatus();
  }

  void FillCost() {
    if (!(f_.seconds > 0)) {
      return;
    }
    const Prices& prices = query_.prices;
    if (f_.time.watts > 0) {
      f_.joules = f_.time.watts * f_.gpus * f_.seconds;
      if (prices.per_kwh > 0) {
        f_.power_cost = EnergyCost(*f_.joules, prices.per_kwh);
      }
    }
    if (prices.per_gpu_hour > 0) {
      f_.rent_cost = DeviceCost(f_.seconds, f_.gpus, prices.per_gpu_hour);
    }
    const double card = query_.card_price > 0 ? query_.card_price : gpu_.price_usd;
    if (!(card > 0)) {
      return;
    }
    f_.purchase_cost =
        DeviceCost(f_.seconds, f_.gpus, card / query_.lifetime_hours) + f_.power_cost.value_or(0);
    const double saved =
        prices.per_gpu_hour - f_.time.watts / 1000 * prices.per_kwh;  // each hour, of one GPU
    if (prices.per_gpu_hour > 0 && saved > 0) {
      f_.break_even_hours = card / saved;
    }
  }

  void Conclude(const Choice& choice) {
    f_.reasons = choice.reasons;
    f_.verdict = !choice.fits         ? Verdict::kNo
                 : f_.changes.empty() ? Verdict::kYes
                                      : Verdict::kYesWithChanges;
    const std::string memory =
        absl::StrFormat("memory: %.2f of %.2f GB a GPU (%.0f %%)", Gb(f_.total_bytes),
                        Gb(f_.device_bytes), 100 * Gb(f_.total_bytes) / Gb(f_.device_bytes));
    f_.reasons.insert(f_.reasons.begin(),
                      choice.fits_gpu ? memory : absl::StrCat(memory, ": does not fit"));
    if (f_.time.known()) {
      f_.reasons.push_back(absl::StrFormat(
          "time: %.0f tok/s, %s a step, %s for %s tokens", f_.tok_s, StepText(f_.time.seconds),
          HumanDuration(absl::Seconds(f_.seconds)), FormatCount(f_.tokens)));
    } else {
      f_.reasons.push_back("time: not known: " + f_.time.unknown);
    }
    if (!f_.plan_only.empty()) {
      f_.reasons.push_back("plan only: " + f_.plan_only);
    }
    JudgeWish();
  }

  void JudgeWish() {
    const double wish = query_.wanted_tok_s;
    if (!(wish > 0)) {
      return;
    }
    if (!f_.time.known()) {
      f_.reasons.push_back(
          absl::StrFormat("wish: %.0f tok/s cannot be judged: the time is not known", wish));
      return;
    }
    const std::string asked =
        absl::StrFormat("wish: %.0f tok/s x %.4g GFLOP a token = %.4g TFLOP/s", wish,
                        f_.flops_per_token * 1e-9, wish * f_.flops_per_token * 1e-12);
    if (wish > f_.peak_tok_s) {
      f_.verdict = Verdict::kNo;
      f_.reasons.push_back(absl::StrFormat(
          "%s: impossible: %d x %s gives at most %.0f tok/s with each product at its data sheet's "
          "rate",
          asked, f_.gpus, f_.gpu, f_.peak_tok_s));
    } else if (wish > f_.tok_s) {
      f_.verdict = Verdict::kNo;
      f_.reasons.push_back(absl::StrFormat("%s: %.0f tok/s expected, %.1f times too slow", asked,
                                           f_.tok_s, wish / f_.tok_s));
    } else {
      f_.reasons.push_back(asked + ": met");
    }
  }

  VariedPlans& plans_;
  const FeasibilityQuery& query_;
  const absl::Span<const v1::JobPlan> ended_;
  const GpuRow& gpu_;
  const Calibration& calibration_;
  Feasibility f_;
};

}  // namespace

double TrainingSeconds(double tokens, double tokens_per_second, double goodput) {
  return tokens / tokens_per_second / goodput;
}

std::string_view VerdictName(Verdict verdict) {
  constexpr std::string_view kNames[] = {"YES", "YES WITH CHANGES", "NO"};
  return kNames[static_cast<int>(verdict)];
}

v1::JobSpec JobOfQuestion(v1::JobSpec job_spec, const FeasibilityQuery& query) {
  if (query.gpus > 0) {
    SetWorkers(query.gpus, job_spec);
  }
  return job_spec;
}

absl::Status CheckQuery(const FeasibilityQuery& query) {
  const std::pair<const char*, double> numbers[] = {
      {"--tokens", query.tokens},
      {"--tokens", query.tokens_per_parameter},
      {"--tok-s", query.wanted_tok_s},
      {"--price-kwh", query.prices.per_kwh},
      {"--price-hour", query.prices.per_gpu_hour},
      {"--card-price", query.card_price},
      {"--lifetime", query.lifetime_hours},
      {"--mtbf", query.mtbf_hours},
      {"--restart", query.restart_seconds},
      {"--checkpoint", query.checkpoint_seconds},
  };
  for (const auto& [name, value] : numbers) {
    if (!std::isfinite(value) || value < 0 || value > kLargestNumber) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", value, " is not a number of 0 to ", kLargestNumber));
    }
  }
  if (query.lifetime_hours == 0) {
    return absl::InvalidArgumentError("--lifetime: must be above 0 hours");
  }
  if (query.gpus < 0 || query.gpus > kMostPlannedGpus) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus: ", query.gpus, " is not in 1..", kMostPlannedGpus));
  }
  return absl::OkStatus();
}

class FeasibilityJudge::Impl {
 public:
  Impl(const v1::JobSpec& job_spec, FeasibilityQuery query, std::vector<v1::JobPlan> ended)
      : query_(std::move(query)),
        ended_(std::move(ended)),
        plans_(job_spec,
               query_.gpus > 0 ? query_.gpus : std::max(1, job_spec.resources().workers())) {}

  absl::StatusOr<Feasibility> Judge(const GpuRow& gpu, const Calibration& calibration) {
    HEARTH_RETURN_IF_ERROR(CheckQuery(query_));
    return Assessment(plans_, query_, ended_, gpu, calibration).Run();
  }

 private:
  const FeasibilityQuery query_;
  const std::vector<v1::JobPlan> ended_;
  VariedPlans plans_;
};

FeasibilityJudge::FeasibilityJudge(const v1::JobSpec& job_spec,
                                   FeasibilityQuery query,
                                   std::vector<v1::JobPlan> ended)
    : impl_(std::make_unique<Impl>(job_spec, std::move(query), std::move(ended))) {}
FeasibilityJudge::~FeasibilityJudge() = default;

absl::StatusOr<Feasibility> FeasibilityJudge::Judge(const GpuRow& gpu,
                                                    const Calibration& calibration) {
  return impl_->Judge(gpu, calibration);
}

absl::StatusOr<Feasibility> AssessFeasibility(const v1::JobSpec& job_spec,
                                              const GpuRow& gpu,
                                              const Calibration& calibration,
                                              const FeasibilityQuery& query) {
  return FeasibilityJudge(job_spec, query).Judge(gpu, calibration);
}

std::string FeasibilityLine(const Feasibility& f, const std::string& currency) {
  std::string line = absl::StrFormat("%s: %.1f of %.1f GB", Str(VerdictName(f.verdict)),
                                     Gb(f.total_bytes), Gb(f.device_bytes));
  if (f.time.known()) {
    absl::StrAppendFormat(&line, "; %s", HumanDuration(absl::Seconds(f.seconds)));
  }
  const std::optional<double> cost = f.rent_cost.has_value() ? f.rent_cost : f.power_cost;
  if (cost.has_value()) {
    absl::StrAppend(&line, "; ", MoneyText(*cost, currency));
  }
  return absl::StrCat(line, "; confidence: ", f.confidence);
}

}  // namespace hearth::spec
