#include "worker/trainer/rank/reporter.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/units.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/recipe/recipe.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/rank/checkpoint/state.h"
#include "worker/trainer/rank/open_loader.h"
#include "worker/trainer/rank/report_parts.h"

namespace hearth::trainer {

Reporter::Reporter(RankContext& rank, Meeting& meeting, JobData& data, RankSession& session)
    : rank_(rank),
      meeting_(meeting),
      data_(data),
      session_(session),
      started_(rank.clock.Monotonic()) {}

void Reporter::WarnIfNotExact(const CheckpointMeta& meta) {
  const auto differs = [this](std::string_view what, int64_t before, int64_t now) {
    if (before != now) {
      rank_.link.SendLog("warning", absl::StrCat("resume is not bit-exact: ",
                                                 absl::string_view(what.data(), what.size()),
                                                 " was ", before, ", is ", now));
    }
  };
  differs("the number of ranks", meta.world_size, rank_.task.world_size());
  differs("the micro-batch size", meta.micro_batch_size, rank_.agreed.micro_batch);
  differs("the global batch in tokens", meta.global_batch_tokens,
          rank_.agreed.batch.global_tokens());
  for (const std::string& difference :
       PlanDifferences(meta.plans_json, session_.engine(), rank_.task.world_size())) {
    rank_.link.SendLog("warning", absl::StrCat("resume is not bit-exact: ", difference));
  }
}

void Reporter::Announce() {
  flops_per_token_ =
      spec::FlopsPerToken(session_.engine().shape(), rank_.spec.data().sequence_length());
  if (rank_.cuda != nullptr) {
    const spec::GpuRow* row = spec::FindGpu(rank_.cuda->gpu().name);
    peak_flops_ = row == nullptr ? 0 : row->bf16_flops();
  }
  v1::RunInfo info;
  info.set_parameters(spec::CountParameters(session_.engine().shape()));
  info.set_micro_batch_size(static_cast<int32_t>(rank_.agreed.micro_batch));
  info.set_world_size(rank_.task.world_size());
  info.set_global_batch_tokens(rank_.agreed.batch.global_tokens());
  info.set_recipe(std::string(session_.engine().recipe().name));
  info.set_recipe_execution(std::string(spec::ExecutionName(session_.engine().execution())));
  info.set_deterministic(rank_.cuda == nullptr || rank_.cuda->options().deterministic);
  info.set_planned_bytes(session_.engine().plan().arena_bytes());
  info.set_comm(std::string(meeting_.comm().transport()));
  info.set_start_step(session_.trainer().step());
  info.set_flops_per_token(flops_per_token_);
  info.set_device(rank_.task.device());
  rank_.link.SendRunInfo(info);
  if (!session_.engine().execution_note().empty()) {
    rank_.link.SendLog("info", session_.engine().execution_note());
  }
  for (int i = 0; i < data_.train().sources() && !UsesLossMask(rank_.spec); ++i) {
    if (data_.train().source(i).has_mask()) {
      rank_.link.SendLog("info",
                         absl::StrCat(data_.train().source(i).path(), ": task: ", rank_.spec.task(),
                                      " trains on all tokens; the loss mask counts with sft"));
    }
  }
  if (const kernels::AttentionEngines& attention = session_.trainer().program().attention();
      !attention.forward.empty()) {
    const std::string within =
        session_.engine().documents()
            ? absl::StrFormat("; within documents, %.0f %% of the causal pairs",
                              100 * session_.engine().options().seen)
            : "";
    rank_.link.SendLog("info", absl::StrCat("attention: forward ", attention.forward, ", backward ",
                                            attention.backward, within));
  }
  if (const kernels::ProductCheck* products = session_.trainer().program().products();
      products != nullptr) {
    rank_.link.SendLog(
        "info",
        absl::StrFormat("%d of %d kinds of products on block-scaled units were compared with "
                        "their emulation: no row differs by more than %.2g",
                        products->compared(), products->met(), products->largest()));
  }
  const std::string ranks = info.world_size() == 1
                                ? "one rank"
                                : absl::StrCat(info.world_size(), " ranks over ", info.comm());
  rank_.link.SendLog(
      "info", absl::StrFormat("%s parameters, recipe %s (%s), %s, %d tokens a step in "
                              "micro-batches of %d sequences, %s planned, from step %d",
                              FormatCount(static_cast<double>(info.parameters())), info.recipe(),
                              info.recipe_execution(), ranks, info.global_batch_tokens(),
                              info.micro_batch_size(), FormatBytes(info.planned_bytes()),
                              info.start_step()));
}

void Reporter::NoteDecisions(std::vector<Decision>& decisions) {
  if (!rank_.leader) {
    return;
  }
  for (Decision& decision : decisions) {
    rank_.link.SendLog(decision.cause == Verdict::kGood ? "info" : "warning",
                       DecisionText(decision));
    decisions_.push_back(std::move(decision));
  }
}

void Reporter::NoteStep(int64_t step, bool resumed) {
  if (std::exchange(stepped_, true) || !resumed || !rank_.leader) {
    return;
  }
  resume_time_ = rank_.clock.Monotonic() - started_;
  rank_.link.SendLog(
      "info", absl::StrFormat("resumed: step %d is done %.2f s after this trainer began", step,
                              absl::ToDoubleSeconds(resume_time_)));
}

void Reporter::Report(const StepResult& result,
                      std::optional<double> validation_loss,
                      int64_t skipped_checkpoints) {
  compute_times_.Add(result.compute_seconds);
  const absl::Duration now = rank_.clock.Monotonic();
  // From every rank: by these times the coordinator finds the one that the others wait for.
  if (now - last_progress_ >= absl::Seconds(1)) {
    last_progress_ = now;
    rank_.link.SendProgress(result.step, compute_times_.Median());
  }
  if (!rank_.leader) {
    return;
  }
  v1::StepReport report = result.report;
  report.set_epoch(rank_.task.epoch());
  report.set_step(result.step);
  SetTime(*report.mutable_time(), rank_.clock.Now());
  report.set_loss(result.facts.loss);
  report.set_grad_norm(result.facts.grad_norm);
  const double seconds = report.step_seconds();
  report.set_tokens_per_second(
      seconds > 0 ? static_cast<double>(rank_.agreed.batch.global_tokens()) / seconds : 0);
  report.set_memory_bytes(MemoryInUse());
  report.set_mfu(peak_flops_ > 0 ? report.tokens_per_second() * flops_per_token_ / peak_flops_ : 0);
  if (validation_loss.has_value()) {
    report.set_validation_loss(*validation_loss);
  }
  report.set_skipped_checkpoints(skipped_checkpoints);
  report.set_resume_seconds(absl::ToDoubleSeconds(resume_time_));
  report.set_recipe(std::string(RecipeOf(result.format)));
  AddGuard(session_.trainer().ladder().counts(), decisions_, report);
  if (result.counted) {
    AddTensorStats(session_.engine(), report);
  }
  rank_.link.SendStep(report);
}

void Reporter::AddDecisions(v1::TrainerExit& exit) const {
  for (const Decision& decision : decisions_) {
    ToProto(decision, *exit.add_decisions());
  }
}

int64_t Reporter::MemoryInUse() {
  if (rank_.cuda == nullptr) {
    return ResidentBytes();
  }
  // After the first steps nothing takes memory any more; the driver is asked now and then.
  constexpr int64_t kEvery = 64;
  int64_t free = 0;
  int64_t total = 0;
  if (memory_asked_++ % kEvery < 2 && kernels::DeviceMemory(*rank_.cuda, free, total).ok()) {
    memory_in_use_ = total - free;
  }
  return memory_in_use_;
}

std::string_view Reporter::RecipeOf(const spec::StepFormat& format) const {
  const spec::PrecisionPlan& precision = session_.engine().precision();
  if (format.own() || !precision.quantised()) {
    return session_.engine().recipe().name;
  }
  return format.format == spec::LayerFormat::kFallback ? precision.fallback->name
                                                       : spec::PlainRecipe().name;
}

}  // namespace hearth::trainer
