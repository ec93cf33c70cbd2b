#include "kernels/core/exec.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "kernels/core/door.h"

namespace hearth::kernels {
namespace {

absl::Status Doubled(const Exec& exec, const int& from, int* to) {
  *to = 2 * from + exec.threads;
  return absl::OkStatus();
}
absl::Status NeverRun(const Exec&, const int&, int*) {
  return absl::InternalError("the version of another device");
}

TEST(RunOnDevice, CpuExec_RunsTheCpuVersionWithItsArguments) {
  int result = 0;
  const auto run = [&result](const Exec& exec) {
    return RunOnDevice<Doubled, NeverRun>(exec, "op", 20, &result);
  };
  EXPECT_TRUE(run(Exec()).ok());
  EXPECT_EQ(result, 41);
  Exec exec;
  exec.threads = 0;
  EXPECT_EQ(run(exec), RequireCpu(exec, "op"));
}

TEST(RunOnDevice, GpuWithoutContext_SaysWhatRequireCudaSays) {
  Exec exec;
  exec.device = Device::kCuda;
  int result = 0;
  const absl::Status status = RunOnDevice<Doubled, NeverRun>(exec, "op", 20, &result);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status, RequireCuda(exec, "op"));
  EXPECT_EQ(result, 0);
}

TEST(RequireView, WrongShape_SaysAskedAndHad) {
  std::vector<float> data(6);
  const TensorView view = View(data.data(), {2, 3});
  EXPECT_TRUE(RequireView(view, DType::kF32, {2, 3}, "op", "x").ok());
  const absl::Status status = RequireView(view, DType::kF64, {3, 2}, "op", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "op: x is fp32[2, 3], expected fp64[3, 2]");
  EXPECT_FALSE(RequireView(TensorView(), DType::kF32, {2}, "op", "x").ok());
}

TEST(Slice, BeginsAtTheElement_AlsoInFourBits) {
  std::vector<float> data(6);
  const TensorView part = Slice(View(data.data(), {6}), 2, 3);
  EXPECT_EQ(part.as<float>(), data.data() + 2);
  EXPECT_EQ(part.numel(), 3);
  std::vector<uint8_t> codes(4);
  const TensorView nibbles(static_cast<void*>(codes.data()), DType::kE2M1, {8});
  EXPECT_EQ(Slice(nibbles, 4, 2).as<uint8_t>(), codes.data() + 2);
}

TEST(IsStoredAs, Types_ReadTheFormatsThatTheyHold) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3,
                            DType::kE2M1, DType::kU8, DType::kI32, DType::kI64}) {
    EXPECT_TRUE(IsStoredAs<uint8_t>(dtype)) << "bytes of anything";
    EXPECT_EQ(IsStoredAs<double>(dtype), dtype == DType::kF64);
    EXPECT_EQ(IsStoredAs<float>(dtype), dtype == DType::kF32);
    EXPECT_EQ(IsStoredAs<uint16_t>(dtype), dtype == DType::kBF16 || dtype == DType::kF16);
    EXPECT_EQ(IsStoredAs<uint32_t>(dtype), dtype == DType::kI32);
    EXPECT_EQ(IsStoredAs<int64_t>(dtype), dtype == DType::kI64);
    EXPECT_EQ(IsStoredAs<TensorView>(dtype), dtype == DType::kU8 || dtype == DType::kI64);
    EXPECT_EQ((IsStoredAs<std::array<char, 12>>(dtype)), dtype == DType::kU8) << "no whole words";
  }
}

TEST(TensorView, AsAnotherType_EndsADebugBuild) {
  std::vector<float> data(2);
  const TensorView view = View(data.data(), {2});
  EXPECT_EQ(view.as<float>(), data.data());
  EXPECT_DEBUG_DEATH(view.as<int32_t>(), "of another type");
  EXPECT_EQ(TensorView().as<double>(), nullptr) << "an absent operand has no type";
}

TEST(RequireWorkspace, TooSmallOrMisaligned_IsRefused) {
  alignas(64) unsigned char memory[256];
  Exec exec;
  EXPECT_TRUE(RequireWorkspace(exec, 0, "op").ok());
  EXPECT_FALSE(RequireWorkspace(exec, 1, "op").ok());
  exec.workspace = {memory, 128};
  EXPECT_TRUE(RequireWorkspace(exec, 128, "op").ok());
  EXPECT_FALSE(RequireWorkspace(exec, 129, "op").ok());
  exec.workspace = {memory + 8, 128};
  EXPECT_FALSE(RequireWorkspace(exec, 64, "op").ok());
}

TEST(RequireCpu, CudaDevice_IsUnimplemented) {
  Exec exec;
  EXPECT_TRUE(RequireCpu(exec, "op").ok());
  exec.device = Device::kCuda;
  EXPECT_EQ(RequireCpu(exec, "op").code(), absl::StatusCode::kUnimplemented);
}

TEST(RequireFormStorage, OnAGpu_FormsAreBesideBf16Alone) {
  Exec gpu;
  gpu.device = Device::kCuda;
  EXPECT_TRUE(RequireFormStorage(gpu, DType::kBF16, true, "op").ok());
  EXPECT_TRUE(RequireFormStorage(gpu, DType::kF32, false, "op").ok());
  EXPECT_TRUE(RequireFormStorage(Exec(), DType::kF32, true, "op").ok());
  const absl::Status status = RequireFormStorage(gpu, DType::kF32, true, "op");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "op: quantised or kept forms of fp32 tensors on a GPU; only bf16 tensors have them");
}

TEST(TensorView, FourDimensions_FoldToRowsAndCols) {
  std::vector<double> data(120);
  const TensorView view = View(data.data(), {2, 3, 4, 5});
  EXPECT_EQ(view.numel(), 120);
  EXPECT_EQ(view.rows(), 24);
  EXPECT_EQ(view.cols(), 5);
  EXPECT_EQ(view.bytes(), 960U);
}

}  // namespace
}  // namespace hearth::kernels
