#include "common/dataset/tokenize/tokenizer.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/system.h"
#include "common/dataset/packed_tokens.h"
#include "common/fault/fault.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::dataset {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Lines() {
  std::vector<std::string> lines;
  for (int i = 0; i < 400; ++i) {
    lines.push_back("the quick brown fox number " + std::to_string(i * 7919) +
                    " jumps over the lazy dog and thinks of section " + std::to_string(i));
  }
  return lines;
}

TEST(BytesTokenizer, Encode_AnyBytes_RoundTrips) {
  const auto tokenizer = NewBytesTokenizer();
  std::string text;
  for (int i = 0; i < 256; ++i) {
    text.push_back(static_cast<char>(i));
  }
  auto tokens = tokenizer->Encode(text);
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ((*tokens)[200], 200);
  tokens->push_back(tokenizer->eos());
  EXPECT_EQ(*tokenizer->Decode(*tokens), text);
  EXPECT_EQ(tokenizer->vocab(), 257);
  EXPECT_TRUE(absl::IsInvalidArgument(tokenizer->Decode({257}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(tokenizer->Decode({-1}).status()));
}

std::string Packed(TokenWidth width, const std::vector<int32_t>& tokens) {
  std::string packed;
  for (const int32_t token : tokens) {
    AppendToken(width, token, &packed);
  }
  return packed;
}

TEST(BytesTokenizer, Pack_AnyLength_SameTokensAsEncode) {
  const auto tokenizer = NewBytesTokenizer();
  for (const TokenWidth width : {TokenWidth::kUint16, TokenWidth::kUint32}) {
    ByteBuffer out;
    std::string want = "before";
    out.Append(want);
    for (size_t length : {0, 1, 7, 16, 33, 300}) {
      std::string text;
      for (size_t i = 0; i < length; ++i) {
        text.push_back(static_cast<char>(i * 37));
      }
      EXPECT_EQ(tokenizer->Pack(text, width, &out).value(), static_cast<int64_t>(length));
      want += Packed(width, *tokenizer->Encode(text));
      EXPECT_EQ(out.view(), want) << length;
    }
  }
}

TEST(PackChecked, TokenOutsideTheVocabulary_IsAnError) {
  ByteBuffer out;
  const std::vector<int32_t> good = {0, 299, 5};
  ASSERT_TRUE(PackChecked(good, 300, TokenWidth::kUint16, &out).ok());
  EXPECT_EQ(out.view(), Packed(TokenWidth::kUint16, good));
  for (const int32_t bad : {300, -1}) {
    const absl::Status status = PackChecked({1, bad, 2}, 300, TokenWidth::kUint16, &out);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("token " + std::to_string(bad)));
  }
  EXPECT_TRUE(PackChecked({}, 300, TokenWidth::kUint16, &out).ok());
}

TEST(OpenTokenizer, EveryRecordedKind_IsOpenedFromItsFile) {
  const TempDir dir;
  for (const tokenizer::TokenizerKindRow& row : tokenizer::kTokenizerKinds) {
    if (!row.recorded) {
      continue;
    }
    const TokenizerInfo info = {row.kind, std::string(row.file), 257, 256};
    const absl::Status status = OpenTokenizer(info, dir.path()).status();
    if (!info.known()) {
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << row.name << ": " << status;
    } else if (row.file.empty()) {
      EXPECT_TRUE(status.ok()) << row.name << ": " << status;
    } else {
      EXPECT_TRUE(absl::IsNotFound(status)) << row.name << ": " << status;
    }
  }
}

TEST(TokenizerProcess, Train_SameLines_SameBytes) {
  SentencePieceTraining options;
  options.vocab = 298;  // unigram finds few pieces in so little text
  for (const char* type : {"bpe", "unigram"}) {
    options.model_type = type;
    const auto a = TokenizerProcess::Train(Lines(), options);
    const auto b = TokenizerProcess::Train(Lines(), options);
    ASSERT_TRUE(a.ok()) << a.status();
    ASSERT_TRUE(b.ok()) << b.status();
    EXPECT_EQ(*a, *b) << type;
  }
}

TEST(TokenizerProcess, Start_CannotSpawn_IsAnErrorAndTheNextStartWorks) {
  SentencePieceTraining options;
  options.vocab = 298;
  ASSERT_TRUE(fault::Configure("dataset.before_spawn=error@1").ok());
  const auto refused = TokenizerProcess::Train(Lines(), options);
  const auto model = TokenizerProcess::Train(Lines(), options);
  EXPECT_TRUE(fault::Configure("").ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInternal) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("dataset.before_spawn"));
  EXPECT_TRUE(model.ok()) << model.status();
}

TEST(TokenizerProcess, Decode_OfEncode_IsTheText) {
  SentencePieceTraining options;
  options.vocab = 400;
  const auto model = TokenizerProcess::Train(Lines(), options);
  ASSERT_TRUE(model.ok()) << model.status();
  auto tokenizer = TokenizerProcess::Start(*model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocab(), 400);
  EXPECT_EQ((*tokenizer)->eos(), 2);
  for (const std::string text :
       {"the fox", "", "  two  spaces\n\n\ttab \r\n", "日本語 ümläut ✓ 🙂", "end\n"}) {
    auto tokens = (*tokenizer)->Encode(text);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    for (const int32_t token : *tokens) {
      EXPECT_LT(token, 400);
    }
    tokens->push_back((*tokenizer)->eos());
    const auto back = (*tokenizer)->Decode(*tokens);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, text);
  }
  EXPECT_LT((*tokenizer)->Encode("the quick brown fox")->size(), 10u);
  EXPECT_TRUE(absl::IsInvalidArgument((*tokenizer)->Decode({400}).status()));
  EXPECT_TRUE((*tokenizer)->Encode("still alive").ok());
}

TEST(TokenizerProcess, BadModel_IsAnError) {
  const auto tokenizer = TokenizerProcess::Start("this is no model");
  EXPECT_TRUE(absl::IsInvalidArgument(tokenizer.status())) << tokenizer.status();
}

TEST(TokenizerProcess, VocabularyTooLarge_SaysSo) {
  SentencePieceTraining options;
  options.vocab = 100000;
  const auto model = TokenizerProcess::Train({"a b c", "d e f"}, options);
  EXPECT_TRUE(absl::IsInvalidArgument(model.status())) << model.status();
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("100000"));
}

TEST(TokenizerProcess, ProgramMissingOrDying_IsAnError) {
  SetEnv("HEARTH_LIBEXEC", "/nowhere");
  EXPECT_TRUE(absl::IsNotFound(TokenizerProcess::Start("x").status()));
  const std::string dir = ::testing::TempDir() + "/dying";
  const std::string program = dir + "/hearth-tokenizer";
  std::filesystem::create_directories(dir);
  std::ofstream(program) << "#!/bin/sh\nexit 3\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  SetEnv("HEARTH_LIBEXEC", dir.c_str());
  const auto tokenizer = TokenizerProcess::Start(std::string(1 << 22, 'x'));
  EXPECT_TRUE(absl::IsUnavailable(tokenizer.status())) << tokenizer.status();
  UnsetEnv("HEARTH_LIBEXEC");
}

}  // namespace
}  // namespace hearth::dataset
