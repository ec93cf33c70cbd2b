// Exports of folders with something wrong, and to places where something is.
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "common/io/sha256.h"
#include "common/weights/export.h"
#include "common/weights/manifest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/export_fixture.h"
#include "tests/support/common/weight_folder.h"

namespace hearth::weights {
namespace {

using ::testing::HasSubstr;

// What is wrong with a folder is said with file and tensor, and nothing is left.
class HostileTest : public ExportTest {
 protected:
  void SetUp() override {
    ExportTest::SetUp();
    model_spec_ = MakeTestModel("llama");
    tensors_ = TestTensors(model_spec_);
    WriteTestFolder(model_, model_spec_, tensors_);
  }

  std::string Refused(const formats::StoredFormat& dtype = formats::kStoredF16) {
    std::string text;
    for (const ExportFormat* format : kExportFormats) {
      const std::string out = dir_ + "/sub/out";
      const auto done = Export(*format, dtype, out);
      EXPECT_FALSE(done.ok()) << format->name;
      text += std::string(done.status().message()) + "\n";
      std::set<std::string> left;
      if (std::filesystem::exists(dir_ + "/sub")) {
        for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/sub")) {
          left.insert(entry.path().filename().string());
        }
      }
      EXPECT_TRUE(left.empty()) << *left.begin();
    }
    return text;
  }

  void Damage(const std::function<void(std::string&)>& change) {
    std::string bytes = *Env::Real().ReadFile(model_ + "/model.safetensors");
    change(bytes);
    std::ofstream(model_ + "/model.safetensors", std::ios::binary) << bytes;
  }

  TestModel model_spec_;
  std::map<std::string, TestTensor> tensors_;
};

TEST_F(HostileTest, TruncatedFile) {
  Damage([](std::string& bytes) { bytes.resize(bytes.size() - 5); });
  EXPECT_THAT(Refused(), HasSubstr(model_ + "/model.safetensors: tensor"));
}

TEST_F(HostileTest, HeaderThatClaimsTooMuch) {
  Damage([](std::string& bytes) { bytes[5] = '\x7f'; });
  EXPECT_THAT(Refused(), HasSubstr("model.safetensors: header length"));
}

TEST_F(HostileTest, MissingTensor) {
  tensors_.erase("model.layers.1.mlp.down_proj.weight");
  WriteTestFolder(model_, model_spec_, tensors_);
  EXPECT_THAT(Refused(), HasSubstr("no tensor \"model.layers.1.mlp.down_proj.weight\""));
}

TEST_F(HostileTest, WrongShape) {
  tensors_.at("model.layers.0.self_attn.k_proj.weight").shape = {16, 8};
  WriteTestFolder(model_, model_spec_, tensors_);
  EXPECT_THAT(Refused(), HasSubstr("k_proj.weight\" has shape [16, 8], the model needs [8, 16]"));
}

TEST_F(HostileTest, DamagedBytes_AreFoundByTheManifestFirst) {
  const std::string bytes = *Env::Real().ReadFile(model_ + "/model.safetensors");
  const ManifestEntry entry = {
      "model.safetensors", static_cast<int64_t>(bytes.size()), {Sha256Hex(bytes)}};
  ASSERT_TRUE(
      Env::Real().WriteFileAtomically(model_ + "/MANIFEST.json", ManifestToJson(1, {entry})).ok());
  ASSERT_TRUE(Export(kHfExport, formats::kStoredF16, dir_ + "/good").ok());
  Damage([](std::string& damaged) { damaged.back() ^= 1; });
  EXPECT_THAT(Refused(), HasSubstr("model.safetensors: SHA-256 is"));
  ASSERT_TRUE(Env::Real().WriteFileAtomically(model_ + "/MANIFEST.json", "{}").ok());
  EXPECT_THAT(Refused(), HasSubstr("MANIFEST.json: format"));
}

TEST_F(HostileTest, NoConfiguration) {
  std::filesystem::remove(model_ + "/config.json");
  EXPECT_THAT(Refused(), HasSubstr("config.json: no such file"));
}

TEST_F(ExportTest, ValueThatIsNotFinite_IsNamedWhereBlocksCannotHoldIt) {
  v1::ModelSpec spec = TestModelSpec("llama");
  spec.set_hidden(64);
  spec.set_head_dim(16);
  spec.set_ffn_hidden(64);
  const TestModel m = MakeTestModel(spec);
  auto tensors = TestTensors(m);
  tensors.at("model.layers.1.mlp.up_proj.weight").values[64 * 5 + 3] =
      std::numeric_limits<float>::quiet_NaN();
  WriteTestFolder(model_, m, tensors);
  EXPECT_TRUE(Export(kGgufExport, formats::kStoredF16, dir_ + "/f16").ok());
  const auto done = Export(kGgufExport, formats::kStoredQ4_0, dir_ + "/q4");
  EXPECT_THAT(std::string(done.status().message()),
              HasSubstr("tensor blk.1.ffn_up.weight has a value that is not finite in row 5"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/q4"));
}

TEST_F(ExportTest, WhatIsThere_IsNotReplaced) {
  const TestModel m = MakeTestModel("llama");
  WriteTestFolder(model_, m, TestTensors(m));
  std::ofstream(dir_ + "/mine") << "text";
  for (const ExportFormat* format : kExportFormats) {
    EXPECT_TRUE(
        absl::IsAlreadyExists(Export(*format, formats::kStoredF16, dir_ + "/mine").status()));
  }
  EXPECT_EQ(*Env::Real().ReadFile(dir_ + "/mine"), "text");
}

}  // namespace
}  // namespace hearth::weights
