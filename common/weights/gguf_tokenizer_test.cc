#include "common/weights/gguf_tokenizer.h"

#include <cstring>
#include <map>

#include "common/dataset/format.h"
#include "common/tokenizer/scanner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/common/tokenizer_json.h"

namespace hearth::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GgufTokenizerTest : public ::testing::Test {
 protected:
  void Put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(Env::Real().WriteFileAtomically(dir_ + "/" + name, text).ok());
  }

  // The metadata of a tokenizer that can be described.
  void Describe(int64_t vocab) {
    const auto described = DescribeTokenizer(Env::Real(), dir_, vocab);
    ASSERT_TRUE(described.ok()) << described.status();
    notes_ = described->notes;
    for (const auto& [key, value] : described->metadata) {
      EXPECT_EQ(metadata_.count(key), 0U) << key;
      metadata_[key] = value;
    }
  }
  std::string Refused(int64_t vocab) {
    const auto described = DescribeTokenizer(Env::Real(), dir_, vocab);
    EXPECT_FALSE(described.ok());
    return std::string(described.status().message());
  }

  template <typename T>
  T Get(const std::string& key) {
    const auto found = metadata_.find("tokenizer.ggml." + key);
    EXPECT_NE(found, metadata_.end()) << key;
    const T* value = found == metadata_.end() ? nullptr : std::get_if<T>(&found->second);
    EXPECT_NE(value, nullptr) << key;
    return value == nullptr ? T() : *value;
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  std::map<std::string, GgufValue> metadata_;
  std::vector<std::string> notes_;
};

using Texts = std::vector<std::string>;
using Types = std::vector<int32_t>;

TEST_F(GgufTokenizerTest, Bytes_AreGpt2sWithoutMerges) {
  Put("hearth_tokenizer.json", R"({"kind": "bytes", "file": "", "vocab": 257, "eos": 256})");
  Describe(259);
  EXPECT_EQ(Get<std::string>("model"), "gpt2");
  EXPECT_EQ(Get<std::string>("pre"), "gpt-2");
  const Texts tokens = Get<Texts>("tokens");
  ASSERT_EQ(tokens.size(), 259U);
  EXPECT_EQ(tokens['A'], "A");
  EXPECT_EQ(tokens[' '], "\xc4\xa0");  // U+0120
  EXPECT_EQ(tokens['\n'], "\xc4\x8a");
  EXPECT_EQ(tokens[258], "[PAD258]");
  EXPECT_TRUE(Get<Texts>("merges").empty());
  const Types types = Get<Types>("token_type");
  EXPECT_EQ(types[0], 1);
  EXPECT_EQ(types[256], 3);
  EXPECT_EQ(types[258], 5);
  EXPECT_EQ(Get<uint32_t>("eos_token_id"), 256U);
  EXPECT_FALSE(Get<bool>("add_bos_token"));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("2 more tokens")));
}

TEST_F(GgufTokenizerTest, EveryRecordedKind_HasAReader) {
  for (const tokenizer::TokenizerKindRow& row : tokenizer::kTokenizerKinds) {
    if (row.recorded) {
      Put("hearth_tokenizer.json",
          dataset::ToJson(dataset::TokenizerInfo{row.kind, std::string(row.file), 257, 256}));
      const absl::Status status = DescribeTokenizer(Env::Real(), dir_, 257).status();
      // The files are not there, so only a kind without one can be described.
      EXPECT_EQ(status.ok(), row.kind == tokenizer::TokenizerKind::kBytes) << row.name;
      EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << row.name << ": " << status;
    }
  }
}

TEST_F(GgufTokenizerTest, Bpe_HasTokensMergesTypesAndTheNameOfItsExpression) {
  tokenizer::TestTokenizer test(20);
  nlohmann::json json = test.Json(tokenizer::ByteLevelJson());
  const auto added = [](int id, const char* text, bool special) {
    return nlohmann::json{{"id", id},          {"content", text}, {"single_word", false},
                          {"lstrip", false},   {"rstrip", false}, {"normalized", false},
                          {"special", special}};
  };
  json["added_tokens"] = {added(276, "<|end|>", true), added(277, "<tool>", false)};
  Put("tokenizer.json", json.dump());
  Put("tokenizer_config.json",
      R"({"eos_token": {"content": "<|end|>"}, "add_bos_token": false, "chat_template": "{{x}}"})");
  Describe(278);
  EXPECT_EQ(Get<std::string>("model"), "gpt2");
  EXPECT_EQ(Get<std::string>("pre"), "gpt-2");
  const Texts tokens = Get<Texts>("tokens");
  const Texts merges = Get<Texts>("merges");
  ASSERT_EQ(tokens.size(), 278U);
  ASSERT_EQ(merges.size(), 20U);
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = test.merges[i];
    EXPECT_EQ(merges[i], tokenizer::NameOfBytes(left) + " " + tokenizer::NameOfBytes(right));
    EXPECT_EQ(tokens[256 + i], tokenizer::NameOfBytes(left + right));
  }
  EXPECT_EQ(tokens[276], "<|end|>");
  const Types types = Get<Types>("token_type");
  EXPECT_EQ(types[275], 1);
  EXPECT_EQ(types[276], 3);
  EXPECT_EQ(types[277], 4);
  EXPECT_EQ(Get<uint32_t>("eos_token_id"), 276U);
  EXPECT_EQ(std::get<std::string>(metadata_.at("tokenizer.chat_template")), "{{x}}");
}

TEST_F(GgufTokenizerTest, Bpe_EveryCompiledExpression_HasAName) {
  for (const bool ignore_merges : {false, true}) {
    for (const tokenizer::ScannerRow& scanner : tokenizer::Scanners()) {
      nlohmann::json json = tokenizer::TestTokenizer(3).Json(tokenizer::SplitJson(scanner.pattern));
      json["model"]["ignore_merges"] = ignore_merges;
      Put("tokenizer.json", json.dump());
      const auto described = DescribeTokenizer(Env::Real(), dir_, 259);
      const bool llama = scanner.kind == tokenizer::ScannerKind::kLlama3;
      ASSERT_EQ(described.ok(), llama || !ignore_merges) << described.status();
      if (llama) {
        EXPECT_EQ(std::get<std::string>(described->metadata[1].second),
                  ignore_merges ? "llama-bpe" : "smaug-bpe");
      }
    }
  }
}

TEST_F(GgufTokenizerTest, WhatLlamaCppHasNot_IsNamed) {
  EXPECT_THAT(Refused(300), HasSubstr("no tokenizer (hearth_tokenizer.json"));
  Put("tokenizer.json", tokenizer::TestTokenizer(3).Json(tokenizer::SplitJson(R"(\p{L}+)")).dump());
  EXPECT_THAT(Refused(300), HasSubstr("tokenizer.json: pre_tokenizer"));
  Put("tokenizer.json", tokenizer::TestTokenizer(3).Json(tokenizer::ByteLevelJson()).dump());
  EXPECT_THAT(Refused(100), HasSubstr("the tokenizer has 259 tokens, the model 100"));
  Put("tokenizer.model", "\x0a\xff");
  EXPECT_THAT(Refused(300), HasSubstr("tokenizer.model: not a sentencepiece model"));
}

// Wire format of protobuf, as sentencepiece_model.proto numbers it.
std::string Field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) +
         std::string(1, static_cast<char>(bytes.size())) + bytes;
}
std::string Number(int number, int value) {
  std::string key(1, static_cast<char>((number << 3 & 0x7f) | (number > 15 ? 0x80 : 0)));
  if (number > 15) {
    key += static_cast<char>(number >> 4);
  }
  return key + static_cast<char>(value);
}
std::string Piece(const std::string& text, float score, int type) {
  std::string bits(sizeof score, '\0');
  std::memcpy(bits.data(), &score, sizeof score);
  return Field(1, Field(1, text) + std::string(1, static_cast<char>(2 << 3 | 5)) + bits +
                      (type == 1 ? "" : Number(3, type)));
}

TEST_F(GgufTokenizerTest, SentencePiece_HasScoresAndTypes) {
  const std::string pieces = Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("</s>", 0, 3) +
                             Piece("<0x41>", 0, 6) + Piece("\xe2\x96\x81the", -1.5F, 1);
  const std::string normalizer = Field(3, Number(3, 0) + Number(4, 0));
  Put("tokenizer.model", pieces + Field(2, Number(3, 2)) + normalizer);
  Describe(5);
  EXPECT_EQ(Get<std::string>("model"), "llama");
  EXPECT_EQ(Get<std::string>("pre"), "default");
  EXPECT_THAT(Get<Texts>("tokens"),
              ElementsAre("<unk>", "<s>", "</s>", "<0x41>", "\xe2\x96\x81the"));
  EXPECT_THAT(Get<std::vector<float>>("scores"), ElementsAre(0, 0, 0, 0, -1.5F));
  EXPECT_THAT(Get<Types>("token_type"), ElementsAre(2, 3, 3, 6, 1));
  EXPECT_EQ(metadata_.count("tokenizer.ggml.merges"), 0U);
  EXPECT_EQ(Get<uint32_t>("bos_token_id"), 1U);
  EXPECT_EQ(Get<uint32_t>("eos_token_id"), 2U);
  EXPECT_EQ(Get<uint32_t>("unknown_token_id"), 0U);
  EXPECT_FALSE(Get<bool>("add_space_prefix"));
  EXPECT_FALSE(Get<bool>("remove_extra_whitespaces"));
  EXPECT_FALSE(Get<bool>("add_bos_token"));

  metadata_.clear();
  Put("tokenizer.model",
      pieces + Field(2, Number(3, 1) + Number(42, 1)) + Field(3, Field(2, "map")));
  Describe(5);
  EXPECT_EQ(Get<std::string>("model"), "t5");
  EXPECT_EQ(Get<uint32_t>("eos_token_id"), 1U);
  EXPECT_TRUE(Get<bool>("add_space_prefix"));
  EXPECT_EQ(Get<std::vector<uint8_t>>("precompiled_charsmap").size(), 3U);

  Put("tokenizer.model", pieces + Field(2, Number(3, 3)));
  EXPECT_THAT(Refused(5), HasSubstr("has only sentencepiece models of type unigram and bpe"));
}

}  // namespace
}  // namespace hearth::weights
