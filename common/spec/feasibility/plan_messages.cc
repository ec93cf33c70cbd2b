#include "common/spec/feasibility/plan_messages.h"

#include <string>

#include "common/spec/feasibility/step_parts.h"

namespace hearth::spec {
namespace {

// A field of a struct and the accessors of the message's field that holds it.
template <typename Struct, typename Message, typename Value>
struct Pair {
  Value Struct::*field;
  Value (Message::*get)() const;
  void (Message::*set)(Value);
};

// What is not a part of the time.
using StepPair = Pair<StepTime, v1::StepPlan, double>;
constexpr StepPair kStepNumbers[] = {
    {&StepTime::seconds, &v1::StepPlan::seconds, &v1::StepPlan::set_seconds},
    {&StepTime::watts, &v1::StepPlan::watts, &v1::StepPlan::set_watts},
};

using QueryPair = Pair<FeasibilityQuery, v1::PlanQuestion, double>;
constexpr QueryPair kQueryNumbers[] = {
    {&FeasibilityQuery::tokens, &v1::PlanQuestion::tokens, &v1::PlanQuestion::set_tokens},
    {&FeasibilityQuery::tokens_per_parameter, &v1::PlanQuestion::tokens_per_parameter,
     &v1::PlanQuestion::set_tokens_per_parameter},
    {&FeasibilityQuery::wanted_tok_s, &v1::PlanQuestion::wanted_tokens_per_second,
     &v1::PlanQuestion::set_wanted_tokens_per_second},
    {&FeasibilityQuery::card_price, &v1::PlanQuestion::card_price,
     &v1::PlanQuestion::set_card_price},
};

using JudgementPair = Pair<Feasibility, v1::PlanJudgement, double>;
constexpr JudgementPair kJudgementNumbers[] = {
    {&Feasibility::flops_per_token, &v1::PlanJudgement::flops_per_token,
     &v1::PlanJudgement::set_flops_per_token},
    {&Feasibility::tok_s, &v1::PlanJudgement::tokens_per_second,
     &v1::PlanJudgement::set_tokens_per_second},
    {&Feasibility::mfu, &v1::PlanJudgement::mfu, &v1::PlanJudgement::set_mfu},
    {&Feasibility::peak_tok_s, &v1::PlanJudgement::peak_tokens_per_second,
     &v1::PlanJudgement::set_peak_tokens_per_second},
    {&Feasibility::tokens, &v1::PlanJudgement::tokens, &v1::PlanJudgement::set_tokens},
    {&Feasibility::seconds, &v1::PlanJudgement::seconds, &v1::PlanJudgement::set_seconds},
    {&Feasibility::goodput, &v1::PlanJudgement::goodput, &v1::PlanJudgement::set_goodput},
};

using SizePair = Pair<Feasibility, v1::PlanJudgement, int64_t>;
constexpr SizePair kJudgementSizes[] = {
    {&Feasibility::parameters, &v1::PlanJudgement::parameters, &v1::PlanJudgement::set_parameters},
    {&Feasibility::micro_batch, &v1::PlanJudgement::micro_batch,
     &v1::PlanJudgement::set_micro_batch},
    {&Feasibility::micro_batches, &v1::PlanJudgement::micro_batches,
     &v1::PlanJudgement::set_micro_batches},
    {&Feasibility::sequence_length, &v1::PlanJudgement::sequence_length,
     &v1::PlanJudgement::set_sequence_length},
    {&Feasibility::shards, &v1::PlanJudgement::shards, &v1::PlanJudgement::set_shards},
    {&Feasibility::total_bytes, &v1::PlanJudgement::total_bytes,
     &v1::PlanJudgement::set_total_bytes},
    {&Feasibility::host_bytes, &v1::PlanJudgement::host_bytes, &v1::PlanJudgement::set_host_bytes},
    {&Feasibility::device_bytes, &v1::PlanJudgement::device_bytes,
     &v1::PlanJudgement::set_device_bytes},
    {&Feasibility::largest_micro_batch, &v1::PlanJudgement::largest_micro_batch,
     &v1::PlanJudgement::set_largest_micro_batch},
};

// The same of numbers that may be absent.
struct OptionalPair {
  std::optional<double> Feasibility::*field;
  bool (v1::PlanJudgement::*has)() const;
  double (v1::PlanJudgement::*get)() const;
  void (v1::PlanJudgement::*set)(double);
};
constexpr OptionalPair kJudgementOptions[] = {
    {&Feasibility::joules, &v1::PlanJudgement::has_joules, &v1::PlanJudgement::joules,
     &v1::PlanJudgement::set_joules},
    {&Feasibility::power_cost, &v1::PlanJudgement::has_power_cost, &v1::PlanJudgement::power_cost,
     &v1::PlanJudgement::set_power_cost},
    {&Feasibility::rent_cost, &v1::PlanJudgement::has_rent_cost, &v1::PlanJudgement::rent_cost,
     &v1::PlanJudgement::set_rent_cost},
    {&Feasibility::purchase_cost, &v1::PlanJudgement::has_purchase_cost,
     &v1::PlanJudgement::purchase_cost, &v1::PlanJudgement::set_purchase_cost},
    {&Feasibility::break_even_hours, &v1::PlanJudgement::has_break_even_hours,
     &v1::PlanJudgement::break_even_hours, &v1::PlanJudgement::set_break_even_hours},
};

template <typename Pairs, typename Struct, typename Message>
void Write(const Pairs& pairs, const Struct& from, Message& to) {
  for (const auto& pair : pairs) {
    (to.*pair.set)(from.*pair.field);
  }
}

template <typename Pairs, typename Message, typename Struct>
void Read(const Pairs& pairs, const Message& from, Struct& to) {
  for (const auto& pair : pairs) {
    to.*pair.field = (from.*pair.get)();
  }
}

MatrixFormat FormatNamed(const std::string& name) {
  for (int f = 0; f < kMatrixFormatCount; ++f) {
    if (name == MatrixFormatName(static_cast<MatrixFormat>(f))) {
      return static_cast<MatrixFormat>(f);
    }
  }
  return MatrixFormat::kBf16;
}

StepTime StepTimeOf(const v1::StepPlan& step) {
  StepTime time;
  for (const StepPart& part : kStepParts) {
    time.*part.seconds = (step.*part.get)();
  }
  Read(kStepNumbers, step, time);
  time.unknown = step.unknown();
  for (const v1::ProductPlan& product : step.products()) {
    time.products.push_back({{.weight = product.weight(),
                              .pass = product.pass(),
                              .format = FormatNamed(product.format()),
                              .m = product.m(),
                              .n = product.n(),
                              .k = product.k(),
                              .calls = product.calls()},
                             product.seconds()});
  }
  return time;
}

void WriteLists(const Feasibility& f, v1::PlanJudgement& out) {
  for (const MemoryPart& part : f.memory) {
    v1::PlanMemoryPart& made = *out.add_memory();
    made.set_name(part.name);
    made.set_bytes(part.bytes);
  }
  for (const LevelRow& level : f.levels) {
    v1::PlanLevel& made = *out.add_levels();
    made.set_recompute(level.recompute);
    made.set_activation_bytes(level.activation_bytes);
    made.set_total_bytes(level.total_bytes);
    made.set_largest_micro_batch(level.largest_micro_batch);
    made.set_step_seconds(level.step_seconds);
    made.set_fits(level.fits);
  }
  for (const Saving& saving : f.savings) {
    v1::PlanSaving& made = *out.add_savings();
    made.set_change(saving.change);
    made.set_saved_bytes(saving.saved_bytes);
    made.set_time_ratio(saving.time_ratio);
    made.set_loss(saving.loss);
  }
  for (const Change& change : f.changes) {
    v1::PlanChange& made = *out.add_changes();
    made.set_field(change.field);
    made.set_value(change.value);
  }
  out.mutable_reasons()->Assign(f.reasons.begin(), f.reasons.end());
}

void ReadLists(const v1::PlanJudgement& judgement, Feasibility& f) {
  for (const v1::PlanMemoryPart& part : judgement.memory()) {
    f.memory.push_back({part.name(), part.bytes()});
  }
  for (const v1::PlanLevel& level : judgement.levels()) {
    f.levels.push_back({level.recompute(), level.activation_bytes(), level.total_bytes(),
                        level.largest_micro_batch(), level.step_seconds(), level.fits()});
  }
  for (const v1::PlanSaving& saving : judgement.savings()) {
    f.savings.push_back(
        {saving.change(), saving.saved_bytes(), saving.time_ratio(), saving.loss()});
  }
  for (const v1::PlanChange& change : judgement.changes()) {
    f.changes.push_back({change.field(), change.value()});
  }
  f.reasons.assign(judgement.reasons().begin(), judgement.reasons().end());
}

}  // namespace

v1::PlanQuestion QuestionOf(const FeasibilityQuery& query) {
  v1::PlanQuestion question;
  Write(kQueryNumbers, query, question);
  question.set_gpus(query.gpus);
  question.set_memory_bytes(query.memory_bytes);
  question.set_host_memory_bytes(query.host_memory_bytes);
  question.set_price_per_kwh(query.prices.per_kwh);
  question.set_price_per_gpu_hour(query.prices.per_gpu_hour);
  question.set_lifetime_hours(query.lifetime_hours);
  question.set_mtbf_hours(query.mtbf_hours);
  question.set_restart_seconds(query.restart_seconds);
  question.set_checkpoint_seconds(query.checkpoint_seconds);
  return question;
}

FeasibilityQuery QueryOf(const v1::PlanQuestion& question) {
  FeasibilityQuery query;
  Read(kQueryNumbers, question, query);
  query.gpus = question.gpus();
  query.memory_bytes = question.memory_bytes();
  query.host_memory_bytes = question.host_memory_bytes();
  query.prices.per_kwh = question.price_per_kwh();
  query.prices.per_gpu_hour = question.price_per_gpu_hour();
  if (question.has_lifetime_hours()) {
    query.lifetime_hours = question.lifetime_hours();
  }
  if (question.has_mtbf_hours()) {
    query.mtbf_hours = question.mtbf_hours();
  }
  if (question.has_restart_seconds()) {
    query.restart_seconds = question.restart_seconds();
  }
  if (question.has_checkpoint_seconds()) {
    query.checkpoint_seconds = question.checkpoint_seconds();
  }
  return query;
}

v1::StepPlan StepPlanOf(const StepTime& time) {
  v1::StepPlan step;
  for (const StepPart& part : kStepParts) {
    (step.*part.set)(time.*part.seconds);
  }
  Write(kStepNumbers, time, step);
  step.set_unknown(time.unknown);
  return step;
}

v1::PlanJudgement JudgementOf(const Feasibility& f) {
  v1::PlanJudgement out;
  Write(kJudgementNumbers, f, out);
  Write(kJudgementSizes, f, out);
  for (const OptionalPair& pair : kJudgementOptions) {
    if ((f.*pair.field).has_value()) {
      (out.*pair.set)(*(f.*pair.field));
    }
  }
  out.set_job(f.job);
  out.set_gpu(f.gpu);
  out.set_gpus(f.gpus);
  out.set_plan_only(f.plan_only);
  // The names are in the order of the enumerators behind UNSPECIFIED.
  out.set_verdict(static_cast<v1::PlanVerdict>(static_cast<int>(f.verdict) + 1));
  out.set_confidence(f.confidence);
  out.set_recipe(f.recipe);
  out.set_execution(f.execution);
  out.set_execution_note(f.execution_note);
  out.set_recompute(f.recompute);
  out.set_shard(f.shard);
  WriteLists(f, out);
  *out.mutable_step() = StepPlanOf(f.time);
  for (const ProductTime& product : f.time.products) {
    v1::ProductPlan& made = *out.mutable_step()->add_products();
    made.set_weight(product.work.weight);
    made.set_pass(product.work.pass);
    made.set_format(std::string(MatrixFormatName(product.work.format)));
    made.set_m(product.work.m);
    made.set_n(product.work.n);
    made.set_k(product.work.k);
    made.set_calls(product.work.calls);
    made.set_seconds(product.seconds);
  }
  return out;
}

Feasibility FeasibilityOf(const v1::PlanJudgement& judgement) {
  Feasibility f;
  Read(kJudgementNumbers, judgement, f);
  Read(kJudgementSizes, judgement, f);
  for (const OptionalPair& pair : kJudgementOptions) {
    if ((judgement.*pair.has)()) {
      f.*pair.field = (judgement.*pair.get)();
    }
  }
  f.job = judgement.job();
  f.gpu = judgement.gpu();
  f.gpus = judgement.gpus();
  f.plan_only = judgement.plan_only();
  f.verdict = judgement.verdict() == v1::PLAN_VERDICT_YES                ? Verdict::kYes
              : judgement.verdict() == v1::PLAN_VERDICT_YES_WITH_CHANGES ? Verdict::kYesWithChanges
                                                                         : Verdict::kNo;
  f.confidence = judgement.confidence();
  f.recipe = judgement.recipe();
  f.execution = judgement.execution();
  f.execution_note = judgement.execution_note();
  f.recompute = judgement.recompute();
  f.shard = judgement.shard();
  ReadLists(judgement, f);
  f.time = StepTimeOf(judgement.step());
  return f;
}

}  // namespace hearth::spec
