#include "jobctl/views/output/columns.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/valid_job.h"

namespace hearth::jobctl {
namespace {

v1::Job SomeJob() {
  v1::Job job = spec::JobIn(v1::JOB_STATE_RUNNING, "run-a");
  job.set_step(12);
  job.set_owner("ada");
  job.set_reason("");
  job.mutable_spec()->mutable_optimizer()->set_lr(3e-4);
  (*job.mutable_spec()->mutable_labels())["team"] = "research";
  (*job.mutable_spec()->mutable_labels())["a.b"] = "c";
  job.add_workers("w0");
  job.add_workers("w1");
  job.mutable_last_report()->set_loss(2.5);
  job.mutable_create_time()->set_seconds(1'700'000'000);
  return job;
}

std::string Text(const std::string& path) {
  const auto column = JobColumn::Parse(path);
  return column.ok() ? column->Text(SomeJob()) : std::string(column.status().message());
}

TEST(JobColumn, Paths_AreFieldsOfTheJobOrItsJobFile) {
  EXPECT_EQ(Text("job_id"), "run-a");
  EXPECT_EQ(Text("state"), "running");
  EXPECT_EQ(Text("step"), "12");
  EXPECT_EQ(Text("last_report.loss"), "2.5");
  EXPECT_EQ(Text("optimizer.lr"), "0.0003");
  EXPECT_EQ(Text("spec.optimizer.lr"), "0.0003");
  EXPECT_EQ(Text("labels"), "a.b=c,team=research");
  EXPECT_EQ(Text("labels.team"), "research");
  EXPECT_EQ(Text("labels.a.b"), "c");
  EXPECT_EQ(Text("labels.none"), "-");
  EXPECT_EQ(Text("workers"), "w0,w1");
  EXPECT_EQ(Text("reason"), "-");
  EXPECT_EQ(Text("checkpoint.step"), "-") << "there is no checkpoint";
  EXPECT_THAT(Text("create_time"), testing::StartsWith("2023-11-1"));
  EXPECT_EQ(Text("end_time"), "-");
}

TEST(JobColumn, WrongPaths_SayWhatThereIs) {
  EXPECT_EQ(Text("sate"), "sate: no field sate; did you mean state?");
  EXPECT_EQ(Text("loss"), "loss: no field loss; did you mean last_report.loss?");
  EXPECT_EQ(Text("lr"), "lr: no field lr; did you mean optimizer.lr?");
  EXPECT_THAT(Text("optimizer.zzz"),
              testing::StartsWith("optimizer.zzz: no field zzz; there are "));
  EXPECT_THAT(Text("optimizer"), testing::HasSubstr("optimizer is a section of name, "));
  EXPECT_THAT(Text("evaluations"), testing::HasSubstr("no field evaluations"));
  EXPECT_THAT(Text("warnings.first"), testing::HasSubstr("warnings has no fields"));
  EXPECT_THAT(Text("stragglers.rank"), testing::HasSubstr("stragglers is a list of rank, "));
  EXPECT_EQ(Text("step.x"), "step.x: step has no fields");
}

TEST(ColumnsJson, Values_KeepTheirTypes) {
  const auto columns = *ParseJobColumns("job_id,step,optimizer.lr,workers,labels,checkpoint.step");
  EXPECT_EQ(nlohmann::json::parse(ColumnsJson(columns, {SomeJob()})), nlohmann::json::parse(R"([
      {"job_id": "run-a", "step": 12, "optimizer.lr": 0.0003, "workers": ["w0", "w1"],
       "labels": {"team": "research", "a.b": "c"}, "checkpoint.step": null}])"));
}

TEST(RenderColumns, Table_HasThePathsAsHeader) {
  EXPECT_EQ(RenderColumns(*ParseJobColumns("job_id,optimizer.lr,step"), {SomeJob()}, 80),
            "job_id  optimizer.lr  step\n"
            "run-a   0.0003        12\n");
}

std::string Sorted(const std::string& by) {
  std::vector<v1::Job> jobs(3, SomeJob());
  jobs[0].set_step(9);
  jobs[1].set_step(100);
  jobs[2].set_step(20);
  jobs[2].mutable_checkpoint()->set_step(10);
  const absl::Status sorted = SortJobs(by, jobs);
  std::string steps = sorted.ok() ? "" : std::string(sorted.message());
  for (size_t i = 0; sorted.ok() && i < jobs.size(); ++i) {
    steps += (i == 0 ? "" : " ") + std::to_string(jobs[i].step());
  }
  return steps;
}

TEST(SortJobs, Numbers_AreOrderedBySizeAndMissingOnesComeLast) {
  EXPECT_EQ(Sorted("step"), "9 20 100");
  EXPECT_EQ(Sorted("-step"), "100 20 9");
  EXPECT_EQ(Sorted("checkpoint.step"), "20 9 100");
  EXPECT_EQ(Sorted("-checkpoint.step"), "20 9 100");
  EXPECT_EQ(Sorted("owner"), "9 100 20") << "equal ones keep their order";
  EXPECT_EQ(Sorted("stp"), "stp: no field stp; did you mean step?");
}

TEST(JobMentions, Text_IsFoundWithoutRegardToCase) {
  const v1::Job job = SomeJob();
  for (const char* text : {"", "RUN", "ada", "team=res", "research"}) {
    EXPECT_TRUE(JobMentions(job, text)) << text;
  }
  EXPECT_FALSE(JobMentions(job, "w0"));
}

}  // namespace
}  // namespace hearth::jobctl
