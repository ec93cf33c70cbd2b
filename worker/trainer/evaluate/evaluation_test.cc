#include "worker/trainer/evaluate/evaluation.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

// Pairs of bytes are one token where they can be, from the front: so what stands behind a text
// changes its tokens. Token 1000 ends a document.
class PairTokenizer : public dataset::Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) override {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < text.size(); i += 2) {
      tokens.push_back(i + 1 < text.size() ? text[i] + 128 : text[i]);
    }
    return tokens;
  }
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t>) override { return ""; }
  int32_t vocab() const override { return 1001; }
  int32_t eos() const override { return eos_; }
  dataset::TokenizerInfo info() const override { return {}; }

  int32_t eos_ = 1000;
};

class EncodePairTest : public testing::Test {
 protected:
  absl::StatusOr<ScoreRequest> Encode(const std::string& context,
                                      const std::string& continuation,
                                      int64_t length = 100) {
    return EncodePair(*tokenizer_, context, continuation, length, "f:1", &cut_);
  }

  std::unique_ptr<dataset::Tokenizer> tokenizer_ = dataset::NewBytesTokenizer();
  bool cut_ = false;
};

TEST_F(EncodePairTest, SpaceAtTheEndOfTheContext_IsTheContinuations) {
  const auto request = Encode("ab \n", " c");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->tokens, (std::vector<int32_t>{'a', 'b', ' ', '\n', ' ', 'c'}));
  EXPECT_EQ(request->scored, 4);
  EXPECT_FALSE(cut_);
}

TEST_F(EncodePairTest, EmptyContext_IsTheEndToken) {
  const auto request = Encode("", " c");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->tokens, (std::vector<int32_t>{256, ' ', 'c'}));
  EXPECT_EQ(request->scored, 2);
  auto none = std::make_unique<PairTokenizer>();
  none->eos_ = -1;
  tokenizer_ = std::move(none);
  EXPECT_FALSE(Encode("", " c").ok());
}

TEST_F(EncodePairTest, TooLong_LosesItsBeginning) {
  const auto request = Encode("abcdefgh", " xy", 5);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->tokens, (std::vector<int32_t>{'f', 'g', 'h', ' ', 'x', 'y'}));
  EXPECT_EQ(request->scored, 3);
  EXPECT_TRUE(cut_);
  EXPECT_TRUE(Encode("abcdefgh", " xyzu", 5).ok()) << "all of the context but one token is gone";
  const auto refused = Encode("abcdefgh", " xyzuv", 5);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().ToString().find("f:1"), std::string::npos);
}

TEST_F(EncodePairTest, TokensOverTheBorder_CountAsTheHarnessCountsThem) {
  tokenizer_ = std::make_unique<PairTokenizer>();
  // "abc" alone is [ab][c]; with " de" the whole is [ab][c ][de]: the continuation is what the
  // whole has behind two tokens, and the context keeps its own two.
  const auto request = Encode("abc", " de");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->tokens, (std::vector<int32_t>{'a' + 128, 'c', 'd' + 128}));
  EXPECT_EQ(request->scored, 1);
  const auto swallowed = Encode("abc", "d");
  EXPECT_EQ(swallowed.status().code(), absl::StatusCode::kInvalidArgument)
      << "the whole has as many tokens as the context";
}

class JudgeTest : public testing::Test {
 protected:
  std::unique_ptr<Evaluation> Open(const std::string& task, const std::string& items) {
    const std::string path = dir_.path() + "/items.jsonl";
    EXPECT_TRUE(Env::Real().WriteFileAtomically(path, items).ok());
    EvaluationOptions options;
    options.task = task;
    options.items.path = path;
    options.context_length = 30;
    auto opened = Evaluation::Open(options, *dataset::NewBytesTokenizer());
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return *std::move(opened);
  }

  TempDir dir_;
};

TEST_F(JudgeTest, Choices_AreComparedPlainByCharactersAndByBytes) {
  // Two characters of two bytes each, and three of one.
  const auto evaluation = Open(
      "piqa",
      "{\"goal\": \"g\", \"sol1\": \"\xc3\xa9\xc3\xa9\", \"sol2\": \"abc\", \"label\": 1}\n"
      "{\"goal\": \"g\", \"sol1\": \"\xc3\xa9\xc3\xa9\", \"sol2\": \"abc\", \"label\": 0}\n"
      "{\"goal\": \"a goal that is too long\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 0}\n");
  ASSERT_EQ(evaluation->requests().size(), 6U);
  // Item 1: plain -4 > -5 (wrong), a character -2 < -1.67 (right), a byte -1 > -1.67 (wrong).
  // Item 2: the same, so right, wrong, right. Item 3: a tie goes to the first choice.
  const std::vector<Score> scores = {{-4, false}, {-5, false}, {-4, false},
                                     {-5, false}, {-3, false}, {-3, false}};
  const v1::EvaluationResult result = evaluation->Judge(scores);
  EXPECT_EQ(result.items(), 3);
  EXPECT_EQ(result.cut_items(), 1);
  EXPECT_DOUBLE_EQ(result.accuracy(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(result.accuracy_normalised(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(result.accuracy_bytes(), 2.0 / 3);
  EXPECT_FALSE(result.has_perplexity());
  EXPECT_EQ(spec::EvaluationText(result), "piqa: acc 0.6667, acc_norm 0.6667 (3 items, 1 cut)");
  EXPECT_NEAR(StandardError(result.accuracy(), 3), std::sqrt(2.0 / 3 / 3 / 2), 1e-12);
  const std::string details = evaluation->Details(scores);
  EXPECT_NE(details.find("items.jsonl:1\",\"answer\":1,\"log_likelihoods\":[-4.0,-5.0]"),
            std::string::npos)
      << details;
}

TEST_F(JudgeTest, LastWord_IsGreedyAccuracyAndPerplexity) {
  const auto evaluation = Open("lambada", "{\"text\": \"a b\"}\n{\"text\": \"a cd\"}\n");
  const v1::EvaluationResult result =
      evaluation->Judge(std::vector<Score>{{-1, true}, {-3, false}});
  EXPECT_EQ(result.accuracy(), 0.5);
  EXPECT_DOUBLE_EQ(result.perplexity(), std::exp(2.0));
  EXPECT_FALSE(result.has_accuracy_normalised());
  EXPECT_EQ(evaluation->longest(), 3);
}

}  // namespace
}  // namespace hearth::trainer
