#include <gtest/gtest.h>

#include <string>

#include "common/fault/fault.h"
#include "nlohmann/json.hpp"
#include "tests/support/trainer/job_file.h"
#include "worker/trainer/cli/verbs.h"

namespace hearth::trainer {
namespace {

TEST(BenchCommand, ProductFailsOnBlockScaledUnits_IsSaidAndMeasuredWithout) {
  BenchOptions options;
  options.job.job_file = WriteJobFile("bench", "nvfp4", 128);
  options.json = true;
  options.threads = 1;
  options.steps = 2;
  std::string losses;
  for (const char* faults : {"", "trainer.native_gemm=error"}) {
    SCOPED_TRACE(faults);
    ASSERT_TRUE(fault::Configure(faults).ok());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = BenchCommand(options);
    const std::string errors = testing::internal::GetCapturedStderr();
    const std::string text = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(fault::Configure("").ok());
    ASSERT_EQ(code, 0) << errors;
    EXPECT_EQ(errors.find("without block-scaled matrix units") != std::string::npos,
              !std::string(faults).empty())
        << errors;
    const std::string loss = nlohmann::json::parse(text)["loss"].dump();
    EXPECT_TRUE(losses.empty() || losses == loss) << losses << ", " << loss;
    losses = loss;
  }
}

}  // namespace
}  // namespace hearth::trainer
