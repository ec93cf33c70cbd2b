#include "worker/trainer/generate/growing_text.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/trainer/byte_generator.h"

namespace hearth::trainer {
namespace {

using Tokens = std::vector<int32_t>;

// What is drawn behind `tokens` when nothing is kept.
Tokens Fresh(const Tokens& tokens, int64_t add, double penalty = 1.0) {
  ByteGeneratorOptions options;
  options.repetition_penalty = penalty;
  const auto generator = MakeByteGenerator(options);
  GrowingText text(*generator);
  EXPECT_TRUE(text.Read(tokens, add).ok());
  EXPECT_EQ(text.computed(), static_cast<int64_t>(tokens.size()));
  Tokens drawn;
  for (int32_t token = 0; (token = *text.Next()) >= 0;) {
    drawn.push_back(token);
  }
  return drawn;
}

Tokens Take(GrowingText& text, int64_t count) {
  Tokens drawn;
  for (int64_t i = 0; i < count; ++i) {
    const absl::StatusOr<int32_t> token = text.Next();
    EXPECT_TRUE(token.ok()) << token.status();
    drawn.push_back(*token);
  }
  return drawn;
}

void Append(const Tokens& more, Tokens& all) {
  all.insert(all.end(), more.begin(), more.end());
}

// Beginnings shorter and longer than the pass that reads them at once.
TEST(GrowingText, GoesOnAsIfTheWholeTextHadBeenReadAtOnce) {
  for (const size_t begin : {size_t{3}, size_t{8}, size_t{21}}) {
    for (const double penalty : {1.0, 1.3}) {
      SCOPED_TRACE(testing::Message() << begin << " tokens, penalty " << penalty);
      ByteGeneratorOptions options;
      options.repetition_penalty = penalty;
      const auto generator = MakeByteGenerator(options);
      GrowingText text(*generator);
      Tokens all(begin, 65);
      ASSERT_TRUE(text.Read(all, 12).ok());
      EXPECT_EQ(text.computed(), static_cast<int64_t>(begin));
      const Tokens first = Take(text, 5);  // and no more, though passes are on their way
      EXPECT_EQ(first, Tokens(Fresh(all, 5, penalty)));
      Append(first, all);
      Append({72, 105, 33}, all);
      ASSERT_TRUE(text.Read(all, 9).ok());
      EXPECT_EQ(text.computed(), 4) << "the last token that was drawn, and what was added";
      const Tokens second = Take(text, 9);
      EXPECT_EQ(second, Fresh(all, 9, penalty));
      EXPECT_EQ(*text.Next(), -1);
    }
  }
}

TEST(GrowingText, OtherTokens_AreComputedFromWhereTheyDiffer) {
  const auto generator = MakeByteGenerator();
  GrowingText text(*generator);
  Tokens all = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  ASSERT_TRUE(text.Read(all, 4).ok());
  Take(text, 4);
  all[9] = 99;
  ASSERT_TRUE(text.Read(all, 4).ok());
  EXPECT_EQ(text.computed(), 3);
  EXPECT_EQ(Take(text, 4), Fresh(all, 4));
  all[0] = 99;
  ASSERT_TRUE(text.Read(all, 4).ok());
  EXPECT_EQ(text.computed(), 12);
  EXPECT_EQ(Take(text, 4), Fresh(all, 4));
  // The same again: one token must be computed to draw the next.
  ASSERT_TRUE(text.Read(all, 4).ok());
  EXPECT_EQ(text.computed(), 1);
  EXPECT_EQ(Take(text, 4), Fresh(all, 4));
}

TEST(GrowingText, NoRoomOrNothing_IsRefused) {
  const auto generator = MakeByteGenerator();
  GrowingText text(*generator);
  EXPECT_EQ(text.Read({}, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(text.Read(Tokens(3, 1), 0).code(), absl::StatusCode::kInvalidArgument);
  const int64_t room = generator->plan_options().length;
  EXPECT_EQ(text.Read(Tokens(static_cast<size_t>(room), 1), 1).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(text.Read(Tokens(static_cast<size_t>(room - 2), 1), 50).ok());
  Take(text, 2);
  EXPECT_EQ(*text.Next(), -1) << "two had room";
  EXPECT_EQ(text.Read({300}, 1).code(), absl::StatusCode::kInvalidArgument);
}

TEST(StreamText, PiecesAreTheText_AndEndAsTheOptionsSay) {
  const auto tokenizer = dataset::NewBytesTokenizer();
  const Tokens prompt = *tokenizer->Encode("Once");
  const Tokens drawn = Fresh(prompt, 30);
  const auto run = [&](const StreamOptions& options, size_t pieces = 1000) {
    const auto generator = MakeByteGenerator();
    GrowingText text(*generator);
    std::string all;
    const auto written = StreamText(text, *tokenizer, prompt, options, [&](std::string_view piece) {
      all += piece;
      return --pieces > 0;
    });
    EXPECT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(all, written->text);
    return *written;
  };
  const StreamedText whole = run({30, {}, {}});
  EXPECT_EQ(whole.text, *tokenizer->Decode(drawn));
  EXPECT_EQ(whole.end, TextEnd::kLength);
  const StreamedText ended = run({30, {}, {drawn[7]}});
  EXPECT_EQ(ended.end, TextEnd::kEndToken);
  EXPECT_LE(ended.text.size(), 7);
  const std::string stop = whole.text.substr(5, 3);
  const StreamedText stopped = run({30, {stop}, {}});
  EXPECT_EQ(stopped.end, TextEnd::kStop);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_LT(run({30, {}, {}}, 3).text.size(), whole.text.size()) << "nobody wanted more";
}

}  // namespace
}  // namespace hearth::trainer
