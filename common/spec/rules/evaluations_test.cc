// task: eval: what its job file may say, and what is said of its results.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/fields/idle.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/resolve/resolve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/valid_job.h"

namespace hearth::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec EvalJob() {
  v1::JobSpec job;
  job.set_name("eval");
  job.set_task("eval");
  job.mutable_evaluate()->set_job("first-run");
  job.mutable_evaluate()->add_data("/data/held_out");
  v1::QuestionsSpec& questions = *job.mutable_evaluate()->add_questions();
  questions.set_task("piqa");
  questions.set_items("/data/piqa.jsonl");
  return job;
}

template <typename Change>
std::string Violations(Change change) {
  v1::JobSpec job = EvalJob();
  change(job, *job.mutable_evaluate());
  std::vector<FieldViolation> violations;
  ResolveSubmitted(job, violations);
  return Print(violations);
}

TEST(EvaluateTest, Resolve_EvalJob_HasOnlyWhatItReads) {
  v1::JobSpec job = EvalJob();
  ASSERT_TRUE(ResolveSubmitted(job).ok()) << ResolveSubmitted(job).ToString();
  EXPECT_EQ(job.evaluate().questions(0).name(), "piqa");
  EXPECT_TRUE(job.evaluate().has_ema());
  EXPECT_EQ(job.resources().min_workers(), 1);
  EXPECT_FALSE(job.has_model());
  EXPECT_FALSE(job.has_data());
  EXPECT_FALSE(job.has_batch());
  EXPECT_FALSE(job.has_precision());
  EXPECT_FALSE(job.has_optimizer());
  EXPECT_FALSE(job.has_schedule());
  EXPECT_FALSE(job.has_gradients());
  EXPECT_FALSE(job.has_recompute());
  EXPECT_FALSE(job.has_parallel());
  EXPECT_FALSE(job.has_train());
  EXPECT_FALSE(job.has_checkpoint());
  // What a worker says of the paths adds nothing.
  const v1::JobSpec resolved = job;
  std::vector<FieldViolation> violations;
  ResolveWithFacts(job, DataFacts{}, nullptr, violations);
  EXPECT_EQ(Print(violations), "");
  EXPECT_EQ(job.SerializeAsString(), resolved.SerializeAsString());
  EXPECT_TRUE(ResolveSubmitted(job).ok()) << "submitted again";
}

TEST(EvaluateTest, Resolve_WhatTrains_IsRefused) {
  EXPECT_THAT(Violations([](v1::JobSpec& job, v1::EvaluateSpec&) {
                job.mutable_optimizer()->set_lr(1);
                job.mutable_train()->set_steps(10);
              }),
              testing::AllOf(HasSubstr("optimizer: changes nothing: it acts only with a task that "
                                       "trains; here task is eval\n"),
                             HasSubstr("train: changes nothing: ")));
  v1::JobSpec trains = ValidJob();
  trains.mutable_evaluate()->set_job("first-run");
  std::vector<FieldViolation> violations;
  ResolveSubmitted(trains, violations);
  EXPECT_THAT(Print(violations), HasSubstr("evaluate: changes nothing: it acts only with task "
                                           "eval; here task is pretrain"));
}

TEST(EvaluateTest, Resolve_BadEvalJobs_NameTheField) {
  const auto none = [](v1::JobSpec&, v1::EvaluateSpec&) {};
  EXPECT_EQ(Violations(none), "");
  EXPECT_THAT(Violations([](v1::JobSpec&, v1::EvaluateSpec& e) { e.clear_job(); }),
              HasSubstr("evaluate.job: give either evaluate.job or evaluate.models"));
  EXPECT_THAT(Violations([](v1::JobSpec&, v1::EvaluateSpec& e) { e.add_models("/m"); }),
              HasSubstr("evaluate.job: give either evaluate.job or evaluate.models"));
  EXPECT_THAT(Violations([](v1::JobSpec&, v1::EvaluateSpec& e) {
                e.clear_data();
                e.clear_questions();
              }),
              HasSubstr("evaluate.data: required"));
  EXPECT_THAT(Violations([](v1::JobSpec&, v1::EvaluateSpec& e) {
                e.clear_job();
                e.add_models("/m");
                e.add_models("/m");
                e.add_models("");
                e.add_steps(4);
              }),
              testing::AllOf(HasSubstr("evaluate.models[1]: /m is listed twice"),
                             HasSubstr("evaluate.models[2]: must not be empty"),
                             HasSubstr("evaluate.steps: changes nothing: it acts only with "
                                       "evaluate.job; here evaluate.job is not given")));
  EXPECT_THAT(Violations([](v1::JobSpec&, v1::EvaluateSpec& e) {
                e.set_job("");
                e.add_models("/m");
                e.add_steps(4);
              }),
              HasSubstr("evaluate.steps: changes nothing"))
      << "of no job";
  EXPECT_THAT(Violations([](v1::JobSpec&, v1::EvaluateSpec& e) {
                e.add_steps(0);
                e.add_steps(4);
                e.add_steps(4);
              }),
              testing::AllOf(HasSubstr("evaluate.steps[0]: 0 is out of range"),
                             HasSubstr("evaluate.steps[2]: 4 is listed twice")));
  EXPECT_THAT(Violations([](v1::JobSpec&, v1::EvaluateSpec& e) {
                *e.add_questions() = e.questions(0);
                e.mutable_questions(0)->clear_items();
              }),
              testing::AllOf(HasSubstr("evaluate.questions[0].items: required"),
                             HasSubstr("evaluate.questions[0] is called \"piqa\" too")));
  EXPECT_THAT(Violations([](v1::JobSpec&, v1::EvaluateSpec& e) {
                for (int i = 1; i <= 65; ++i) {
                  e.add_steps(i);
                }
              }),
              HasSubstr("evaluate.steps: 65 are more than 64"));
  EXPECT_THAT(Violations([](v1::JobSpec&, v1::EvaluateSpec& e) {
                while (e.data_size() < 65) {
                  e.add_data(absl::StrCat("/d", e.data_size()));
                }
              }),
              HasSubstr("evaluate.data: 65 are more than 64"));
  EXPECT_THAT(
      Violations(
          [](v1::JobSpec& job, v1::EvaluateSpec&) { job.mutable_resources()->set_workers(2); }),
      HasSubstr("resources.workers: 2 is out of range; a job that evaluates runs on one worker"));
}

TEST(EvaluateTest, Samples_TooManyOrTooLong_NameTheField) {
  const auto violations = [](auto change) {
    v1::JobSpec job = ValidJob();
    job.mutable_data()->add_validation()->set_path("/data/v");
    change(*job.mutable_train());
    std::vector<FieldViolation> found;
    ResolveSubmitted(job, found);
    return Print(found);
  };
  EXPECT_EQ(violations([](v1::TrainSpec& train) {
              for (int i = 0; i < kSamplesMax; ++i) {
                v1::TextRequest& text = *train.add_samples();
                text.set_prompt(std::string(kSamplePromptBytesMax, 'x'));
                text.set_max_tokens(kSampleTokensMax);
                text.add_stop("\n");
              }
            }),
            "");
  EXPECT_THAT(violations([](v1::TrainSpec& train) {
                for (int i = 0; i <= kSamplesMax; ++i) {
                  train.add_samples();
                }
                v1::TextRequest& text = *train.mutable_samples(0);
                text.set_prompt(std::string(kSamplePromptBytesMax + 1, 'x'));
                text.set_max_tokens(kSampleTokensMax + 1);
                text.add_stop("");
                text.set_temperature(-1);
              }),
              testing::AllOf(HasSubstr("train.samples: 17 are more than 16"),
                             HasSubstr("train.samples[0].prompt: 4097 bytes are more than 4096"),
                             HasSubstr("train.samples[0].max_tokens: 1025 are more than 1024"),
                             HasSubstr("train.samples[0].stop[0]: 0 bytes is out of range"),
                             HasSubstr("train.samples[0].temperature: -1 is out of range")));
}

TEST(EvaluateTest, SampleLine_IsOneLineAndSaysHowTheTextEnded) {
  v1::SampleText sample;
  sample.set_step(20);
  sample.set_prompt("Once \"upon\"");
  sample.set_text(" a\ntime \x01 \xC3\xA9");
  sample.set_tokens(9);
  sample.set_end(v1::TEXT_END_STOP);
  EXPECT_EQ(SampleLine(sample),
            "\"Once \\\"upon\\\"\" + \" a\\ntime \\001 \xC3\xA9\" (9 tokens, stop)");
  v1::StepReport report;
  *report.add_samples() = sample;
  EXPECT_THAT(SampleTexts(report), ElementsAre("step 20: " + SampleLine(sample)));
  std::string accents;
  for (int i = 0; i < 150; ++i) {
    accents += "\xC3\xA9";
  }
  sample.set_text("x" + accents);
  EXPECT_THAT(SampleLine(sample), HasSubstr("\xC3\xA9...\" (9 tokens")) << "no half character";
  EXPECT_LT(SampleLine(sample).size(), 260U);
  EXPECT_THAT(SampleLine(sample, /*whole=*/true), HasSubstr("\"x" + accents + "\""));
}

TEST(EvaluateTest, Unit_IsWhatAStepOfTheTaskIs) {
  v1::Job job;
  *job.mutable_spec() = ValidJob();
  job.set_step(7);
  EXPECT_EQ(StepText(job), "step 7 of 1000");
  EXPECT_EQ(StepHeading(job.spec()), "Steps");
  *job.mutable_spec() = EvalJob();
  job.add_models();
  job.set_step(1);
  EXPECT_EQ(StepText(job), "model 1 of 1");
  EXPECT_EQ(StepHeading(job.spec()), "Models");
  EXPECT_EQ(StepUnit(job.spec()), "model");
}

TEST(EvaluateTest, TotalSteps_CountsStepsOrModels) {
  v1::Job job;
  *job.mutable_spec() = ValidJob();
  EXPECT_EQ(TotalSteps(job), 1000);
  *job.mutable_spec() = EvalJob();
  EXPECT_EQ(TotalSteps(job), 0);
  job.add_models();
  job.add_models();
  EXPECT_EQ(TotalSteps(job), 2);
}

TEST(EvaluateTest, Texts_NameModelAndResult) {
  v1::Job job;
  *job.mutable_spec() = EvalJob();
  v1::Checkpoint& first = *job.add_models()->mutable_checkpoint();
  first.set_job_id("first-run");
  first.set_step(400);
  job.add_models()->mutable_checkpoint()->set_path("/models/qwen");
  v1::StepReport report;
  report.set_step(2);
  v1::HeldOutLoss& loss = *report.add_held_out();
  loss.set_source("/data/web");
  loss.set_loss(3.41281);
  loss.set_tokens(96);
  v1::EvaluationResult& result = *report.add_evaluations();
  result.set_name("piqa");
  result.set_accuracy(0.25);
  result.set_items(8);
  EXPECT_THAT(ReportTexts(job, report),
              ElementsAre("/models/qwen: /data/web: loss 3.4128 (96 tokens)",
                          "/models/qwen: piqa: acc 0.2500 (8 items)"));
  EXPECT_TRUE(ResultTexts(job).empty()) << "nothing is evaluated yet";
  loss.set_bits_per_byte(1.2087);
  *job.mutable_models(0)->mutable_held_out() = report.held_out();
  EXPECT_THAT(
      ResultTexts(job),
      ElementsAre(
          "step 400 of first-run: /data/web: loss 3.4128, 1.2087 bits per byte (96 tokens)"));
  v1::Job trains;
  report.clear_held_out();
  *trains.mutable_last_report() = report;
  trains.mutable_last_report()->mutable_evaluations(0)->set_step(20);
  EXPECT_THAT(ReportTexts(trains, report), ElementsAre("step 2: piqa: acc 0.2500 (8 items)"));
  EXPECT_THAT(ResultTexts(trains), ElementsAre("piqa: acc 0.2500 (8 items), after step 20"));
}

TEST(SourceTextTest, LossOnlyWhereOneIsKnown) {
  v1::SourceReport source;
  source.set_source("/data/web");
  source.set_passes(0.4151);
  EXPECT_EQ(SourceText(source), "/data/web: read 0.42 times");
  source.set_loss(3.41281);
  EXPECT_EQ(SourceText(source), "/data/web: loss 3.4128, read 0.42 times");
}

}  // namespace
}  // namespace hearth::spec
