#include "common/weights/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::weights {
namespace {

using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::iota(floats_.begin(), floats_.end(), 0.5f);
    tensors_ = {{"b", TensorDType::kF32, {2, 3}, floats_.data()},
                {"a", TensorDType::kBF16, {4}, halves_.data()},
                {"scalar", TensorDType::kI64, {}, &scalar_},
                {"empty", TensorDType::kU8, {0, 7}, nullptr}};
  }

  void Write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  static std::string File(const std::string& header, const std::string& data) {
    const uint64_t size = header.size();
    return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
  }

  const TempDir temp_;
  const std::string path_ = temp_.path() + "/st.safetensors";
  std::vector<float> floats_ = std::vector<float>(6);
  std::vector<uint16_t> halves_ = {1, 2, 3, 4};
  int64_t scalar_ = -5;
  std::vector<TensorView> tensors_;
};

TEST_F(SafetensorsTest, Open_WrittenFile_RoundTrips) {
  ASSERT_TRUE(WriteSafetensors(Env::Real(), path_, tensors_, {{"format", "pt"}}).ok());
  const auto file = SafetensorsFile::Open(Env::Real(), path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  ASSERT_EQ((*file)->tensors().size(), 4u);
  for (const TensorView& want : tensors_) {
    const auto got = (*file)->Get(want.name, want.dtype, want.shape);
    ASSERT_TRUE(got.ok()) << got.status();
    if (want.bytes() > 0) {
      EXPECT_EQ(std::memcmp((*got)->data, want.data, static_cast<size_t>(want.bytes())), 0);
    }
  }
  EXPECT_TRUE(absl::IsDataLoss((*file)->Get("b", TensorDType::kF32, {3, 2}).status()));
  EXPECT_TRUE(absl::IsDataLoss((*file)->Get("b", TensorDType::kF64, {2, 3}).status()));
  EXPECT_TRUE(absl::IsDataLoss((*file)->Get("none", TensorDType::kF32, {}).status()));
}

TEST_F(SafetensorsTest, Write_TwoOfOneName_Refused) {
  tensors_[1].name = "b";
  EXPECT_TRUE(absl::IsInvalidArgument(WriteSafetensors(Env::Real(), path_, tensors_).status()));
}

TEST_F(SafetensorsTest, Open_BadFile_IsDataLossNamingIt) {
  const struct {
    std::string bytes;
    const char* error;
  } cases[] = {
      {"abc", "no safetensors header"},
      {File("{}", "").replace(0, 8, 8, '\xff'), "header length"},
      {File("{", ""), "not a JSON object"},
      {File("[]", ""), "not a JSON object"},
      {File(R"({"a":1})", ""), "not an object"},
      {File(R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", "1234"), "unknown dtype"},
      {File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234"),
       "larger than the file"},
      {File(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})", "1234"), "truncated"},
      {File(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}})", "1234"), "has 3 bytes"},
      {File(R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,3]}})", "1234"),
       "impossible shape"},
      {File(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "1234"),
       "impossible shape"},
      {File(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           "1234"),
       "overlaps"},
  };
  for (const auto& c : cases) {
    Write(c.bytes);
    const auto file = SafetensorsFile::Open(Env::Real(), path_);
    ASSERT_TRUE(absl::IsDataLoss(file.status())) << c.error;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(c.error));
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(path_));
  }
  std::filesystem::remove(path_);
  EXPECT_TRUE(absl::IsNotFound(SafetensorsFile::Open(Env::Real(), path_).status()));
}

// Whatever the bytes: an error, or tensors that lie inside the file.
TEST_F(SafetensorsTest, Open_MutatedOrTruncatedFile_NeverReadsOutside) {
  ASSERT_TRUE(WriteSafetensors(Env::Real(), path_, tensors_).ok());
  const std::string good = *Env::Real().ReadFile(path_);
  std::mt19937 random(2024);
  uint64_t sum = 0;
  for (int round = 0; round < 500; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 1 + round % 4; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (round % 5 == 0) {
      bytes.resize(random() % bytes.size());
    }
    Write(bytes);
    const auto file = SafetensorsFile::Open(Env::Real(), path_);
    if (!file.ok()) {
      continue;
    }
    for (const TensorView& t : (*file)->tensors()) {
      const auto* p = static_cast<const uint8_t*>(t.data);
      for (int64_t i = 0; i < t.bytes(); ++i) {
        sum += p[i];
      }
    }
  }
  RecordProperty("sum", static_cast<int>(sum & 0xffff));
}

}  // namespace
}  // namespace hearth::weights
