#include "common/spec/feasibility/speed/calibration.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/spec/feasibility/accuracy.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/speed/step_time.h"
#include "common/spec/feasibility/speed/work.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/plan/shard_levels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/planned_job.h"

namespace hearth::spec {
namespace {

using ::testing::HasSubstr;

TEST(StepTimeTest, Gradients_AreWrittenByEveryCall_AndReadByAllButTheFirst) {
  const GpuRow& gpu = GpuNamed("H100 SXM");
  const Calibration& c = CalibrationFor(gpu);
  StepWork work;
  work.products.push_back(
      {.weight = "gate_up", .pass = "wgrad", .m = 2048, .n = 1024, .k = 4096, .calls = 3});
  const StepSetting setting{.micro_batches = 4};
  const double results = TimeOf(work, gpu, c, setting).product_seconds;
  ASSERT_GT(results, 0);
  work.products[0].gradient_bytes = 4;
  // 12 calls write 4 bytes of each value where calibrations write 2, and 11 read 4.
  EXPECT_NEAR(TimeOf(work, gpu, c, setting).product_seconds - results,
              2048.0 * 1024 * (12 * 2 + 11 * 4) / c.copy, 1e-12);
  work.products[0].weights = 3;  // a gradient for each call of a micro-batch
  EXPECT_NEAR(TimeOf(work, gpu, c, setting).product_seconds - results,
              2048.0 * 1024 * (12 * 2 + 9 * 4) / c.copy, 1e-12);
}

TEST(StepTimeTest, LayersHaveGradientsOfTheirOwn) {
  const v1::JobSpec job = PlannedJob("hearth-112m", "bf16", 8, 2048);
  const auto inputs = MakePlanInputs(job, 8, 1, /*training=*/true, 1, ShardLevel::kOff);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  int gradients = 0;
  for (const ProductWork& p : WorkOf((*inputs)->options, MatrixFormat::kBf16).products) {
    if (p.gradient_bytes > 0 && p.weight != "head") {
      EXPECT_EQ(p.weights, p.calls) << p.weight << ": nothing adds to it in one micro-batch";
      ++gradients;
    }
  }
  EXPECT_GE(gradients, 4);
}

TEST(CalibrationTest, EveryGpu_HasOne) {
  for (const GpuRow& gpu : Gpus()) {
    const Calibration& c = CalibrationFor(gpu);
    EXPECT_GT(c.copy, 0) << gpu.name;
    EXPECT_GT(ProductRate(c, MatrixFormat::kBf16, 4096, 4096, 4096), 0) << gpu.name;
    EXPECT_LE(ProductRate(c, MatrixFormat::kBf16, 4096, 4096, 4096), gpu.bf16_flops());
    EXPECT_GT(AttentionRateOf(c, 64, 1024).backward, 0) << gpu.name;
    EXPECT_EQ(c.measured, gpu.name == "H200" || gpu.name == "H100 SXM");
  }
}

TEST(CalibrationTest, Faults_AreNamed) {
  std::string gpu;
  const auto parsed = ParseCalibration("gpu: H300\ncopy_gbs: -1\nextra: 1\n", "x.yaml", gpu);
  ASSERT_FALSE(parsed.ok());
  const std::string text(parsed.status().message());
  EXPECT_THAT(text, HasSubstr("\"H300\" is not in configs/gpus.yaml"));
  EXPECT_THAT(text, HasSubstr("copy_gbs: not a finite number >= 0"));
  EXPECT_THAT(text, HasSubstr("extra"));
  EXPECT_FALSE(ParseCalibration("][", "x.yaml", gpu).ok());
}

// What the shipped calibrations were fitted to, and jobs that they were not.
TEST(AccuracyTest, PlansOfMeasuredRuns_AreWithinTheirBand) {
  const struct {
    const char* gpu;
    double tok_s;  // largest error
    double watts;
    size_t runs;
    int untuned;
  } bands[] = {{"H200", 0.06, 0.10, 20, 11}, {"H100 SXM", 0.04, 0.03, 8, 8}};
  for (const auto& band : bands) {
    const GpuRow& gpu = GpuNamed(band.gpu);
    const std::vector<AccuracyRow> rows = Accuracy(gpu, CalibrationFor(gpu));
    ASSERT_EQ(rows.size(), band.runs) << gpu.name;
    int untuned = 0;
    for (const AccuracyRow& row : rows) {
      const std::string name =
          gpu.name + " " + row.run.preset + " " + row.run.recipe + " " + row.run.lm_head;
      ASSERT_GT(row.tok_s, 0) << name;
      EXPECT_LT(std::abs(row.tok_s_error), band.tok_s) << name << ": " << row.tok_s;
      EXPECT_LT(std::abs(row.watts_error), band.watts) << name << ": " << row.watts;
      untuned += row.run.tuned ? 0 : 1;
    }
    EXPECT_GE(untuned, band.untuned) << gpu.name;
  }
}

// A whole step from the data sheet reaches at most three quarters of the speed that its products
// would have at the data sheet's rates of their formats.
TEST(DataSheetTest, WholeStepsAreCredible) {
  FeasibilityQuery query;
  query.memory_bytes = int64_t{256} << 30;
  int judged = 0;
  for (const char* preset : {"hearth-112m", "hearth-774m", "qwen2.5-1.5b"}) {
    for (const char* recipe : {"bf16", "fp8"}) {
      FeasibilityJudge judge(PlannedJob(preset, recipe, 8, 2048), query);
      for (const GpuRow& gpu : Gpus()) {
        const Calibration& calibration = CalibrationFor(gpu);
        if (calibration.measured) {
          continue;
        }
        const auto f = judge.Judge(gpu, calibration);
        ASSERT_TRUE(f.ok()) << f.status();
        EXPECT_LE(f->peak_share(), 0.75) << gpu.name << " " << preset << " " << f->recipe;
        EXPECT_GE(f->peak_share(), 0.2) << gpu.name << " " << preset << " " << f->recipe;
        ++judged;
      }
    }
  }
  EXPECT_GE(judged, 80);
}

}  // namespace
}  // namespace hearth::spec
