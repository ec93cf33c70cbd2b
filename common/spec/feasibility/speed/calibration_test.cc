#include "common/spec/feasibility/speed/calibration.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/spec/feasibility/accuracy.h"
#include "common/spec/feasibility/feasibility.h"
#include "common/spec/feasibility/speed/calibration_text.h"
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
  // 12 calls write the 4 bytes of each value that calibrations write, too, and 11 read as many.
  EXPECT_NEAR(TimeOf(work, gpu, c, setting).product_seconds - results,
              2048.0 * 1024 * 11 * 4 / c.copy, 1e-12);
  work.products[0].weights = 3;  // a gradient for each call of a micro-batch
  EXPECT_NEAR(TimeOf(work, gpu, c, setting).product_seconds - results,
              2048.0 * 1024 * 9 * 4 / c.copy, 1e-12);
  work.products[0].gradient_bytes = 2;
  EXPECT_NEAR(TimeOf(work, gpu, c, setting).product_seconds - results,
              2048.0 * 1024 * (12 * (2 - 4) + 9 * 2) / c.copy, 1e-12);
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

// A file of a version that timed a graph's copies is refused and says what to do.
TEST(CalibrationTest, HowCopiesWereMeasured_IsNeeded) {
  std::string gpu;
  std::string text = CalibrationText(CalibrationFor(GpuNamed("H200")), "H200", {});
  ASSERT_TRUE(ParseCalibration(text, "x.yaml", gpu).ok());
  const std::string line = "copy_by: kernel\n";
  const size_t at = text.find(line);
  ASSERT_NE(at, std::string::npos);
  const auto message = [&](const std::string& instead) {
    std::string changed = text;
    changed.replace(at, line.size(), instead);
    return std::string(ParseCalibration(changed, "x.yaml", gpu).status().message());
  };
  EXPECT_EQ(message("copy_by: driver\n"), "");
  EXPECT_THAT(message(""), HasSubstr("x.yaml: copy_by: missing"));
  EXPECT_THAT(message(""), HasSubstr("calibrate again"));
  EXPECT_THAT(message("copy_by: graph\n"), HasSubstr("\"graph\" is not a way to copy"));
}

void ExpectSame(const Calibration& a, const Calibration& b) {
  const auto near = [](double x, double y) { EXPECT_NEAR(x, y, 1e-3 * y); };
  near(b.copy, a.copy);
  near(b.elementwise, a.elementwise);
  near(b.optimizer, a.optimizer);
  near(b.launch_seconds, a.launch_seconds);
  near(b.emulated, a.emulated);
  near(b.stretch_other, a.stretch_other);
  near(b.link + b.not_hidden + b.lockstep, a.link + a.not_hidden + a.lockstep);
  near(b.product_watts + b.memory_watts, a.product_watts + a.memory_watts);
  near(b.attention_watts + b.gap_watts, a.attention_watts + a.gap_watts);
  EXPECT_EQ(b.coded.size(), a.coded.size());
  ASSERT_EQ(b.attention.size(), a.attention.size());
  near(b.attention.back().backward, a.attention.back().backward);
  ASSERT_EQ(b.runs.size(), a.runs.size());
  for (size_t i = 0; i < a.runs.size(); ++i) {
    EXPECT_EQ(b.runs[i].preset + b.runs[i].recipe, a.runs[i].preset + a.runs[i].recipe);
    EXPECT_EQ(b.runs[i].micro_batches * b.runs[i].gpus, a.runs[i].micro_batches * a.runs[i].gpus);
    EXPECT_EQ(b.runs[i].watts, a.runs[i].watts);
    EXPECT_EQ(b.runs[i].tuned, a.runs[i].tuned);
  }
  for (int f = 0; f < kMatrixFormatCount; ++f) {
    near(b.stretch[f], a.stretch[f]);
    ASSERT_EQ(b.gemm[f].size(), a.gemm[f].size());
    for (size_t i = 0; i < a.gemm[f].size(); ++i) {
      EXPECT_EQ(b.gemm[f][i].m * b.gemm[f][i].k, a.gemm[f][i].m * a.gemm[f][i].k);
      near(b.gemm[f][i].flops, a.gemm[f][i].flops);
    }
  }
}

TEST(CalibrationTextTest, ReadsBackAsItWas) {
  for (const char* name : {"H200", "H100 SXM"}) {
    const Calibration& c = CalibrationFor(GpuNamed(name));
    std::string gpu;
    const auto read = ParseCalibration(CalibrationText(c, name, {"a note"}), "x.yaml", gpu);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(gpu, name);
    EXPECT_EQ(read->source, c.source);
    ExpectSame(c, *read);
  }
}

// What the shipped calibrations were fitted to, and jobs that they were not. Those of H200 were
// measured on several cards and at several commits.
TEST(AccuracyTest, PlansOfMeasuredRuns_AreWithinTheirBand) {
  const struct {
    const char* gpu;
    double tok_s;  // largest error
    double watts;
    size_t runs;
    int untuned;
  } bands[] = {{"H200", 0.07, 0.04, 22, 21}, {"H100 SXM", 0.05, 0.03, 8, 8}};
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
