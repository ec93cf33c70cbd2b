#include "common/weights/average.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/common/weight_folder.h"

namespace hearth::weights {
namespace {

using ::testing::HasSubstr;

class AverageTest : public ::testing::Test {
 protected:
  absl::StatusOr<Exported> Average(const std::vector<std::string>& names) {
    std::vector<std::string> dirs;
    for (const std::string& name : names) {
      dirs.push_back(dir_ + "/" + name);
    }
    ExportOptions options;
    options.dtype = &formats::kStoredF32;
    options.out = dir_ + "/out";
    options.threads = 2;
    return AverageModels(Env::Real(), FileVerifier("", 1), dirs, options);
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

TEST_F(AverageTest, Mean_IsThatOfEachElement) {
  const TestModel m = MakeTestModel("gpt2");
  const auto a = TestTensors(m);
  auto b = a;
  auto c = a;
  for (auto& [name, tensor] : b) {
    for (float& value : tensor.values) {
      value = value * -3.0F + 1e6F;
    }
  }
  for (auto& [name, tensor] : c) {
    for (float& value : tensor.values) {
      value = 0.1F;
    }
  }
  WriteTestFolder(dir_ + "/a", m, a);
  WriteTestFolder(dir_ + "/b", m, b);
  WriteTestFolder(dir_ + "/c", m, c);
  const auto done = Average({"a", "b", "c"});
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->tensors, static_cast<int64_t>(a.size()));
  const auto file = SafetensorsFile::Open(Env::Real(), dir_ + "/out/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  for (const auto& [name, tensor] : a) {
    const auto got = (*file)->Get(name, TensorDType::kF32, tensor.shape);
    ASSERT_TRUE(got.ok()) << got.status();
    std::vector<float> values(tensor.values.size());
    ReadElements(**got, 0, absl::MakeSpan(values));
    for (size_t i = 0; i < values.size(); ++i) {
      const double sum = static_cast<double>(tensor.values[i]) +
                         static_cast<double>(b.at(name).values[i]) + static_cast<double>(0.1F);
      ASSERT_EQ(values[i], static_cast<float>(sum / 3.0)) << name << ' ' << i;
    }
  }
}

TEST_F(AverageTest, OneFolder_IsItself) {
  const TestModel m = MakeTestModel("phi3");
  WriteTestFolder(dir_ + "/a", m, TestTensors(m));
  ASSERT_TRUE(Average({"a"}).ok());
  EXPECT_EQ(*Env::Real().ReadFile(dir_ + "/out/model.safetensors"),
            *Env::Real().ReadFile(dir_ + "/a/model.safetensors"));
}

TEST_F(AverageTest, AnotherShapeOrNoFolder_IsRefusedAndLeavesNothing) {
  const TestModel m = MakeTestModel("llama");
  WriteTestFolder(dir_ + "/a", m, TestTensors(m));
  v1::ModelSpec spec = TestModelSpec("llama");
  spec.set_ffn_hidden(32);
  const TestModel other = MakeTestModel(spec);
  WriteTestFolder(dir_ + "/b", other, TestTensors(other));
  EXPECT_THAT(std::string(Average({"a", "b"}).status().message()),
              HasSubstr("mlp.down_proj.weight\" is [16, 32], the first folder has [16, 24]"));
  EXPECT_TRUE(absl::IsInvalidArgument(Average({}).status()));
  EXPECT_FALSE(Average({"a", "none"}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out"));
}

}  // namespace
}  // namespace hearth::weights
