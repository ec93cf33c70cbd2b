// The harness must see what it is there to see: each op below is wrong in one way.
#include "kernels/harness/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/core/formats.h"

namespace hearth::kernels::harness {
namespace {

// y = x, and its copy in E4M3.
OpCase CopyCase(RunFn forward) {
  OpCase c;
  c.op = "copy";
  c.buffers = {
      {"x", {16, 32}}, {"y", {16, 32}, Role::kOutput}, Quantised("q", "y", {16, 32}, DType::kE4M3)};
  c.forward = std::move(forward);
  c.slack = 0.0;
  return c;
}

absl::Status CopyPlain(const Buffers& b) {
  std::memcpy(b["y"].data, b["x"].data, b["x"].bytes());
  return absl::OkStatus();
}

absl::Status CopyAll(const Exec&, const Buffers& b) {
  const QuantView quant = b.Quant("q");
  // Runs in double have no quantised output.
  const float* x = quant.empty() ? nullptr : b["x"].as<float>();
  for (int64_t i = 0; i < int64_t{16} * 32 && !quant.empty(); ++i) {
    const uint8_t code = EncodeE4m3(x[i] * *quant.scale);
    static_cast<uint8_t*>(quant.rows)[i] = code;
    static_cast<uint8_t*>(quant.columns)[i % 32 * 16 + i / 32] = code;
    *quant.amax = std::max(*quant.amax, std::fabs(x[i]));
  }
  return CopyPlain(b);
}

TEST(CheckAgainstDouble, RightOp_Passes) {
  EXPECT_EQ(CheckAgainstDouble(CopyCase(CopyAll)), "");
}

// A right run, then `damage`.
std::string ErrorOf(void (*damage)(const Buffers&)) {
  return CheckAgainstDouble(CopyCase([damage](const Exec& exec, const Buffers& b) {
    const absl::Status status = CopyAll(exec, b);
    damage(b);
    return status;
  }));
}

TEST(CheckAgainstDouble, WrongQuantisedCopy_IsSeen) {
  EXPECT_NE(ErrorOf([](const Buffers& b) {
              if (!b.Quant("q").empty()) {
                static_cast<uint8_t*>(b.Quant("q").rows)[511] ^= 1;
              }
            }).find("q.rows[511]"),
            std::string::npos);
  EXPECT_NE(ErrorOf([](const Buffers& b) {
              if (!b.Quant("q").empty()) {
                static_cast<uint8_t*>(b.Quant("q").columns)[16] ^= 1;
              }
            }).find("q.columns[16]"),
            std::string::npos);
  EXPECT_NE(ErrorOf([](const Buffers& b) {
              if (!b.Quant("q").empty()) {
                *b.Quant("q").amax += 1.0F;
              }
            }).find("q.amax"),
            std::string::npos);
}

TEST(CheckAgainstDouble, WriteOutOfBounds_IsSeen) {
  EXPECT_NE(ErrorOf([](const Buffers& b) {
              static_cast<unsigned char*>(b["y"].data)[b["y"].bytes()] = 0;
            }).find("y (behind it)"),
            std::string::npos);
  EXPECT_NE(ErrorOf([](const Buffers& b) {
              static_cast<unsigned char*>(b["x"].data)[-1] = 0;
            }).find("x (before it)"),
            std::string::npos);
}

TEST(CheckAgainstDouble, WrittenInput_IsSeen) {
  EXPECT_EQ(ErrorOf([](const Buffers& b) { std::memset(b["x"].data, 0, 4); }),
            "input x was written");
}

TEST(CheckAgainstDouble, OutputLeftOut_IsSeen) {
  EXPECT_NE(
      CheckAgainstDouble(CopyCase([](const Exec&, const Buffers&) { return absl::OkStatus(); })),
      "");
}

// The bf16 class is wide; one wrong element among many must not drown in it.
TEST(CompareWithDouble, OneWrongElementOfMany_IsSeen) {
  OpCase c;
  c.buffers = {{"y", {40000}, Role::kAccumulate}};
  const Storage bf16 = Storage::Cuda(DType::kBF16, DType::kF32);
  const Buffers wide(c.buffers, Storage::Cpu(DType::kF64), bf16, kSeed, false);
  Buffers got(c.buffers, bf16, bf16, kSeed, false);
  EXPECT_EQ(CompareWithDouble(c, got, wide, true), "");
  got.Set("y", 12345, got.Get("y", 12345) + 1.0);
  EXPECT_NE(CompareWithDouble(c, got, wide, true).find("y[12345]"), std::string::npos);
}

TEST(Buffers, ValuesOfBf16_AreSharedWithTheDoubleRun) {
  const std::vector<BufferSpec> specs = {
      {"x", {100}}, WeightGradient("g", {100}, Role::kInput), Statistic("s", {100}, Role::kInput)};
  const Storage bf16 = Storage::Cuda(DType::kBF16, DType::kBF16);
  const Buffers narrow(specs, bf16, bf16, kSeed, false);
  const Buffers wide(specs, Storage::Cpu(DType::kF64), bf16, kSeed, false);
  EXPECT_EQ(narrow.TypeOf("x"), DType::kBF16);
  EXPECT_EQ(narrow.TypeOf("g"), DType::kBF16);
  EXPECT_EQ(narrow.TypeOf("s"), DType::kF32);
  for (const char* name : {"x", "g", "s"}) {
    EXPECT_EQ(narrow.Values(name), wide.Values(name)) << name;
  }
}

TEST(Buffers, Clone_HasTheSameImageInMemoryOfItsOwn) {
  const std::vector<BufferSpec> specs = {{"x", {48, 16}},
                                         {"y", {48, 16}, Role::kOutput},
                                         Quantised("y_quant", "y", {48, 16}, DType::kE4M3)};
  const Buffers first(specs, DType::kF32, kSeed, false);
  Buffers clone = first.Clone();
  for (const char* name : {"x", "y"}) {
    EXPECT_TRUE(clone.BitEqual(first, name)) << name;
  }
  EXPECT_EQ(clone.Bytes("y_quant"), first.Bytes("y_quant"));
  const double before = first.Get("x", 7);
  clone.Set("x", 7, before + 1.0);
  EXPECT_EQ(first.Get("x", 7), before);
  // A write behind the clone's buffer is one of its own too.
  float* const x = clone["x"].as<float>();
  x[size_t{48} * 16] = 0.0F;
  EXPECT_EQ(clone.DamagedGuard(), "x (behind it)");
  EXPECT_EQ(first.DamagedGuard(), "");
}

}  // namespace
}  // namespace hearth::kernels::harness
