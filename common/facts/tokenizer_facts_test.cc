#include "common/facts/tokenizer_facts.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "common/dataset/tokenize/tokenizer.h"
#include "common/tokenizer/train.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::facts {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using tokenizer::TokenizerKind;

std::string Trained(const std::string& text) {
  tokenizer::PieceCounts counts;
  counts.Add(text);
  counts.Add(text);
  const absl::StatusOr<std::string> json = tokenizer::TrainBpe(counts, 258);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.value_or("");
}

class TokenizerReaderTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  v1::TokenizerFacts Read() {
    const absl::StatusOr<v1::TokenizerFacts> facts = reader_.Read(dir_.string());
    EXPECT_TRUE(facts.ok()) << facts.status();
    return facts.value_or(v1::TokenizerFacts());
  }

  const TempDir temp_;
  const fs::path dir_ = temp_.path();
  TokenizerReader reader_{Env::Real()};
};

TEST_F(TokenizerReaderTest, EmptyFolderOrNone_HasNoKind) {
  EXPECT_EQ(Read().kind(), "");
  Write("hearth_tokenizer.json", R"({"kind": "none", "file": "", "vocab": 0, "eos": -1})");
  EXPECT_EQ(Read().kind(), "");
}

TEST_F(TokenizerReaderTest, Checkpoint_RecordsKindFileAndVocabulary) {
  Write("hearth_tokenizer.json", dataset::ToJson({TokenizerKind::kBytes, "", 257, 256}));
  EXPECT_EQ(Read().kind(), "bytes");
  EXPECT_EQ(Read().vocab(), 257);
  EXPECT_EQ(Read().sha256(), "");
  Write("hearth_tokenizer.json",
        dataset::ToJson({TokenizerKind::kSentencePiece, "tokenizer.model", 400, 2}));
  Write("tokenizer.model", "abc");
  EXPECT_EQ(Read().kind(), "sentencepiece");
  EXPECT_EQ(Read().vocab(), 400);
  EXPECT_EQ(Read().sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(TokenizerReaderTest, Checkpoint_WithoutItsFile_IsAnError) {
  Write("hearth_tokenizer.json",
        dataset::ToJson({TokenizerKind::kBpe, "tokenizer.json", 258, 257}));
  EXPECT_THAT(std::string(reader_.Read(dir_.string()).status().message()),
              HasSubstr("tokenizer.json"));
}

TEST_F(TokenizerReaderTest, HfFolder_TokenizerJson_HasTheTokensOfTheProbe) {
  const std::string json = Trained("abababab");
  Write("tokenizer.json", json);
  const v1::TokenizerFacts facts = Read();
  EXPECT_EQ(facts.kind(), "bpe");
  EXPECT_EQ(facts.vocab(), 258);
  EXPECT_GT(facts.probe_size(), 100);
  EXPECT_LT(facts.probe_size(), 1024) << "the coordinator takes no more";
  // Written otherwise, the same tokenizer.
  Write("tokenizer.json", json + "\n");
  const v1::TokenizerFacts again = Read();
  EXPECT_NE(again.sha256(), facts.sha256());
  EXPECT_THAT(again.probe(), ::testing::ElementsAreArray(facts.probe()));
  // Merges "the" has: other tokens.
  Write("tokenizer.json", Trained("hehehehe"));
  EXPECT_NE(Read().probe_size(), facts.probe_size());
}

TEST_F(TokenizerReaderTest, HfFolder_JsonOfAnotherKind_IsOtherUnlessAModelIsThere) {
  Write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  EXPECT_EQ(Read().kind(), "other");
  EXPECT_EQ(Read().sha256().size(), 64U);
  Write("tokenizer.model", "abc");
  EXPECT_EQ(Read().kind(), "sentencepiece");
  EXPECT_EQ(Read().file(), "tokenizer.model");
}

}  // namespace
}  // namespace hearth::facts
