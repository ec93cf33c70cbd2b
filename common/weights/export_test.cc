#include "common/weights/export.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "common/formats/codecs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/common/export_fixture.h"
#include "tests/support/common/gguf_reader.h"
#include "tests/support/common/llama3_rope.h"
#include "tests/support/common/weight_folder.h"

namespace hearth::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Floats(const GgufFile::Tensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// llama.cpp's LlamaModel.permute: reshape(heads, 2, rows / heads / 2, columns), axes 1 and 2
// swapped.
std::vector<float> Permuted(const TestTensor& tensor, int64_t heads) {
  const int64_t rows = tensor.shape[0];
  const int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
  const int64_t half = rows / heads / 2;
  std::vector<float> out;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < half; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        for (int64_t c = 0; c < columns; ++c) {
          out.push_back(tensor.values[static_cast<size_t>(((h * 2 + j) * half + i) * columns + c)]);
        }
      }
    }
  }
  return out;
}

TestTensor Rows(const TestTensor& tensor, int64_t first, int64_t rows) {
  const int64_t columns = tensor.shape[1];
  return {
      {rows, columns},
      {tensor.values.begin() + first * columns, tensor.values.begin() + (first + rows) * columns}};
}

struct Case {
  const char* type;
  const char* architecture;
};

class GgufClassTest : public ExportTest, public ::testing::WithParamInterface<Case> {};

TEST_P(GgufClassTest, LlamaLike_HasTheSizesUnderLlamaCppsKeys) {
  const TestModel m = MakeTestModel(GetParam().type);
  WriteTestFolder(model_, m, TestTensors(m));
  const GgufFile file = Gguf(formats::kStoredF32);
  const std::string arch = GetParam().architecture;
  EXPECT_EQ(file.version, 3U);
  EXPECT_EQ(file.keys[0], "general.architecture");
  EXPECT_EQ(file.Text("general.architecture"), arch);
  EXPECT_EQ(file.Text("general.name"), "model");
  EXPECT_EQ(file.Text("tokenizer.ggml.model"), "none");
  const std::map<std::string, uint64_t> sizes = {
      {"context_length", 32},      {"embedding_length", 16},      {"block_count", 2},
      {"feed_forward_length", 24}, {"attention.head_count", 4},   {"attention.head_count_kv", 2},
      {"attention.key_length", 4}, {"attention.value_length", 4}, {"rope.dimension_count", 4},
      {"vocab_size", 133}};
  for (const auto& [key, value] : sizes) {
    EXPECT_EQ(file.Integer(absl::StrCat(arch, ".", key)), value) << key;
  }
  EXPECT_EQ(file.Integer("general.file_type"), 0U);
  EXPECT_EQ(file.Number(arch + ".rope.freq_base"), 10000.0);
  EXPECT_FLOAT_EQ(static_cast<float>(file.Number(arch + ".attention.layer_norm_rms_epsilon")),
                  1e-5F);
}

// What llama.cpp expects of a folder's tensors.
std::map<std::string, TestTensor> WantedTensors(const std::map<std::string, TestTensor>& hf,
                                                bool fused,
                                                bool permuted) {
  std::map<std::string, TestTensor> want = {
      {"token_embd.weight", hf.at("model.embed_tokens.weight")},
      {"output_norm.weight", hf.at("model.norm.weight")}};
  if (hf.contains("lm_head.weight")) {
    want["output.weight"] = hf.at("lm_head.weight");
  }
  for (int layer = 0; layer < 2; ++layer) {
    const std::string from = "model.layers." + std::to_string(layer) + ".";
    const std::string to = "blk." + std::to_string(layer) + ".";
    const auto part = [&](const char* whole, int64_t first, int64_t rows, const char* own) {
      return fused ? Rows(hf.at(from + whole), first, rows) : hf.at(from + own);
    };
    const char* const qkv = "self_attn.qkv_proj.weight";
    const TestTensor q = part(qkv, 0, 16, "self_attn.q_proj.weight");
    const TestTensor k = part(qkv, 16, 8, "self_attn.k_proj.weight");
    want[to + "attn_q.weight"] = {q.shape, permuted ? Permuted(q, 4) : q.values};
    want[to + "attn_k.weight"] = {k.shape, permuted ? Permuted(k, 2) : k.values};
    want[to + "attn_v.weight"] = part(qkv, 24, 8, "self_attn.v_proj.weight");
    const char* const gate_up = "mlp.gate_up_proj.weight";
    want[to + "ffn_gate.weight"] = part(gate_up, 0, 24, "mlp.gate_proj.weight");
    want[to + "ffn_up.weight"] = part(gate_up, 24, 24, "mlp.up_proj.weight");
    for (const auto& [theirs, ours] : {std::pair{"attn_norm.weight", "input_layernorm.weight"},
                                       {"attn_output.weight", "self_attn.o_proj.weight"},
                                       {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                       {"ffn_down.weight", "mlp.down_proj.weight"},
                                       {"attn_q.bias", "self_attn.q_proj.bias"},
                                       {"attn_k.bias", "self_attn.k_proj.bias"},
                                       {"attn_v.bias", "self_attn.v_proj.bias"},
                                       {"attn_q_norm.weight", "self_attn.q_norm.weight"},
                                       {"attn_k_norm.weight", "self_attn.k_norm.weight"}}) {
      if (hf.contains(from + ours)) {
        want[to + theirs] = hf.at(from + ours);
      }
    }
  }
  return want;
}

TEST_P(GgufClassTest, LlamaLike_HasTheNamesShapesAndRowsOfLlamaCpp) {
  const TestModel m = MakeTestModel(GetParam().type);
  const auto hf = TestTensors(m);
  WriteTestFolder(model_, m, hf);
  const GgufFile file = Gguf(formats::kStoredF32);
  const auto want = WantedTensors(hf, std::string(GetParam().type) == "phi3",
                                  std::string(GetParam().architecture) == "llama");
  ASSERT_EQ(file.tensors.size(), want.size());
  for (const auto& [name, tensor] : want) {
    ASSERT_EQ(file.tensors.count(name), 1U) << name;
    const GgufFile::Tensor& got = file.tensors.at(name);
    EXPECT_EQ(std::vector<int64_t>(got.dimensions.rbegin(), got.dimensions.rend()), tensor.shape)
        << name;
    EXPECT_EQ(Floats(got), tensor.values) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Classes,
                         GgufClassTest,
                         ::testing::Values(Case{"llama", "llama"},
                                           Case{"mistral", "llama"},
                                           Case{"phi3", "llama"},
                                           Case{"qwen2", "qwen2"},
                                           Case{"qwen3", "qwen3"}),
                         [](const auto& test) { return std::string(test.param.type); });

TEST_F(ExportTest, Gpt2_FusedQkvIsTransposedAndPositionsStayF32) {
  const TestModel m = MakeTestModel("gpt2");
  const auto hf = TestTensors(m);
  WriteTestFolder(model_, m, hf);
  const GgufFile file = Gguf(formats::kStoredF16);
  EXPECT_EQ(file.Text("general.architecture"), "gpt2");
  EXPECT_EQ(file.Integer("general.file_type"), 1U);
  EXPECT_EQ(file.Integer("gpt2.context_length"), 32U);
  EXPECT_FLOAT_EQ(static_cast<float>(file.Number("gpt2.attention.layer_norm_epsilon")), 1e-5F);
  EXPECT_EQ(file.values.count("gpt2.rope.freq_base"), 0U);
  EXPECT_EQ(file.tensors.size(), 2U + 2U * 12U + 2U);
  EXPECT_EQ(file.tensors.count("output.weight"), 0U);  // tied
  const GgufFile::Tensor& positions = file.tensors.at("position_embd.weight");
  EXPECT_EQ(positions.type, 0U);
  EXPECT_EQ(Floats(positions), hf.at("transformer.wpe.weight").values);
  EXPECT_EQ(Floats(file.tensors.at("blk.1.attn_qkv.bias")),
            hf.at("transformer.h.1.attn.c_attn.bias").values);
  const TestTensor& conv = hf.at("transformer.h.1.attn.c_attn.weight");  // [16, 48]
  const GgufFile::Tensor& qkv = file.tensors.at("blk.1.attn_qkv.weight");
  EXPECT_THAT(qkv.dimensions, ElementsAre(16, 48));
  EXPECT_EQ(qkv.type, 1U);
  for (size_t out = 0; out < 48; ++out) {
    for (size_t in = 0; in < 16; ++in) {
      uint16_t bits;
      std::memcpy(&bits, qkv.bytes.data() + (out * 16 + in) * 2, 2);
      ASSERT_EQ(bits, formats::EncodeF16(conv.values[in * 48 + out]));
    }
  }
}

TEST_F(ExportTest, Quantised_MatricesInBlocks_VectorsF32_OddRowsF16) {
  v1::ModelSpec spec = Llama64();
  spec.set_ffn_hidden(40);
  const auto hf = WriteModel(spec);
  for (const formats::StoredFormat* format : {&formats::kStoredQ8_0, &formats::kStoredQ4_0}) {
    const GgufFile file = Gguf(*format);
    EXPECT_EQ(file.Integer("general.file_type"), format->ggml_file_type);
    EXPECT_EQ(file.Integer("general.quantization_version"), 2U);
    EXPECT_EQ(file.tensors.at("blk.0.attn_norm.weight").type, 0U);
    EXPECT_EQ(file.tensors.at("blk.0.ffn_down.weight").type, 1U);
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("2 matrices are f16")));
    const TestTensor& up = hf.at("model.layers.1.mlp.up_proj.weight");
    constexpr int64_t kElements = int64_t{40} * 64;
    std::string want(static_cast<size_t>(format->Bytes(kElements)), '\0');
    format->encode(up.values.data(), kElements / 32, reinterpret_cast<uint8_t*>(want.data()));
    EXPECT_EQ(file.tensors.at("blk.1.ffn_up.weight").type, format->ggml_type);
    EXPECT_EQ(file.tensors.at("blk.1.ffn_up.weight").bytes, want);
  }
}

// A model that was trained in blocks.
class StoredBlocksTest : public ExportTest,
                         public ::testing::WithParamInterface<const formats::StoredFormat*> {
 protected:
  static constexpr int64_t kColumns = 64;

  void SetUp() override {
    ExportTest::SetUp();
    WriteModel(spec_);
    for (const spec::Parameter& p : m_.table) {
      if (p.group == spec::ParameterGroup::kMatrix && p.shape[1] % format_.block == 0) {
        entries_.push_back({absl::StrCat(std::string(format_.name), ".", p.name),
                            TensorDType::kU8,
                            {format_.Bytes(p.elements())}});
      }
    }
    ASSERT_FALSE(entries_.empty());
    ASSERT_TRUE(Env::Real().CreateDirs(model_ + "/state").ok());
    WriteBlocks();
  }

  void WriteBlocks() {
    const auto written = WriteSafetensors(
        Env::Real(), model_ + "/state/tensors.safetensors", entries_, {},
        [this](size_t index, int64_t begin, absl::Span<uint8_t> out) {
          for (size_t i = 0; i < out.size(); ++i) {
            out[i] = Byte(index, begin + static_cast<int64_t>(i));
          }
          return absl::OkStatus();
        },
        1);
    ASSERT_TRUE(written.ok()) << written.status();
  }

  // Bytes that no encoder would make of the weights; scales, within the first four of a block, are
  // finite.
  uint8_t Byte(size_t index, int64_t at) const {
    const auto byte = static_cast<uint8_t>(static_cast<int64_t>(index) * 31 + at * 7 + at / 34);
    return at % format_.block_bytes < 4 ? static_cast<uint8_t>(scale_byte_ + byte % 0x20) : byte;
  }
  // Rows of a layer's parameter: row i of the result is row `from(i)`.
  std::string RowsOf(spec::Slot slot,
                     int layer,
                     int64_t rows,
                     const std::function<int64_t(int64_t)>& from) const {
    const int k = spec::FindParameter(m_.table, slot, layer);
    const std::string name = "." + m_.table[static_cast<size_t>(k)].name;
    const auto entry =
        std::find_if(entries_.begin(), entries_.end(),
                     [&name](const TensorEntry& e) { return std::string(e.name).ends_with(name); });
    EXPECT_NE(entry, entries_.end()) << name;
    const auto index = static_cast<size_t>(entry - entries_.begin());
    const int64_t row_bytes = format_.Bytes(kColumns);
    std::string bytes;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < row_bytes; ++i) {
        bytes.push_back(static_cast<char>(Byte(index, from(row) * row_bytes + i)));
      }
    }
    return bytes;
  }

  const formats::StoredFormat& format_ = *GetParam();
  const v1::ModelSpec spec_ = Llama64();
  const TestModel m_ = MakeTestModel(spec_);
  std::vector<TensorEntry> entries_;
  uint8_t scale_byte_ = 0x20;
};
INSTANTIATE_TEST_SUITE_P(Formats,
                         StoredBlocksTest,
                         ::testing::Values(&formats::kStoredQ8_0,
                                           &formats::kStoredQ4_0,
                                           &formats::kStoredNvfp4),
                         [](const auto& test) { return std::string(test.param->name); });

// They go into the file as they are, row by row. Another format is made of model.safetensors.
TEST_P(StoredBlocksTest, AreCopied) {
  const GgufFile file = Gguf(format_);
  EXPECT_THAT(notes_, ::testing::Contains(HasSubstr(
                          absl::StrCat("matrices were trained in ", std::string(format_.name)))));
  const GgufFile::Tensor& up = file.tensors.at("blk.1.ffn_up.weight");
  EXPECT_EQ(up.type, format_.ggml_type);
  EXPECT_THAT(up.dimensions, ElementsAre(64, spec_.ffn_hidden()));
  EXPECT_EQ(up.bytes, RowsOf(spec::Slot::kFfnIn, 1, spec_.ffn_hidden(),
                             [this](int64_t row) { return spec_.ffn_hidden() + row; }));
  // Heads of 16 rows, whose halves are neighbours in the file.
  EXPECT_EQ(file.tensors.at("blk.0.attn_q.weight").bytes,
            RowsOf(spec::Slot::kQkv, 0, 64,
                   [](int64_t row) { return row / 16 * 16 + row % 2 * 8 + row % 16 / 2; }));
  EXPECT_EQ(file.tensors.at("blk.0.attn_output.weight").bytes,
            RowsOf(spec::Slot::kAttnOut, 0, 64, [](int64_t row) { return row; }));
  Gguf(formats::kStoredF16);
  EXPECT_THAT(notes_, ::testing::Not(::testing::Contains(HasSubstr("were trained in"))));
}

TEST_P(StoredBlocksTest, ScaleThatIsNotFinite_IsNamed) {
  scale_byte_ = 0x60;  // up to 0x7F: NaN in E4M3, and as the high byte of an f16
  WriteBlocks();
  const auto done = Export(kGgufExport, format_, dir_ + "/out.gguf");
  EXPECT_THAT(std::string(done.status().message()), HasSubstr("has a value that is not finite in"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/out.gguf"));
}

// Makes the values of a test's model lie below 1, as weights do.
constexpr float kSmall = 0x1p-10F;

// As llama.cpp reads them: 40 is GGML_TYPE_NVFP4, 39 LLAMA_FTYPE_MOSTLY_NVFP4.
TEST_F(ExportTest, Nvfp4_HasAScaleBesideEachMatrixOfALayer) {
  for (const char* type : {"llama", "mistral", "phi3", "qwen3"}) {
    std::filesystem::remove_all(model_);
    v1::ModelSpec spec = TestModelSpec(type);
    spec.set_hidden(64);
    spec.set_head_dim(16);
    spec.set_ffn_hidden(96);
    WriteModel(spec, kSmall);
    const GgufFile file = Gguf(formats::kStoredNvfp4);
    EXPECT_EQ(file.Integer("general.file_type"), 39U);
    EXPECT_EQ(file.Integer("general.quantization_version"), 2U);
    int scales = 0;
    for (const auto& [name, tensor] : file.tensors) {
      if (name.ends_with(".scale")) {
        ++scales;
        EXPECT_EQ(tensor.type, 0U) << name;
        EXPECT_THAT(tensor.dimensions, ElementsAre(1)) << name;
        EXPECT_THAT(Floats(tensor), ElementsAre(0x1p-10F)) << name;
        const std::string of = name.substr(0, name.size() - 5) + "weight";
        EXPECT_EQ(file.tensors.at(of).type, 40U) << of;
        EXPECT_EQ(file.tensors.at(of).dimensions[0], 64U) << of;
      }
    }
    // q, k, v, output, gate and up of two layers; rows of down have 96 elements.
    EXPECT_EQ(scales, 12) << type;
    EXPECT_EQ(file.tensors.at("blk.0.ffn_down.weight").type, 1U);
    EXPECT_EQ(file.tensors.at("blk.0.ffn_norm.weight").type, 0U);
    EXPECT_EQ(file.tensors.at("token_embd.weight").type, 30U);
    EXPECT_THAT(notes_, ::testing::Contains(HasSubstr("outside the layers are bf16 (token_embd")));
  }
}

TEST_F(ExportTest, Nvfp4_OfBf16Weights_IsWithinAStep) {
  const auto hf = WriteModel(Llama64(), kSmall);
  const GgufFile file = Gguf(formats::kStoredNvfp4);
  const TestTensor& want = hf.at("model.layers.1.mlp.up_proj.weight");
  std::vector<float> got(want.values.size());
  formats::kStoredNvfp4.decode(
      reinterpret_cast<const uint8_t*>(file.tensors.at("blk.1.ffn_up.weight").bytes.data()),
      static_cast<int64_t>(got.size()) / 64, got.data());
  for (size_t i = 0; i < got.size(); i += 16) {
    float amax = 0;
    for (size_t k = i; k < i + 16; ++k) {
      amax = std::max(amax, std::fabs(want.values[k]));
    }
    for (size_t k = i; k < i + 16; ++k) {
      ASSERT_NEAR(got[k], want.values[k], 0.19F * amax) << k;
    }
  }
}

TEST_F(ExportTest, Nvfp4_ValueAboveItsLargest_IsNamed) {
  auto tensors = WriteModel(Llama64(), kSmall);
  tensors.at("model.layers.1.mlp.up_proj.weight").values[64 * 5 + 3] = -2.75F;
  WriteTestFolder(model_, MakeTestModel(Llama64()), tensors);
  EXPECT_TRUE(Export(kGgufExport, formats::kStoredQ4_0, dir_ + "/q4").ok());
  const auto done = Export(kGgufExport, formats::kStoredNvfp4, dir_ + "/nv");
  EXPECT_THAT(std::string(done.status().message()),
              HasSubstr("tensor blk.1.ffn_up.weight has -2.75 in row 5, but nvfp4 holds at most "
                        "2.625"));
}

// Its graphs of these do not multiply by the scales of the feed-forward block.
TEST_F(ExportTest, Nvfp4_OfModelsWhoseScalesLlamaCppLeavesOut_IsRefused) {
  for (const char* type : {"qwen2", "gpt2"}) {
    std::filesystem::remove_all(model_);
    WriteModel(TestModelSpec(type));
    const auto done = Export(kGgufExport, formats::kStoredNvfp4, dir_ + "/out.gguf");
    EXPECT_TRUE(absl::IsUnimplemented(done.status())) << done.status();
    EXPECT_THAT(std::string(done.status().message()),
                HasSubstr(absl::StrCat("cannot run this ", type, " model in nvfp4")));
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/out.gguf"));
  }
}

// The same of ranks that have a part of each matrix: a row may lie in the files of two.
TEST_F(ExportTest, StoredBlocks_OfDividedRanks_AreThoseOfTheWhole) {
  const v1::ModelSpec spec = Llama64();
  WriteModel(spec);
  const TestModel m = MakeTestModel(spec);
  const formats::StoredFormat& format = formats::kStoredQ8_0;
  // Byte 1 of a block is the high one of its scale, which is finite.
  const auto byte = [](size_t k, int64_t at) {
    const auto any = static_cast<uint8_t>(static_cast<int64_t>(k) * 31 + at * 7 + at / 34);
    return static_cast<uint8_t>(at % 34 == 1 ? any & 0x3F : any);
  };
  // Writes a part of each matrix: from one cut to another, in eighths. Rows are of two blocks.
  const auto cut = [](int64_t blocks, int64_t eighth) {
    return (blocks * eighth / 8 + (eighth % 8 != 0 ? 1 : 0)) * 34;
  };
  const auto write = [&](const std::string& file, int64_t from, int64_t to) {
    std::vector<TensorEntry> entries;
    std::vector<std::pair<size_t, int64_t>> places;
    std::map<std::string, std::string> metadata;
    for (size_t k = 0; k < m.table.size(); ++k) {
      const spec::Parameter& p = m.table[k];
      if (p.group != spec::ParameterGroup::kMatrix || p.shape[1] % format.block != 0) {
        continue;
      }
      const int64_t blocks = p.elements() / format.block;
      const int64_t first = cut(blocks, from);
      const std::string name = "q8_0." + p.name;
      entries.push_back({name, TensorDType::kU8, {cut(blocks, to) - first}});
      places.emplace_back(k, first);
      metadata["first." + name] = std::to_string(first);
    }
    return WriteSafetensors(
        Env::Real(), model_ + "/state/" + file, entries, metadata,
        [&](size_t index, int64_t begin, absl::Span<uint8_t> out) {
          const auto& [k, first] = places[index];
          for (size_t i = 0; i < out.size(); ++i) {
            out[i] = byte(k, first + begin + static_cast<int64_t>(i));
          }
          return absl::OkStatus();
        },
        1);
  };
  ASSERT_TRUE(Env::Real().CreateDirs(model_ + "/state").ok());
  ASSERT_TRUE(write("tensors.safetensors", 0, 8).ok());
  const GgufFile whole = Gguf(format);
  ASSERT_TRUE(Env::Real().RemoveAll(model_ + "/state").ok());
  ASSERT_TRUE(Env::Real().CreateDirs(model_ + "/state").ok());
  ASSERT_TRUE(write("optimizer-00000-of-00002.safetensors", 0, 3).ok());
  // The rest is missing.
  EXPECT_EQ(Export(kGgufExport, format, dir_ + "/part", 1).status().code(),
            absl::StatusCode::kDataLoss);
  ASSERT_TRUE(write("optimizer-00001-of-00002.safetensors", 3, 8).ok());
  const GgufFile divided = Gguf(format);
  EXPECT_THAT(notes_, ::testing::Contains(HasSubstr("matrices were trained in q8_0")));
  for (const auto& [name, tensor] : whole.tensors) {
    EXPECT_EQ(divided.tensors.at(name).bytes, tensor.bytes) << name;
  }
}

TEST_F(ExportTest, FileOfSeveralChunks_IsTheSameForAnyThreads) {
  v1::ModelSpec spec = Llama64();
  spec.set_vocab(70001);
  const auto hf = WriteModel(spec);
  ASSERT_TRUE(Export(kGgufExport, formats::kStoredF32, dir_ + "/1", 1).ok());
  ASSERT_TRUE(Export(kGgufExport, formats::kStoredF32, dir_ + "/3", 3).ok());
  const std::string bytes = *Env::Real().ReadFile(dir_ + "/1");
  EXPECT_GT(bytes.size(), size_t{4} * kFileChunkBytes);
  EXPECT_TRUE(bytes == *Env::Real().ReadFile(dir_ + "/3"));
  const GgufFile file = ReadGguf(bytes);
  EXPECT_TRUE(Floats(file.tensors.at("output.weight")) == hf.at("lm_head.weight").values);
  ASSERT_TRUE(Export(kHfExport, formats::kStoredF32, dir_ + "/hf", 3).ok());
  EXPECT_TRUE(*Env::Real().ReadFile(dir_ + "/hf/model.safetensors") ==
              *Env::Real().ReadFile(model_ + "/model.safetensors"));
}

TEST_F(ExportTest, Llama3Rope_IsATensorOfFactors) {
  v1::ModelSpec spec = Llama64();
  SetLlama3Rope(spec);
  WriteModel(spec);
  const GgufFile file = Gguf(formats::kStoredF32);
  const std::vector<float> factors = Floats(file.tensors.at("rope_freqs.weight"));
  ASSERT_EQ(factors.size(), 8U);
  EXPECT_EQ(factors[0], 1.0F);  // a wave of 6 positions, shorter than 64 / 4
  EXPECT_EQ(factors[7], 8.0F);  // 20000 positions
  // 2 pi 10000^(2/16) = 19.87 lies between 16 and 64: smooth (64 / 19.87 - 1) / 3 = 0.7403.
  const double wave = 2 * std::numbers::pi * std::pow(10000.0, 2.0 / 16);
  const double smooth = (64 / wave - 1) / 3;
  EXPECT_NEAR(factors[1], 1 / ((1 - smooth) / 8 + smooth), 1e-5);
}

TEST_F(ExportTest, LinearRope_IsMetadata) {
  v1::ModelSpec spec = TestModelSpec("qwen2");
  spec.mutable_rope_scaling()->set_type("linear");
  spec.mutable_rope_scaling()->set_factor(4);
  WriteModel(spec);
  const GgufFile file = Gguf(formats::kStoredBf16);
  EXPECT_EQ(file.Text("qwen2.rope.scaling.type"), "linear");
  EXPECT_EQ(file.Number("qwen2.rope.scaling.factor"), 4.0);
  EXPECT_EQ(file.Integer("general.file_type"), 32U);
  EXPECT_EQ(file.tensors.at("token_embd.weight").type, 30U);
}

TEST_F(ExportTest, ModelsThatLlamaCppHasNot_AreRefusedWithTheReason) {
  v1::ModelSpec erf = TestModelSpec("gpt2");
  erf.set_activation("gelu");
  v1::ModelSpec biased = TestModelSpec("qwen3");
  biased.set_attention_bias("all");
  v1::ModelSpec scaled = TestModelSpec("qwen2");
  scaled.mutable_rope_scaling()->set_type("llama3");
  const struct {
    v1::ModelSpec spec;
    const char* why;
  } cases[] = {{erf, "GELU by tanh"},
               {biased, "no attention biases"},
               {scaled, "no rope scaling of llama3"},
               {TestModelSpec("hearth"), "no architecture for this model (class hearth)"}};
  for (const auto& c : cases) {
    std::filesystem::remove_all(model_);
    const TestModel m = MakeTestModel(c.spec);
    WriteTestFolder(model_, m, TestTensors(m));
    const auto done = Export(kGgufExport, formats::kStoredF16, dir_ + "/out.gguf");
    EXPECT_TRUE(absl::IsUnimplemented(done.status())) << done.status();
    EXPECT_THAT(std::string(done.status().message()), HasSubstr(c.why));
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/out.gguf"));
  }
}

TEST_F(ExportTest, HfFolder_KeepsClassConfigurationAndTokenizer) {
  const TestModel m = MakeTestModel("phi3");
  const auto hf = TestTensors(m);
  WriteTestFolder(model_, m, hf);
  auto config = nlohmann::json::parse(*Env::Real().ReadFile(model_ + "/config.json"));
  config["their_own_key"] = 7;
  ASSERT_TRUE(Env::Real().WriteFileAtomically(model_ + "/config.json", config.dump()).ok());
  ASSERT_TRUE(Env::Real().WriteFileAtomically(model_ + "/tokenizer.json", "{}").ok());
  ASSERT_TRUE(Env::Real().WriteFileAtomically(model_ + "/optimizer.bin", "x").ok());
  const auto done = Export(kHfExport, formats::kStoredBf16, dir_ + "/hf");
  ASSERT_TRUE(done.ok()) << done.status();
  const auto file = SafetensorsFile::Open(Env::Real(), dir_ + "/hf/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().size(), hf.size());
  for (const auto& [name, tensor] : hf) {
    const auto got = (*file)->Get(name, TensorDType::kBF16, tensor.shape);
    ASSERT_TRUE(got.ok()) << got.status();
    const auto* bits = static_cast<const uint16_t*>((*got)->data);
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      ASSERT_EQ(bits[i], formats::EncodeBf16(tensor.values[i])) << name;
    }
  }
  const auto written = nlohmann::json::parse(*Env::Real().ReadFile(dir_ + "/hf/config.json"));
  EXPECT_EQ(written["model_type"], "phi3");
  EXPECT_EQ(written["torch_dtype"], "bfloat16");
  EXPECT_EQ(written["their_own_key"], 7);
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/hf/tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/hf/optimizer.bin"));
  EXPECT_THAT(std::string(Export(kHfExport, formats::kStoredQ8_0, dir_ + "/q").status().message()),
              HasSubstr("no format q8_0"));
}

}  // namespace
}  // namespace hearth::weights
