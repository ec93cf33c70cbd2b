#include "jobctl/doctor/doctor_job.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/units.h"
#include "common/spec/feasibility/step_parts.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/plan/training_plan.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::jobctl {
namespace {

// Steps that count as "now".
constexpr size_t kRecent = 20;
// Thresholds of warnings: shares of the time of the recent steps.
constexpr struct {
  double data = 0.05;
  double comm = 0.10;
  double checkpoint = 0.05;
} kShares;
constexpr double kLowUtilization = 0.80;
constexpr double kLowClock = 0.80;        // of the highest, while busy
constexpr double kSlowerThanBest = 1.15;  // median step time against the best stretch's
constexpr double kUneven = 3.0;           // slowest step against the median
constexpr double kPlanShare = 0.90;       // of what was planned, where the GPU is calibrated
constexpr int64_t kSmallMicroBatchTokens = 8192;
constexpr double kMemoryToSpare = 0.60;  // used share below which a larger micro-batch fits
constexpr int64_t kOthersMemory = int64_t{3} << 30;  // beyond this rank's and CUDA's own

std::string Percent(double ratio) {
  return absl::StrFormat("%.0f %%", ratio * 100.0);
}

double Median(std::vector<double> values) {
  if (values.empty()) {
    return 0.0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What a reason costs and what helps; null = our own bookkeeping (idle) or unknown.
struct ThrottleAdvice {
  const char* reason;
  const char* meaning;
  const char* remedy;
};
constexpr ThrottleAdvice kThrottleAdvice[] = {
    {"sw_thermal_slowdown", "too hot (software slowdown)", "better cooling: fans, dust, room"},
    {"hw_thermal_slowdown", "too hot (hardware slowdown)", "better cooling: fans, dust, room"},
    {"hw_power_brake_slowdown", "the machine's power supply asks it to slow down",
     "a stronger power supply, or fewer GPUs on it"},
    {"hw_slowdown", "the hardware slows it down (heat or power supply)",
     "check cooling, power cables and supply"},
    {"applications_clocks_setting", "its clocks are set by hand", "sudo nvidia-smi -rac -rgc"},
    {"display_clock_setting", "its clocks are set by the display's demands",
     "drive displays from another GPU"},
    {"sync_boost", "it waits for a slower GPU of its sync boost group",
     "dissolve the group, or repair the slow GPU"},
};

class Diagnosis {
 public:
  explicit Diagnosis(const JobFacts& facts)
      : facts_(facts),
        job_(facts.job),
        spec_(facts.job.spec()),
        info_(facts.job.run_info()),
        cuda_(facts.job.spec().resources().device() == "cuda") {
    const size_t count = std::min(kRecent, facts.steps.size());
    recent_.assign(facts.steps.end() - static_cast<std::ptrdiff_t>(count), facts.steps.end());
    for (const v1::StepReport& step : recent_) {
      seconds_ += step.step_seconds();
    }
    for (const std::string& name : job_.workers()) {
      const auto worker =
          std::find_if(facts.workers.begin(), facts.workers.end(),
                       [&name](const v1::Worker& each) { return each.worker_id() == name; });
      if (worker != facts.workers.end()) {
        gang_.push_back(&*worker);
      }
    }
  }

  Findings Run() {
    State();
    if (job_.state() != v1::JOB_STATE_RUNNING) {
      return std::move(out_);
    }
    if (recent_.empty()) {
      Add(Verdict::kNote, "speed", absl::StrCat("no ", Unit(), " has been reported yet"), "");
      return std::move(out_);
    }
    if (!spec::Trains(spec_)) {
      // It has no tokens, gradients or batches of training; each step is as long as its model.
      Duration();
      Devices();
      return std::move(out_);
    }
    Speed();
    Plan();
    Precision();
    Stragglers();
    Devices();
    MicroBatch();
    Shares();
    Steadiness();
    Settings();
    if (!warned_) {
      Add(Verdict::kNote, "summary",
          "nothing stands out: this is the speed of this model and batch on this device",
          "hearth-trainer bench JOB.yaml shows where a step's time goes");
    }
    return std::move(out_);
  }

 private:
  void Add(Verdict verdict, std::string check, std::string text, std::string remedy) {
    warned_ = warned_ || verdict == Verdict::kWarning || verdict == Verdict::kFailed;
    out_.push_back({verdict, std::move(check), std::move(text), std::move(remedy)});
  }
  void Warn(std::string check, std::string text, std::string remedy) {
    Add(Verdict::kWarning, std::move(check), std::move(text), std::move(remedy));
  }

  void State() {
    const std::string text =
        absl::StrCat(StateName(job_.state()), ", ", spec::StepText(job_),
                     job_.reason().empty() ? "" : absl::StrCat(": ", job_.reason()));
    switch (job_.state()) {
      case v1::JOB_STATE_FAILED:
        Add(Verdict::kFailed, "state", text, absl::StrCat("jobctl logs ", job_.job_id()));
        break;
      case v1::JOB_STATE_QUEUED:
        Warn("state", text, "jobctl workers -o wide shows who is free and why others are not");
        break;
      case v1::JOB_STATE_RUNNING:
      case v1::JOB_STATE_SUCCEEDED:
        Add(Verdict::kOk, "state", text, "");
        break;
      default:
        Add(Verdict::kNote, "state", text, "");
    }
    if (job_.restarts() > 0) {
      Add(Verdict::kNote, "restarts", absl::StrCat(job_.restarts(), " restart(s) so far"),
          absl::StrCat("jobctl events ", job_.job_id(), " says why"));
    }
  }

  std::string Unit() const { return std::string(spec::StepUnit(spec_)); }

  void Devices() {
    for (const v1::Worker* worker : gang_) {
      Gpu(*worker);
    }
  }

  void Duration() {
    std::vector<double> times;
    for (const v1::StepReport& step : recent_) {
      times.push_back(step.step_seconds());
    }
    Add(Verdict::kOk, "speed",
        absl::StrFormat("%.3f s a %s (median of the last %d)", Median(times), Unit(),
                        static_cast<int>(recent_.size())),
        "");
  }

  void Speed() {
    std::vector<double> times;
    std::vector<double> rates;
    double joules = 0.0;
    double tokens = 0.0;
    for (const v1::StepReport& step : recent_) {
      times.push_back(step.step_seconds());
      rates.push_back(step.tokens_per_second());
      joules += step.energy_joules();
      tokens += step.tokens_per_second() * step.step_seconds();
    }
    median_ = Median(times);
    std::string text = absl::StrCat(FormatTokensPerSecond(Median(rates)), ", ",
                                    absl::StrFormat("%.3f s a step (median of the last %d)",
                                                    median_, static_cast<int>(recent_.size())));
    if (const double mfu = recent_.back().mfu(); mfu > 0.0) {
      absl::StrAppendFormat(&text, ", %.1f %% of the dense BF16 peak", mfu * 100.0);
    }
    if (joules > 0.0 && seconds_ > 0.0) {
      absl::StrAppendFormat(&text, ", %.0f W, %.1f tokens per joule", joules / seconds_,
                            tokens / joules);
    }
    Add(Verdict::kOk, "speed", text, "");
  }

  // How much of what its GPUs should give the job reaches, with the arithmetic.
  void Plan() {
    if (!facts_.plan.has_value() || !(median_ > 0.0)) {
      return;
    }
    const v1::JobPlan& plan = *facts_.plan;
    if (!(plan.tokens_per_second() > 0.0)) {
      Add(Verdict::kNote, "plan", absl::StrCat("no speed was planned: ", plan.unknown()), "");
      return;
    }
    const double share = plan.step().seconds() / median_;
    const std::string gpus =
        plan.gpus() > 1 ? absl::StrFormat("these %d GPUs", plan.gpus()) : "this GPU";
    std::string text =
        absl::StrFormat("you reach %s of what %s should give: %.1f of %.1f ms a step, %s (",
                        Percent(share), gpus, plan.step().seconds() * 1e3, median_ * 1e3,
                        FormatTokensPerSecond(plan.tokens_per_second()));
    const char* between = "";
    for (const spec::StepPart& part : spec::kStepParts) {
      const double seconds = (plan.step().*part.get)();
      if (seconds > 0.0) {
        absl::StrAppendFormat(&text, "%s%s %.1f", between, part.brief, seconds * 1e3);
        between = " + ";
      }
    }
    absl::StrAppend(&text, plan.calibrated() ? ")" : "; by the data sheet of this GPU)");
    if (share < kPlanShare && plan.calibrated()) {
      Warn("plan", text, "what follows may say where the rest goes; docs/plan.md has the model");
    } else {
      Add(share < kPlanShare ? Verdict::kNote : Verdict::kOk, "plan", text, "");
    }
  }

  void Precision() {
    const v1::StepReport& last = recent_.back();
    const std::string& wanted = spec_.precision().recipe();
    if (info_.recipe_execution() == spec::ExecutionName(spec::Execution::kEmulated)) {
      const std::string device = gang_.empty() ? "this device" : gang_.front()->device().model();
      Warn("precision",
           absl::StrCat("recipe ", info_.recipe(), " is emulated on ", device,
                        ": every operand is quantised and multiplied in higher precision, which "
                        "costs time and saves none"),
           cuda_ ? "precision.recipe: bf16, or fp8 where hearth-trainer probe shows it native"
                 : "for speed precision.recipe: fp32 on a CPU; emulation shows what a recipe does");
    }
    if (last.recipe().empty() || last.recipe() == wanted) {
      return;
    }
    if (last.step() <= spec_.precision().warmup_steps()) {
      Add(Verdict::kNote, "precision",
          absl::StrCat("still in ", last.recipe(), ": ", wanted, " begins after step ",
                       spec_.precision().warmup_steps(), " (precision.warmup_steps)"),
          "");
    } else if (const auto tail = static_cast<int64_t>(spec_.precision().bf16_tail() *
                                                      static_cast<double>(spec_.train().steps()));
               last.step() > spec_.train().steps() - tail) {
      Add(Verdict::kNote, "precision",
          absl::StrCat("in ", last.recipe(), " for the last ", tail, " steps (bf16_tail)"), "");
    } else {
      Warn("precision",
           absl::StrCat("steps run in ", last.recipe(), ", not in ", wanted,
                        ": the run has fallen back"),
           absl::StrCat("jobctl events ", job_.job_id(),
                        " says why; a lower learning rate or more warm-up may avoid it"));
    }
  }

  void Stragglers() {
    for (const v1::Straggler& slow : job_.stragglers()) {
      Warn("stragglers",
           absl::StrFormat("rank %d on %s is %.1f x slower than the median of the others, which "
                           "wait for it in every step",
                           slow.rank(), slow.worker_id(), slow.ratio()),
           "look at that machine: other load, clocks, heat, its disk; jobctl drain moves the job "
           "off it");
    }
  }

  void Gpu(const v1::Worker& worker) {
    const v1::DeviceInfo& device = worker.device();
    const v1::DeviceStatus& status = worker.device_status();
    if (device.kind() != "cuda") {
      return;
    }
    const std::string name = absl::StrCat("GPU of ", worker.worker_id());
    const double clock_share = device.sm_clock_max_hertz() > 0.0
                                   ? status.sm_clock_hertz() / device.sm_clock_max_hertz()
                                   : 0.0;
    const std::string clocks =
        clock_share > 0.0
            ? absl::StrFormat(" (clock %.2f of %.2f GHz, %s)", status.sm_clock_hertz() * 1e-9,
                              device.sm_clock_max_hertz() * 1e-9, Percent(clock_share))
            : "";
    const bool explained = Throttle(worker, name, clocks);
    const bool busy = status.utilization_ratio() > 0.5;
    if (!explained && busy && clock_share > 0.0 && clock_share < kLowClock) {
      Warn(name, absl::StrCat("clocks are low without a reason given", clocks),
           "they may be locked: sudo nvidia-smi -rgc");
    }
    if (status.utilization_ratio() < kLowUtilization) {
      Warn(name,
           absl::StrCat("runs a kernel only ", Percent(status.utilization_ratio()),
                        " of the time: it waits for something else"),
           "see the shares of data, communication and checkpoints; else the host is too slow "
           "(other load on its CPUs)");
    }
    const v1::StepReport& last = recent_.back();
    const int64_t others = status.memory_used_bytes() - last.memory_bytes();
    if (last.memory_bytes() > 0 && others > kOthersMemory && &worker == gang_.front()) {
      Warn(name,
           absl::StrCat(FormatBytes(status.memory_used_bytes()), " of memory in use, ",
                        FormatBytes(last.memory_bytes()), " of it by this rank"),
           "another process shares the GPU: nvidia-smi on that host names it");
    }
    if (status.xid_errors() > 0) {
      Warn(name, absl::StrCat("had XID error ", status.last_xid()), "see dmesg on that host");
    }
  }

  // True if a reason for low clocks was found.
  bool Throttle(const v1::Worker& worker, const std::string& name, const std::string& clocks) {
    const v1::DeviceInfo& device = worker.device();
    const v1::DeviceStatus& status = worker.device_status();
    bool found = false;
    for (const std::string& reason : status.throttle_reasons()) {
      if (reason == "sw_power_cap") {
        found = true;
        PowerCap(device, status, name, clocks);
        continue;
      }
      for (const ThrottleAdvice& advice : kThrottleAdvice) {
        if (reason == advice.reason) {
          found = true;
          const std::string heat =
              status.temperature_celsius() > 0.0
                  ? absl::StrFormat(" at %.0f degrees", status.temperature_celsius())
                  : "";
          Warn(name, absl::StrCat("throttled", heat, ": ", advice.meaning, clocks), advice.remedy);
        }
      }
    }
    return found;
  }

  void PowerCap(const v1::DeviceInfo& device,
                const v1::DeviceStatus& status,
                const std::string& name,
                const std::string& clocks) {
    const double normal = device.power_limit_default_watts();
    const bool lowered = status.power_limit_watts() + 1.0 < normal;
    const std::string text =
        absl::StrFormat("throttled: at its power limit, %.0f of %.0f W%s", status.power_watts(),
                        status.power_limit_watts(), clocks);
    if (lowered) {
      Warn(name, absl::StrFormat("%s; the default is %.0f W", text, normal),
           absl::StrFormat("sudo nvidia-smi -i %d -pl %.0f on that host, if supply and cooling "
                           "allow",
                           device.index(), normal));
    } else {
      // Dense products at full load reach the limit; there is nothing to fix.
      Add(Verdict::kNote, name, text, "");
    }
  }

  void MicroBatch() {
    if (!cuda_ || info_.micro_batch_size() == 0 || gang_.empty()) {
      return;
    }
    const int64_t sequence = spec_.data().sequence_length();
    const int64_t tokens = info_.micro_batch_size() * sequence;
    const v1::Worker& worker = *gang_.front();
    const double used = worker.device().memory_bytes() > 0
                            ? static_cast<double>(worker.device_status().memory_used_bytes()) /
                                  static_cast<double>(worker.device().memory_bytes())
                            : 1.0;
    if (tokens >= kSmallMicroBatchTokens || used >= kMemoryToSpare) {
      return;
    }
    const int64_t per_step =
        tokens > 0 ? info_.global_batch_tokens() / (tokens * std::max(1, info_.world_size())) : 1;
    Warn("micro-batch",
         absl::StrCat("a micro-batch is ", info_.micro_batch_size(), " x ", sequence, " = ", tokens,
                      " tokens and the GPU's memory is ", Percent(used),
                      " in use: the kernels are too small to fill it"),
         per_step > 1 ? absl::StrCat("raise batch.micro_batch_size (a rank does ", per_step,
                                     " micro-batches a step, so up to ", per_step,
                                     " times as large changes nothing else), or leave it auto")
                      : "raise batch.micro_batch_size and with it batch.global_batch_tokens");
  }

  void Share(double seconds,
             double limit,
             const std::string& check,
             const std::string& text,
             const std::string& remedy) {
    if (seconds_ > 0.0 && seconds / seconds_ > limit) {
      Warn(check, absl::StrCat(Percent(seconds / seconds_), " of the last steps' time ", text),
           remedy);
    }
  }

  void Shares() {
    double data = 0.0;
    double comm = 0.0;
    double checkpoint = 0.0;
    for (const v1::StepReport& step : recent_) {
      data += step.data_wait_seconds();
      comm += step.comm_seconds();
      checkpoint += step.checkpoint_seconds();
    }
    Share(data, kShares.data, "data", "is waiting for data",
          "put the dataset on a local SSD or into memory (it is read through mmap), and give the "
          "worker more --threads");
    Share(comm, kShares.comm, "communication",
          absl::StrCat("is communication over ", info_.comm(), " that compute does not hide (",
                       info_.world_size(), " ranks)"),
          "raise batch.global_batch_tokens (fewer reductions a token), take a narrower "
          "gradients.reduce_dtype; nvidia-smi topo -m shows how the GPUs are joined");
    Share(checkpoint, kShares.checkpoint, "checkpoints", "goes into writing checkpoints",
          "raise checkpoint.every_steps, or use a faster disk for --checkpoint-root");
  }

  void Steadiness() {
    std::vector<double> times;
    for (const v1::StepReport& step : facts_.steps) {
      times.push_back(step.step_seconds());
    }
    double best = median_;
    int64_t best_step = 0;
    for (size_t end = kRecent; end + kRecent <= times.size(); end += kRecent) {
      const double median = Median({times.begin() + static_cast<std::ptrdiff_t>(end - kRecent),
                                    times.begin() + static_cast<std::ptrdiff_t>(end)});
      if (median < best) {
        best = median;
        best_step = facts_.steps[end - 1].step();
      }
    }
    if (best > 0.0 && median_ / best > kSlowerThanBest) {
      Warn("steadiness",
           absl::StrFormat("a step takes %.0f %% longer than around step %d (%.3f s against "
                           "%.3f s)",
                           (median_ / best - 1.0) * 100.0, best_step, median_, best),
           "something changed since: heat, another process on the host, a slower recipe");
    }
    for (const v1::StepReport& step : recent_) {
      const double net = step.step_seconds() - step.checkpoint_seconds();
      if (!step.has_validation_loss() && median_ > 0.0 && net / median_ > kUneven) {
        Warn("steadiness",
             absl::StrFormat("step %d took %.3f s, the median is %.3f s", step.step(),
                             step.step_seconds(), median_),
             "look for a disk, network or host that stalls now and then");
        break;
      }
    }
    if (const int64_t skipped = recent_.back().skipped_steps(); skipped > 0) {
      Add(Verdict::kNote, "guard",
          absl::StrCat(skipped, " attempt(s) at a step refused by the guard so far"),
          absl::StrCat("jobctl events ", job_.job_id()));
    }
  }

  void Settings() {
    if (!cuda_) {
      const auto idle =
          std::count_if(facts_.workers.begin(), facts_.workers.end(), [](const v1::Worker& worker) {
            return worker.device().kind() == "cuda" && worker.state() == v1::WORKER_STATE_IDLE;
          });
      if (idle > 0) {
        Warn("device", absl::StrCat("the job runs on the CPU while ", idle, " GPU worker(s) idle"),
             "resources.device: cuda");
      }
      return;
    }
    spec::Recompute level = spec::Recompute::kNone;
    if (!gang_.empty() && spec::ParseRecompute(spec_.recompute(), level) &&
        level != spec::Recompute::kNone) {
      const v1::Worker& worker = *gang_.front();
      const double used = static_cast<double>(worker.device_status().memory_used_bytes()) /
                          std::max(1.0, static_cast<double>(worker.device().memory_bytes()));
      if (used < kMemoryToSpare) {
        Warn("recompute",
             absl::StrCat("activations are computed twice (recompute: ", spec_.recompute(),
                          ") although memory is only ", Percent(used), " in use"),
             "recompute: none");
      }
    }
    if (info_.deterministic()) {
      Add(Verdict::kNote, "deterministic",
          "every run gives the same bits, which makes some kernels slower",
          "train.deterministic: false if that is not needed");
    }
  }

  const JobFacts& facts_;
  const v1::Job& job_;
  const v1::JobSpec& spec_;
  const v1::RunInfo& info_;
  const bool cuda_;
  std::vector<v1::StepReport> recent_;
  double seconds_ = 0.0;                 // of the recent steps
  double median_ = 0.0;                  // of the recent steps, seconds
  std::vector<const v1::Worker*> gang_;  // rank order; without workers that are not known
  Findings out_;
  bool warned_ = false;
};

}  // namespace

Findings DiagnoseJob(const JobFacts& facts) {
  return Diagnosis(facts).Run();
}

}  // namespace hearth::jobctl
