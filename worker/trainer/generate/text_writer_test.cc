#include "worker/trainer/generate/text_writer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_model.h"

namespace hearth::trainer {
namespace {

using Tokens = std::vector<int32_t>;

// A generator over bytes with random weights.
std::unique_ptr<Generator> MakeBytes(int64_t batch, double temperature) {
  GeneratorOptions options;
  options.model = TinyModel("llama");
  options.model.set_vocab(257);
  options.recipe = "fp32";
  options.batch = batch;
  options.prompt = 8;
  options.length = 68;
  options.rule.temperature = temperature;
  options.end_token = 256;
  options.scoring = {3, 72, false};
  auto generator = *Generator::Create(options);
  EXPECT_TRUE(generator->parameters().Initialise(generator->exec(), 3).ok());
  EXPECT_TRUE(generator->Prepare().ok());
  return generator;
}

std::vector<Tokens> PromptTokens(dataset::Tokenizer& tokenizer) {
  std::vector<Tokens> prompts;
  for (const char* const text : {"one", "two tw", "3", "vier", "fuenf"}) {
    prompts.push_back(*tokenizer.Encode(text));
  }
  return prompts;
}

std::vector<WrittenText> Write(int64_t batch, const WritingOptions& options) {
  const auto generator = MakeBytes(batch, 1.0);
  const auto tokenizer = dataset::NewBytesTokenizer();
  const std::vector<Tokens> prompts = PromptTokens(*tokenizer);
  WritingTimes times;
  const auto texts = WriteTexts(*generator, *tokenizer, prompts, options, Clock::Real(), times);
  EXPECT_TRUE(texts.ok()) << texts.status();
  return *texts;
}

TEST(WriteTexts, TextsDoNotDependOnTheBatch) {
  const WritingOptions options = {40, {}};
  const std::vector<WrittenText> all = Write(5, options);
  const std::vector<WrittenText> two = Write(2, options);
  const std::vector<WrittenText> one = Write(1, options);
  ASSERT_EQ(all.size(), 5);
  const auto tokenizer = dataset::NewBytesTokenizer();
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].tokens, two[i].tokens);
    EXPECT_EQ(all[i].tokens, one[i].tokens);
    EXPECT_EQ(all[i].text, *tokenizer->Decode(all[i].tokens));
    EXPECT_EQ(all[i].tokens.size(), all[i].log_prob.size());
    EXPECT_EQ(all[i].end == TextEnd::kLength, all[i].tokens.size() == 40);
  }
}

// The same texts; their log-probabilities differ by roundings, and no longer depend on the batch.
TEST(WriteTexts, LogProbsOfTraining_AreThoseOfScore) {
  WritingOptions options = {40, {"q"}};
  const std::vector<WrittenText> generation = Write(5, options);
  options.log_probs = LogProbs::kTraining;
  const std::vector<WrittenText> five = Write(5, options);
  const std::vector<WrittenText> two = Write(2, options);
  const auto tokenizer = dataset::NewBytesTokenizer();
  const std::vector<Tokens> prompts = PromptTokens(*tokenizer);
  std::vector<ScoreRequest> requests;
  bool differs = false;
  for (size_t i = 0; i < five.size(); ++i) {
    ASSERT_FALSE(five[i].tokens.empty());
    EXPECT_EQ(five[i].tokens, generation[i].tokens);
    EXPECT_EQ(five[i].text, generation[i].text);
    EXPECT_EQ(five[i].log_prob, two[i].log_prob);
    ASSERT_EQ(five[i].log_prob.size(), generation[i].log_prob.size());
    for (size_t k = 0; k < five[i].log_prob.size(); ++k) {
      EXPECT_NEAR(five[i].log_prob[k], generation[i].log_prob[k], 1e-4);
      differs = differs || five[i].log_prob[k] != generation[i].log_prob[k];
    }
    Tokens tokens = prompts[i];
    tokens.insert(tokens.end(), five[i].tokens.begin(), five[i].tokens.end());
    requests.push_back({tokens, static_cast<int64_t>(five[i].tokens.size())});
  }
  EXPECT_TRUE(differs) << "generation's own values";
  const auto scored = MakeBytes(1, 1.0)->Score(requests);
  ASSERT_TRUE(scored.ok()) << scored.status();
  for (size_t i = 0; i < five.size(); ++i) {
    EXPECT_EQ(five[i].log_prob, (*scored)[i]);
  }
}

TEST(WriteTexts, StopString_EndsItsTextAndIsLeftOut) {
  const std::vector<WrittenText> free = Write(5, {40, {}});
  // Something that the first text has within.
  ASSERT_GT(free[0].text.size(), 12);
  const std::string stop = free[0].text.substr(6, 3);
  const std::vector<WrittenText> texts = Write(5, {40, {stop, "\x01never\x02"}});
  EXPECT_EQ(texts[0].end, TextEnd::kStop);
  EXPECT_EQ(texts[0].text, free[0].text.substr(0, free[0].text.find(stop)));
  for (size_t i = 1; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i].text, free[i].text.substr(0, free[i].text.find(stop))) << i;
  }
}

TEST(WriteTexts, NoRoomOrNoTokens_IsRefused) {
  const auto generator = MakeBytes(2, 0);
  const auto tokenizer = dataset::NewBytesTokenizer();
  const std::vector<Tokens> prompts = PromptTokens(*tokenizer);
  WritingTimes times;
  EXPECT_EQ(
      WriteTexts(*generator, *tokenizer, prompts, {0, {}}, Clock::Real(), times).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteTexts(*generator, *tokenizer, {Tokens(70, 1)}, {1, {}}, Clock::Real(), times)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FindStop, GivesTheFirstOfAll) {
  EXPECT_EQ(FindStop("abcdef", {"ef", "cd"}), 2);
  EXPECT_EQ(FindStop("abcdef", {"x"}), std::string::npos);
  EXPECT_EQ(FindStop("", {"x"}), std::string::npos);
  EXPECT_EQ(FindStop("abc", {}), std::string::npos);
}

}  // namespace
}  // namespace hearth::trainer
