// What a run's guard decides, on its way into events and the job.
#include <optional>
#include <string>
#include <utility>

#include "coordinator/core/core.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/core_harness.h"

namespace hearth::coordinator {
namespace {

using M = v1::CoordinatorMessage;

TEST(Reports, DecisionsOfTheGuard_AreEventsWithTheirStep) {
  Harness h;
  h.Running(1);
  v1::TaskReport report = h.Next("job", 0);
  report.mutable_step()->set_step(7);
  report.mutable_step()->add_worst_tensors()->set_role("dy");
  v1::GuardDecision& redo = *report.mutable_step()->add_decisions();
  redo.set_step(7);
  redo.set_text("step 7: done again in bf16");
  h.Report("job", 0, report);
  EXPECT_EQ(h.events.back().type(), "precision");
  EXPECT_EQ(h.events.back().actor(), "trainer");
  EXPECT_EQ(h.events.back().step(), 7);
  EXPECT_EQ(h.events.back().message(), "step 7: done again in bf16");
  EXPECT_EQ(h.Job("job").last_decision().step(), 7);
  const size_t events = h.events.size();
  h.Report("job", 0, report);
  h.Step("job", 8);
  EXPECT_EQ(h.events.size(), events) << "each once";
  EXPECT_EQ(h.Job("job").last_report().worst_tensors_size(), 1) << "of step 7";
  // What came after the last step that was applied is told with the end.
  v1::TaskReport exit = h.Next("job", 0);
  exit.mutable_exit()->set_clean(true);
  exit.mutable_exit()->mutable_exit()->set_reason(v1::EXIT_REASON_NUMERICAL);
  v1::GuardDecision& stop = *exit.mutable_exit()->mutable_exit()->add_decisions();
  stop.set_action("stop");
  stop.set_text("step 9: no other recipe");
  h.Report("job", 0, exit);
  EXPECT_EQ(h.Job("job").last_decision().action(), "stop");
  EXPECT_EQ(h.Job("job").state(), v1::JOB_STATE_FAILED);
}

TEST(Reports, Evaluations_AreEventsAndTheNewestStayInSight) {
  Harness h;
  h.Running(1);
  const auto ask = [&h](int64_t step, const std::vector<std::string>& names) {
    v1::TaskReport report = h.Next("job", 0);
    report.mutable_step()->set_step(step);
    for (const std::string& name : names) {
      v1::EvaluationResult& result = *report.mutable_step()->add_evaluations();
      result.set_name(name);
      result.set_step(step);
      result.set_items(4);
      result.set_accuracy(0.25);
    }
    h.Report("job", 0, report);
  };
  ask(7, {"arc", "piqa"});
  EXPECT_EQ(h.events.back().type(), "evaluation");
  EXPECT_EQ(h.events.back().actor(), "trainer");
  EXPECT_EQ(h.events.back().message(), "step 7: piqa: acc 0.2500 (4 items)");
  ask(8, {"piqa"});
  h.Step("job", 9);
  const v1::StepReport& last = h.Job("job").last_report();
  ASSERT_EQ(last.evaluations_size(), 2);
  EXPECT_EQ(last.step(), 9);
  for (const v1::EvaluationResult& result : last.evaluations()) {
    EXPECT_EQ(result.step(), result.name() == "arc" ? 7 : 8);
  }
}

// A step that drew nothing from a source says nothing about its loss; the job keeps the last one.
TEST(Reports, Sources_TheJobKeepsTheNewestLossOfEach) {
  Harness h;
  h.Running(1);
  const auto step = [&h](int64_t number, std::optional<double> web, std::optional<double> code) {
    v1::TaskReport report = h.Next("job", 0);
    report.mutable_step()->set_step(number);
    for (const auto& [name, loss] : {std::pair("/web", web), std::pair("/code", code)}) {
      v1::SourceReport& source = *report.mutable_step()->add_sources();
      source.set_source(name);
      source.set_passes(0.5 * static_cast<double>(number));
      if (loss.has_value()) {
        source.set_loss(*loss);
      }
    }
    h.Report("job", 0, report);
  };
  step(7, 3.5, std::nullopt);
  EXPECT_FALSE(h.Job("job").last_report().sources(1).has_loss());
  step(8, 3.25, 2.5);
  step(9, 3.0, std::nullopt);
  const v1::StepReport& last = h.Job("job").last_report();
  ASSERT_EQ(last.sources_size(), 2);
  EXPECT_EQ(last.sources(0).loss(), 3.0);
  EXPECT_EQ(last.sources(1).loss(), 2.5);
  EXPECT_EQ(last.sources(1).passes(), 4.5);
  EXPECT_FALSE(h.history.back().step().sources(1).has_loss())
      << "the history has what the step had";
}

// Texts are kept in the history with their step, and the newest with the job.
TEST(Reports, Samples_StayWithTheJobUntilNewerOnesCome) {
  Harness h;
  h.Running(1);
  const auto write = [&h](int64_t step, const std::string& text) {
    v1::TaskReport report = h.Next("job", 0);
    report.mutable_step()->set_step(step);
    v1::SampleText& sample = *report.mutable_step()->add_samples();
    sample.set_step(step);
    sample.set_prompt("Once");
    sample.set_text(text);
    h.Report("job", 0, report);
  };
  const std::string first = " upon a time there was a test of many words";
  write(7, first);
  EXPECT_EQ(h.history.back().step().samples(0).text(), first);
  h.Step("job", 8);
  EXPECT_TRUE(h.history.back().step().samples().empty());
  ASSERT_EQ(h.Job("job").last_report().samples_size(), 1);
  EXPECT_EQ(h.Job("job").last_report().samples(0).step(), 7);
  const char* const bytes = h.core->FindJob("job")->job().last_report().samples(0).text().data();
  h.Step("job", 9);
  EXPECT_EQ(h.core->FindJob("job")->job().last_report().samples(0).text().data(), bytes)
      << "a report copies no text of an earlier one";
  write(10, " more");
  ASSERT_EQ(h.Job("job").last_report().samples_size(), 1);
  EXPECT_EQ(h.Job("job").last_report().samples(0).text(), " more");
  h.Restart();
  EXPECT_EQ(h.Job("job").last_report().samples(0).text(), " more") << "stored";
}

// What a trial before the first step has found is the job's, and every later trainer is told.
TEST(Reports, Trial_IsKeptWithTheJobAndGivenToItsNextGang) {
  Harness h;
  h.Connect("a");
  h.Create(1, "job");
  h.Tick();
  ASSERT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_FALSE(h.FindSent(M::kStart, "a")->start().task().has_trial());
  v1::TaskReport report = h.Next("job", 0);
  report.mutable_trial()->add_runs()->set_recipe("bf16");
  report.mutable_trial()->set_text("bf16 is done");
  h.Report("job", 0, report);
  EXPECT_EQ(h.State("job"), v1::JOB_STATE_STARTING);
  EXPECT_EQ(h.events.back().type(), "precision");
  EXPECT_EQ(h.events.back().message(), "bf16 is done");
  EXPECT_EQ(h.Job("job").trial().runs_size(), 1);
  h.sent.clear();
  h.Exit("job", 0, v1::EXIT_REASON_KILLED);
  h.Tick();
  ASSERT_EQ(h.Job("job").epoch(), 2);
  const v1::Task& task = h.FindSent(M::kStart, "a")->start().task();
  EXPECT_EQ(task.trial().runs(0).recipe(), "bf16");
  report = h.Next("job", 0);
  report.mutable_trial()->set_chosen("fp8");
  h.Report("job", 0, report);
  EXPECT_EQ(h.Job("job").trial().chosen(), "fp8");
  EXPECT_EQ(h.Job("job").trial().runs_size(), 0) << "each report replaces the one before";
}

}  // namespace
}  // namespace hearth::coordinator
