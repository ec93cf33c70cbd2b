#include "worker/trainer/checkpoint/hf_model.h"

#include <filesystem>

#include "common/formats/codecs.h"
#include "common/hf/hf_config.h"
#include "common/spec/plan/parameter_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/common/weight_folder.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;

class HfModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::vector<std::vector<float>> Load(const TestModel& m, const std::string& dir) {
    std::vector<std::vector<float>> loaded;
    std::vector<float*> pointers;
    for (const auto& w : m.weights) {
      loaded.emplace_back(w.size(), -1.0f);
    }
    for (auto& w : loaded) {
      pointers.push_back(w.data());
    }
    const absl::Status status = LoadHfWeights(Env::Real(), dir, m.table, pointers);
    EXPECT_TRUE(status.ok()) << status;
    return loaded;
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

TEST_P(HfModelTest, Load_OfWritten_IsTheModel) {
  const TestModel m = MakeTestModel(GetParam());
  for (const TensorDType dtype : {TensorDType::kF32, TensorDType::kBF16, TensorDType::kF16}) {
    const std::string dir = dir_ + "/" + std::string(TensorDTypeName(dtype));
    const auto written =
        WriteHfModel(Env::Real(), dir, {m.shape, 32, m.table, m.pointers(), dtype});
    ASSERT_TRUE(written.ok()) << written.status();
    const auto spec = hf::ReadHfConfig(dir);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->vocab(), 133);
    const auto shape = spec::ResolveModelShape(*spec, 32);
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_EQ(spec::DetectHfClass(*shape).model_type, GetParam());
    const auto loaded = Load(m, dir);
    for (size_t k = 0; k < m.table.size(); ++k) {
      for (size_t i = 0; i < loaded[k].size(); ++i) {
        const float w = m.weights[k][i];
        const float want = dtype == TensorDType::kF32 ? w
                           : dtype == TensorDType::kBF16
                               ? formats::DecodeBf16(formats::EncodeBf16(w))
                               : formats::DecodeF16(formats::EncodeF16(w));
        ASSERT_EQ(loaded[k][i], want) << m.table[k].name << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Classes,
    HfModelTest,
    ::testing::Values("llama", "mistral", "phi3", "qwen2", "qwen3", "gpt2", "hearth"));

TEST_F(HfModelTest, Write_Gpt2_TransposesAndDropsPadding) {
  const TestModel m = MakeTestModel("gpt2");
  ASSERT_TRUE(
      WriteHfModel(Env::Real(), dir_, {m.shape, 32, m.table, m.pointers(), TensorDType::kF32})
          .ok());
  const auto file = SafetensorsFile::Open(Env::Real(), dir_ + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Get("transformer.wte.weight", TensorDType::kF32, {133, 16}).ok());
  const auto qkv = (*file)->Get("transformer.h.1.attn.c_attn.weight", TensorDType::kF32, {16, 48});
  ASSERT_TRUE(qkv.ok()) << qkv.status();
  const int ours = spec::FindParameter(m.table, spec::Slot::kQkv, 1);
  ASSERT_GE(ours, 0);
  const auto* theirs = static_cast<const float*>((*qkv)->data);
  for (int out = 0; out < 48; ++out) {
    for (int in = 0; in < 16; ++in) {
      ASSERT_EQ(theirs[in * 48 + out],
                m.weights[static_cast<size_t>(ours)][static_cast<size_t>(out * 16 + in)]);
    }
  }
}

TEST_F(HfModelTest, Load_IndexAndBareNames_AreUnderstood) {
  const TestModel m = MakeTestModel("gpt2");
  ASSERT_TRUE(
      WriteHfModel(Env::Real(), dir_, {m.shape, 32, m.table, m.pointers(), TensorDType::kF32})
          .ok());
  const auto file = SafetensorsFile::Open(Env::Real(), dir_ + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  std::vector<TensorView> parts[2];
  std::string index = "{\"weight_map\":{";
  for (size_t i = 0; i < (*file)->tensors().size(); ++i) {
    TensorView t = (*file)->tensors()[i];
    t.name = t.name.substr(std::string("transformer.").size());
    index +=
        (i > 0 ? ",\"" : "\"") + t.name + "\":\"part" + std::to_string(i % 2) + ".safetensors\"";
    parts[i % 2].push_back(std::move(t));
  }
  const std::string split = dir_ + "/split";
  std::filesystem::create_directories(split);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(WriteSafetensors(Env::Real(), split + "/part" + std::to_string(i) + ".safetensors",
                                 parts[i])
                    .ok());
  }
  ASSERT_TRUE(
      Env::Real().WriteFileAtomically(split + "/model.safetensors.index.json", index + "}}").ok());
  EXPECT_EQ(Load(m, split), m.weights);
}

TEST_F(HfModelTest, Load_OtherModel_NamesTensorAndShapes) {
  const TestModel m = MakeTestModel("qwen3");
  ASSERT_TRUE(
      WriteHfModel(Env::Real(), dir_, {m.shape, 32, m.table, m.pointers(), TensorDType::kF32})
          .ok());
  TestModel other = m;
  other.spec.set_ffn_hidden(32);
  other.shape = *spec::ResolveModelShape(other.spec, 32);
  other.table = spec::BuildParameterTable(other.shape);
  std::vector<std::vector<float>> memory;
  std::vector<float*> pointers;
  for (const auto& p : other.table) {
    memory.emplace_back(static_cast<size_t>(p.elements()));
  }
  for (auto& w : memory) {
    pointers.push_back(w.data());
  }
  const absl::Status status = LoadHfWeights(Env::Real(), dir_, other.table, pointers);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(
          "model.layers.0.mlp.gate_proj.weight\" has shape [24, 16], the model needs [32, 16]"));
}

// A model's folder with something missing or wrong: an error that names the file or the tensor.
TEST_F(HfModelTest, Load_HostileFolder_ErrorNamesPlace) {
  const TestModel m = MakeTestModel("qwen2");
  const auto said = [&](const std::string& dir) {
    std::vector<std::vector<float>> memory;
    std::vector<float*> pointers;
    for (const auto& p : m.table) {
      memory.emplace_back(static_cast<size_t>(p.elements()));
      pointers.push_back(memory.back().data());
    }
    const absl::Status status = LoadHfWeights(Env::Real(), dir, m.table, pointers);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  ASSERT_TRUE(
      WriteHfModel(Env::Real(), dir_, {m.shape, 32, m.table, m.pointers(), TensorDType::kF32})
          .ok());
  const auto file = SafetensorsFile::Open(Env::Real(), dir_ + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  const std::string bad = dir_ + "/bad";
  std::filesystem::create_directories(bad);
  const std::string last = (*file)->tensors().back().name;
  std::vector<TensorView> tensors = (*file)->tensors();
  tensors.pop_back();
  ASSERT_TRUE(WriteSafetensors(Env::Real(), bad + "/model.safetensors", tensors).ok());
  EXPECT_THAT(said(bad), HasSubstr(bad + ": no tensor \"" + last + '"'));

  tensors = (*file)->tensors();
  tensors.back().shape.push_back(1);
  ASSERT_TRUE(WriteSafetensors(Env::Real(), bad + "/model.safetensors", tensors).ok());
  EXPECT_THAT(said(bad), HasSubstr(bad + ": tensor \"" + last + "\" has shape"));

  const auto with_index = [&](const std::string& text) {
    EXPECT_TRUE(Env::Real().WriteFileAtomically(bad + "/model.safetensors.index.json", text).ok());
    return said(bad);
  };
  EXPECT_THAT(with_index("{"), HasSubstr("model.safetensors.index.json: no weight_map"));
  EXPECT_THAT(with_index(R"({"weight_map": {"x": "../../secret.safetensors"}})"),
              HasSubstr("bad file name for x"));
  EXPECT_THAT(with_index(R"({"weight_map": {"x": "absent.safetensors"}})"),
              HasSubstr(bad + "/absent.safetensors: no such file"));
  EXPECT_THAT(with_index(R"({"weight_map": {}})"), HasSubstr("no tensor"));
}

TEST(HfModelWrite, WeightsHeldAsBf16_GiveTheFileOfTheirValues) {
  const std::string dir = ::testing::TempDir() + "/hf_bf16";
  TestModel m = MakeTestModel("gpt2");
  std::vector<std::vector<uint16_t>> narrow;
  std::vector<const uint16_t*> pointers;
  for (const std::vector<float>& weight : m.weights) {
    std::vector<uint16_t>& bits = narrow.emplace_back();
    for (const float value : weight) {
      bits.push_back(formats::EncodeBf16(value));
    }
  }
  for (const std::vector<uint16_t>& bits : narrow) {
    pointers.push_back(bits.data());
  }
  for (const TensorDType dtype : {TensorDType::kBF16, TensorDType::kF32}) {
    ASSERT_TRUE(
        WriteHfModel(Env::Real(), dir + "/a", {m.shape, 16, m.table, pointers, dtype}).ok());
    // Values that bf16 holds are written as they are.
    for (size_t k = 0; k < narrow.size(); ++k) {
      for (size_t i = 0; i < narrow[k].size(); ++i) {
        m.weights[k][i] = formats::DecodeBf16(narrow[k][i]);
      }
    }
    ASSERT_TRUE(
        WriteHfModel(Env::Real(), dir + "/b", {m.shape, 16, m.table, m.pointers(), dtype}).ok());
    EXPECT_EQ(*Env::Real().ReadFile(dir + "/a/model.safetensors"),
              *Env::Real().ReadFile(dir + "/b/model.safetensors"));
  }
}

}  // namespace
}  // namespace hearth::trainer
