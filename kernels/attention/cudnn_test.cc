// Whether cuDNN's engines take the graphs for the shapes that matter, without a GPU: from the
// properties of one. What they compute is the ops harness's to check, on a GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention/cudnn_sdpa.h"

namespace hearth::kernels {
namespace {

struct Gpu {
  int version;  // 900 = sm_90
  int multiprocessors;
  int shared_memory;
  int64_t l2_bytes;
};
constexpr Gpu kH200 = {900, 132, 232448, 62914560};
constexpr Gpu kRtx5090 = {1200, 170, 101376, 100663296};

std::string Json(const Gpu& gpu) {
  const bool blackwell = gpu.version == 1200;
  return absl::StrCat(
      R"({"deviceVer":)", gpu.version,
      R"(,"driverVer":13000,"cudaDeviceId":0,"maxGridSize":[2147483647,65535,65535],)",
      R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":)",
      gpu.multiprocessors, R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,)",
      R"("maxSharedMemoryPerBlockOptin":)", gpu.shared_memory,
      R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":)",
      blackwell ? 24 : 32, R"(,"maxThreadsPerBlock":1024,"maxThreadsPerSM":)",
      blackwell ? 1536 : 2048,
      R"(,"totalGlobalMem":34000000000,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)",
      R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":)", gpu.l2_bytes,
      R"(,"deviceName":"test"})");
}

struct Shape {
  const char* name;
  AttentionDims dims;
};
constexpr Shape kShapes[] = {
    {"hearth_112m", {18, 2048, 12, 3, 64}}, {"qwen_0_5b", {32, 1024, 14, 2, 64}},
    {"qwen_1_5b", {16, 1024, 12, 2, 128}},  {"gpt2", {64, 1024, 12, 12, 64}},
    {"odd_length", {2, 257, 4, 2, 64}},
};

class CudnnTest : public ::testing::Test {
 protected:
  // Engines that are compiled at run time want the driver's library to be there; the toolkit's
  // empty one will do where nothing runs. A later dlopen finds it by its name.
  static bool HasDriver() {
    for (const char* name : {"libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so"}) {
      if (dlopen(name, RTLD_NOW | RTLD_GLOBAL) != nullptr) {
        return true;
      }
    }
    return false;
  }

  void SetUp() override {
    if (!HasDriver()) {
      GTEST_SKIP() << "neither the driver's library nor the toolkit's stub of it";
    }
    absl::StatusOr<std::unique_ptr<Cudnn>> cudnn = Cudnn::Load();
    if (!cudnn.ok()) {
      GTEST_SKIP() << cudnn.status();
    }
    cudnn_ = *std::move(cudnn);
  }

  std::vector<int64_t> Engines(const SdpaProblem& problem, const Gpu& gpu) {
    absl::StatusOr<std::vector<int64_t>> engines = cudnn_->Engines(problem, Json(gpu));
    EXPECT_TRUE(engines.ok()) << engines.status();
    return engines.ok() ? *std::move(engines) : std::vector<int64_t>();
  }

  void ExpectFusedEngines(const Gpu& gpu, const std::set<int64_t>& forward, int64_t backward) {
    for (const Shape& shape : kShapes) {
      SdpaProblem problem;
      problem.dims = shape.dims;
      const std::vector<int64_t> for_forward = Engines(problem, gpu);
      ASSERT_FALSE(for_forward.empty()) << shape.name;
      EXPECT_TRUE(forward.count(for_forward[0]) == 1) << shape.name << ": " << for_forward[0];
      problem.backward = true;
      const std::vector<int64_t> for_backward = Engines(problem, gpu);
      ASSERT_FALSE(for_backward.empty()) << shape.name;
      EXPECT_EQ(for_backward[0], backward) << shape.name;
    }
  }

  std::unique_ptr<Cudnn> cudnn_;
};

// 6 is Hopper's fused backward, 7 the one in the style of sm_80; others would be chains of kernels
// that store the scores.
TEST_F(CudnnTest, Engines_Hopper_EveryShapeIsFused) {
  ExpectFusedEngines(kH200, {1, 2}, 6);
}

TEST_F(CudnnTest, Engines_BlackwellGeforce_EveryShapeIsFused) {
  ExpectFusedEngines(kRtx5090, {1, 4}, 7);
}

TEST_F(CudnnTest, Engines_WithoutLse_Some) {
  SdpaProblem problem;
  problem.dims = kShapes[0].dims;
  problem.keep_lse = false;
  EXPECT_FALSE(Engines(problem, kH200).empty());
  EXPECT_FALSE(Engines(problem, kRtx5090).empty());
}

// The second comparison of attention within documents stays in Hopper's fused kernels, with and
// without atomics.
TEST_F(CudnnTest, Engines_HopperDocuments_Fused) {
  for (const Shape& shape : kShapes) {
    for (const bool deterministic : {false, true}) {
      SdpaProblem problem;
      problem.dims = shape.dims;
      problem.documents = true;
      problem.deterministic = deterministic;
      const std::vector<int64_t> forward = Engines(problem, kH200);
      ASSERT_FALSE(forward.empty()) << shape.name;
      EXPECT_LE(forward[0], 2) << shape.name;
      problem.backward = true;
      const std::vector<int64_t> backward = Engines(problem, kH200);
      ASSERT_FALSE(backward.empty()) << shape.name;
      EXPECT_EQ(backward[0], 6) << shape.name;
    }
  }
}

// Documents as sequences of their own are Hopper's fused kernels too, however many slots there are.
TEST_F(CudnnTest, Engines_HopperSlots_Fused) {
  for (const Shape& shape : kShapes) {
    for (const int64_t each : {1, 4, 33}) {
      SdpaProblem problem;
      problem.dims = shape.dims;
      problem.slots = each * shape.dims.batch;
      const std::vector<int64_t> forward = Engines(problem, kH200);
      ASSERT_FALSE(forward.empty()) << shape.name;
      EXPECT_LE(forward[0], 2) << shape.name;
      problem.deterministic = true;
      EXPECT_FALSE(Engines(problem, kH200).empty()) << shape.name;
      problem.deterministic = false;
      problem.backward = true;
      const std::vector<int64_t> backward = Engines(problem, kH200);
      ASSERT_FALSE(backward.empty()) << shape.name;
      EXPECT_EQ(backward[0], 6) << shape.name;
    }
  }
}

// Backward is our own there.
TEST_F(CudnnTest, Engines_BlackwellGeforceSlots_Forward) {
  for (const Shape& shape : kShapes) {
    SdpaProblem problem;
    problem.dims = shape.dims;
    problem.slots = 4 * shape.dims.batch;
    EXPECT_FALSE(Engines(problem, kRtx5090).empty()) << shape.name;
  }
}

// The graph of fixed order is Hopper's fused backward too.
TEST_F(CudnnTest, Engines_Deterministic_Fused) {
  for (const Shape& shape : kShapes) {
    SdpaProblem problem;
    problem.dims = shape.dims;
    problem.deterministic = true;
    EXPECT_FALSE(Engines(problem, kH200).empty()) << shape.name;
    problem.backward = true;
    const std::vector<int64_t> engines = Engines(problem, kH200);
    ASSERT_FALSE(engines.empty()) << shape.name;
    EXPECT_EQ(engines[0], 6) << shape.name;
  }
}

}  // namespace
}  // namespace hearth::kernels
