#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "common/base/units.h"
#include "common/spec/gpus/gpus.h"
#include "worker/trainer/cli/verbs.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJob[] = R"(
name: planned
model: {preset: hearth-nano, vocab: 256}
data: {train: /nowhere, sequence_length: 32}
batch: {global_batch_tokens: 4096}
precision: {recipe: bf16}
resources: {device: cuda}
train: {steps: 10}
)";

std::string Planned(int workers, int64_t memory_bytes) {
  const std::string path = testing::TempDir() + "plan_command.yaml";
  std::ofstream(path) << kJob;
  PlanOptions options;
  options.job.job_file = path;
  options.job.overrides = {"resources.workers=" + std::to_string(workers)};
  options.memory_bytes = memory_bytes;
  testing::internal::CaptureStdout();
  EXPECT_EQ(PlanCommand(options), 0);
  return testing::internal::GetCapturedStdout();
}

TEST(PlanCommand, SeveralGpus_CountNccl) {
  constexpr int64_t kMemory = int64_t{4} << 30;
  EXPECT_THAT(Planned(1, kMemory), Not(HasSubstr("NCCL")));
  EXPECT_THAT(Planned(2, kMemory),
              HasSubstr(FormatBytes(spec::kNcclOverheadBytes) + " of NCCL = "));
}

TEST(PlanCommand, MemoryThatNcclTakes_IsNotPlannedWith) {
  // Enough for the model beside CUDA, not beside NCCL too.
  constexpr int64_t kTight = spec::kProcessOverheadBytes + spec::kNcclOverheadBytes / 2;
  EXPECT_THAT(Planned(1, kTight), HasSubstr("micro_batch_size"));
  const std::string path = testing::TempDir() + "plan_command.yaml";
  PlanOptions options;
  options.job.job_file = path;
  options.job.overrides = {"resources.workers=2"};
  options.memory_bytes = kTight;
  testing::internal::CaptureStderr();
  EXPECT_EQ(PlanCommand(options), 1);
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
}

TEST(PlanCommand, GivenMicroBatchThatDoesNotFit_IsPlannedAndRefusedWithOneThatWould) {
  const std::string path = testing::TempDir() + "plan_command.yaml";
  std::ofstream(path) << kJob;
  PlanOptions options;
  options.job.job_file = path;
  options.job.overrides = {"batch.micro_batch_size=128", "resources.workers=1"};
  options.memory_bytes = spec::kProcessOverheadBytes + (int64_t{24} << 20);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(PlanCommand(options), 1);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("micro_batch_size 128"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("does not fit"));
  options.memory_bytes = int64_t{64} << 30;
  testing::internal::CaptureStdout();
  EXPECT_EQ(PlanCommand(options), 0);
  testing::internal::GetCapturedStdout();
}

}  // namespace
}  // namespace hearth::trainer
