#include "worker/trainer/evaluate/item_file.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

class ItemFileTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::string path = dir_.path() + "/" + name;
    EXPECT_TRUE(Env::Real().WriteFileAtomically(path, text).ok());
    return path;
  }
  static ItemFileOptions At(const std::string& path, int64_t limit = 0) {
    ItemFileOptions options;
    options.path = path;
    options.limit = limit;
    return options;
  }
  static absl::StatusOr<std::vector<Question>> Read(std::string_view task,
                                                    const ItemFileOptions& options) {
    return ReadQuestions(*spec::FindEvaluation(task), options, Env::Real());
  }
  static Question First(std::string_view task, const ItemFileOptions& options) {
    auto questions = Read(task, options);
    EXPECT_TRUE(questions.ok()) << questions.status().ToString();
    return questions.ok() ? questions->front() : Question();
  }
  // The error of one item, which names the file and its line.
  void ExpectRefused(std::string_view task, const std::string& item, const std::string& what) {
    const std::string path = Write("bad.jsonl", "\n" + item + "\n");
    const auto read = Read(task, At(path));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << item;
    EXPECT_NE(std::string(read.status().message()).find(path + ":2"), std::string::npos)
        << read.status().ToString();
    EXPECT_NE(std::string(read.status().message()).find(what), std::string::npos)
        << read.status().ToString();
  }

  TempDir dir_;
};

TEST_F(ItemFileTest, EveryTaskHasALayout) {
  for (const spec::EvaluationRow& row : spec::Evaluations()) {
    EXPECT_EQ(LayoutOf(row.kind).kind, row.kind) << row.name;
  }
}

TEST_F(ItemFileTest, HellaSwag_CleansTheScene) {
  const Question q = First(
      "hellaswag",
      At(Write("h.jsonl",
               R"({"activity_label": "Baking", "ctx_a": "A man bakes. [header] How [title] Mix",)"
               R"( "ctx_b": "then HE", "endings": [" eats  it [step] now.", "b", "c", "d"],)"
               R"( "label": "2", "ind": 7})")));
  EXPECT_EQ(q.context, "Baking: A man bakes. How. Mix Then he");
  EXPECT_EQ(q.choices, (std::vector<std::string>{"eats it now.", "b", "c", "d"}));
  EXPECT_EQ(q.answer, 2U);
}

TEST_F(ItemFileTest, Arc_BothLayoutsAreOne) {
  const Question hub =
      First("arc",
            At(Write("a.jsonl",
                     R"({"question": "Why?", "choices": {"text": ["x", "y"], "label": ["1", "2"]},)"
                     R"( "answerKey": "2"})")));
  const Question ai2 = First(
      "arc", At(Write("b.jsonl",
                      R"({"question": {"stem": "Why?", "choices": [{"text": "x", "label": "1"},)"
                      R"( {"text": "y", "label": "2"}]}, "answerKey": "2"})")));
  for (const Question& q : {hub, ai2}) {
    EXPECT_EQ(q.context, "Question: Why?\nAnswer:");
    EXPECT_EQ(q.choices, (std::vector<std::string>{"x", "y"}));
    EXPECT_EQ(q.answer, 1U);
  }
}

TEST_F(ItemFileTest, PiqaAndLambada_AreAskedAsInTheHarness) {
  const Question piqa = First(
      "piqa",
      At(Write("p.jsonl", R"({"goal": "open it", "sol1": "pull", "sol2": "push", "label": 0})")));
  EXPECT_EQ(piqa.context, "Question: open it\nAnswer:");
  EXPECT_EQ(piqa.answer, 0U);
  const Question word = First("lambada", At(Write("l.jsonl", R"({"text": "he called  for Ann"})")));
  EXPECT_EQ(word.context, "he called  for");
  EXPECT_EQ(word.choices, std::vector<std::string>{"Ann"});
  EXPECT_EQ(First("lambada", At(Write("o.jsonl", R"({"text": "Ann"})"))).context, "");
}

constexpr char kMmlu[] =
    R"({"question": " 1+1? ", "subject": "high_school_math", "choices": ["1", "2", "3", "4"], )"
    R"("answer": 1})";

TEST_F(ItemFileTest, Mmlu_JsonAndCsvGiveOnePrompt) {
  const std::string prompt =
      "The following are multiple choice questions (with answers) about high school math.\n\n"
      "1+1?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:";
  const Question json = First("mmlu", At(Write("m.jsonl", kMmlu)));
  EXPECT_EQ(json.context, prompt);
  EXPECT_EQ(json.answer, 1U);
  const Question csv =
      First("mmlu", At(Write("high_school_math_test.csv", "1+1?,1,\"2\",3,4,B\r\n")));
  EXPECT_EQ(csv.context, prompt);
  EXPECT_EQ(csv.choices, (std::vector<std::string>{"A", "B", "C", "D"}));
  EXPECT_EQ(csv.answer, 1U);
  // A record over two lines: the next one is on line 3.
  const auto two = Read("mmlu", At(Write("s_dev.csv", "\"1\n+1?\",1,2,3,4,B\nx,1,2,3,4,C\n")));
  ASSERT_TRUE(two.ok()) << two.status().ToString();
  ASSERT_EQ(two->size(), 2U);
  EXPECT_TRUE((*two)[1].place.ends_with(":3")) << (*two)[1].place;
}

TEST_F(ItemFileTest, Mmlu_ExamplesAreTheFirstOfTheSubject) {
  ItemFileOptions options = At(Write("m.jsonl", kMmlu));
  options.shots = 1;
  options.examples = Write(
      "dev.jsonl",
      R"({"question": "of another", "subject": "art", "choices": ["a", "b", "c", "d"], "answer": 0})"
      "\n"
      R"({"question": "2+2?", "subject": "high_school_math", "choices": ["4", "5", "6", "7"], )"
      R"("answer": 0})");
  EXPECT_EQ(First("mmlu", options).context,
            "The following are multiple choice questions (with answers) about high school math.\n\n"
            "2+2?\nA. 4\nB. 5\nC. 6\nD. 7\nAnswer: A\n\n"
            "1+1?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:");
  options.shots = 2;
  const auto few = Read("mmlu", options);
  EXPECT_NE(few.status().ToString().find("only 1 examples"), std::string::npos)
      << few.status().ToString();
  EXPECT_FALSE(Read("piqa", options).ok());
}

TEST_F(ItemFileTest, Limit_TakesTheFirstItemsAlone) {
  const std::string path =
      Write("l.jsonl", "{\"text\": \"a b\"}\n\n{\"text\": \"c d\"}\nnot JSON\n");
  const auto two = Read("lambada", At(path, 2));
  ASSERT_TRUE(two.ok()) << two.status().ToString();
  EXPECT_EQ(two->size(), 2U);
  EXPECT_FALSE(Read("lambada", At(path)).ok());
  EXPECT_FALSE(Read("lambada", At(Write("e.jsonl", "\n"))).ok());
  EXPECT_FALSE(Read("lambada", At(Write("l.csv", "a b\n"))).ok());
}

TEST_F(ItemFileTest, HostileItems_AreErrorsWithFileAndLine) {
  ExpectRefused("piqa", "{", "not JSON");
  ExpectRefused("piqa", "[1]", "must be an object");
  ExpectRefused("piqa", R"({"goal": "g", "sol1": "a", "label": 0})", "sol2: missing");
  ExpectRefused("piqa", R"({"goal": 3, "sol1": "a", "sol2": "b", "label": 0})", "goal");
  ExpectRefused("piqa", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})", "choice 2 of 2");
  ExpectRefused("piqa", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": -1})", "label");
  ExpectRefused("piqa", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 0.5})", "label");
  ExpectRefused("piqa", R"({"goal": "g", "sol1": "a", "sol2": "", "label": 0})",
                "choice 1 is empty");
  ExpectRefused("hellaswag",
                R"({"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": ["[x]"],)"
                R"( "label": ""})",
                "label");
  ExpectRefused("hellaswag",
                R"({"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": ["[x]"],)"
                R"( "label": 0})",
                "choice 0 is empty");
  ExpectRefused(
      "hellaswag",
      R"({"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": "d", "label": 0})",
      "endings");
  ExpectRefused(
      "arc", R"({"question": "q", "choices": {"text": ["x"], "label": ["A"]}, "answerKey": "B"})",
      "\"B\" is the label of no choice");
  ExpectRefused("arc", R"({"question": "q", "choices": ["x"], "answerKey": "A"})", "choices");
  ExpectRefused("mmlu", R"({"question": "q", "choices": ["a", "b"], "answer": 0})", "2 choices");
  ExpectRefused("lambada", R"({"text": "ends in a space "})", "empty");
  ExpectRefused("lambada", "{\"text\": \"\xff\"}", "UTF-8");
  const auto csv = Read("mmlu", At(Write("x_test.csv", "q,1,2,3,4,E\n")));
  EXPECT_NE(csv.status().ToString().find("x_test.csv:1: the answer"), std::string::npos)
      << csv.status().ToString();
  EXPECT_FALSE(Read("mmlu", At(Write("y_test.csv", "q,1,2,3,4\n"))).ok());
  EXPECT_FALSE(Read("mmlu", At(Write("z_test.csv", "\"q,1,2,3,4,A\n"))).ok());
}

}  // namespace
}  // namespace hearth::trainer
