#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/trainer/job_file.h"
#include "worker/trainer/cli/verbs.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;

// Also where there is a GPU: the device named is one that no machine has.
TEST(TuneCommand, JobsThatCannotBeTuned_AreNamedAndNothingIsWritten) {
  const std::string job = WriteJobFile("tuned", "bf16", 128);
  TuneOptions options;
  options.jobs = {job, "/absent/job.yaml"};
  options.device = "cuda:1000";
  options.output = testing::TempDir() + "tune_command.plans";
  std::filesystem::remove(options.output);
  testing::internal::CaptureStderr();
  EXPECT_EQ(TuneCommand(options), 1);
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_THAT(errors, HasSubstr("tune: " + job + ": "));
  EXPECT_THAT(errors, HasSubstr("tune: /absent/job.yaml: "));
  EXPECT_THAT(errors, HasSubstr("2 of 2 jobs were not tuned"));
  EXPECT_FALSE(std::filesystem::exists(options.output));
}

TEST(TuneCommand, JobOfTheCpu_IsRefused) {
  const std::string job = WriteJobFile("tuned", "bf16", 128);
  TuneOptions options;
  options.jobs = {job};
  options.output = testing::TempDir() + "tune_command.plans";
  testing::internal::CaptureStderr();
  EXPECT_EQ(TuneCommand(options), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("--device cuda:0"));
}

}  // namespace
}  // namespace hearth::trainer
