// From chat data to datasets with a mask.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/dataset/build/build.h"
#include "common/dataset/dataset.h"
#include "common/dataset/report/decode.h"
#include "common/dataset/tokenize/chat_tokens.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/fault/fault.h"
#include "common/tokenizer/train.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/common/temp_dir.h"

namespace hearth::dataset {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string Line(const std::string& question, const std::string& answer) {
  const Json user = {{"role", "user"}, {"content", question}};
  const Json assistant = {{"role", "assistant"}, {"content", answer}};
  return Json({{"messages", {user, assistant, user, assistant}}}).dump() + "\n";
}

class ChatDatasetTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_ + "/tokenizer"); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(root_ + "/" + name, std::ios::binary) << text;
  }
  std::string Contents(const std::string& name) {
    std::ifstream file(root_ + "/" + name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  // A byte-level BPE that has the marks of ChatML as added tokens, of which <|im_end|> ends
  // documents too, and ChatML as its template.
  void WriteTokenizer() {
    tokenizer::PieceCounts counts;
    counts.Add("what is the answer, what is the question\n\n\n\n what is it\n\n");
    constexpr int kVocab = 267;  // as many as the text gives
    const auto trained = tokenizer::TrainBpe(counts, kVocab);
    ASSERT_TRUE(trained.ok()) << trained.status();
    Json file = Json::parse(*trained);
    for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
      Json added = file["added_tokens"][0];
      added["id"] = kVocab - 1 + file["added_tokens"].size();
      added["content"] = token;
      file["added_tokens"].push_back(added);
    }
    Write("tokenizer/tokenizer.json", file.dump());
    const std::string text(chat::NamedTemplates()[0].text);
    Write("tokenizer/tokenizer_config.json",
          Json({{"eos_token", "<|im_end|>"}, {"chat_template", text}}).dump());
  }

  BuildOptions Options(const std::string& tokenizer) {
    BuildOptions options;
    options.inputs = {root_ + "/chat.jsonl"};
    options.chat = "auto";
    options.tokenizer = tokenizer;
    options.out = root_ + "/out";
    return options;
  }
  BuildOptions BpeOptions() {
    WriteTokenizer();
    return Options(root_ + "/tokenizer");
  }

  // Its documents with the answers in brackets.
  std::string Marked(const std::string& path, int64_t documents) {
    DecodeOptions options;
    options.parts = documents;
    const auto parts = DecodeParts(path, options);
    EXPECT_TRUE(parts.ok()) << parts.status();
    std::string text;
    for (const DecodedPart& part : *parts) {
      for (const DecodedPart::Run& run : part.runs) {
        absl::StrAppend(&text, run.counts ? "[" : "", run.text, run.counts ? "]" : "");
      }
    }
    return text;
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
};

constexpr char kMarked[] =
    "<|im_start|>user\nwhat is it<|im_end|>\n<|im_start|>assistant\n[the answer<|im_end|>]\n"
    "<|im_start|>user\nwhat is it<|im_end|>\n<|im_start|>assistant\n[the answer<|im_end|>]\n";

TEST_F(ChatDatasetTest, Build_AnyTokenizer_CountsAnswersAndTheirEndTokens) {
  Write("chat.jsonl", Line("what is it", "the answer"));
  WriteTokenizer();
  for (const std::string& tokenizer : {std::string("bytes"), root_ + "/tokenizer"}) {
    BuildOptions options = Options(tokenizer);
    options.chat_template = tokenizer == "bytes" ? "chatml" : "";
    fs::remove_all(options.out);
    const auto report = Build(options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(Marked(options.out, 1), kMarked) << tokenizer;
    const DatasetInfo& info = report->outputs[0].info;
    EXPECT_EQ(info.documents, 1);
    EXPECT_THAT(ToText(*report), HasSubstr(absl::StrCat(info.loss_tokens, " tokens count")));
    const auto summary = Inspect(options.out, true);
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_TRUE(summary->problems.empty()) << ToText(*summary);
    EXPECT_THAT(ToText(*summary), HasSubstr(absl::StrCat("loss mask   ", info.loss_tokens)));
  }
}

TEST_F(ChatDatasetTest, Build_TokensAndMask_AreThoseOfTheWholeText) {
  Write("chat.jsonl", Line("what is it", "the answer") + Line("b", "c"));
  ASSERT_TRUE(Build(BpeOptions()).ok());
  const auto data = Dataset::Open(root_ + "/out");
  ASSERT_TRUE(data.ok()) << data.status();
  const auto tokenizer = OpenTokenizerIn(root_ + "/out");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto chat = chat::ChatTemplate::Open(root_ + "/out");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto text = chat->Render({{"user", "what is it"},
                                  {"assistant", "the answer"},
                                  {"user", "what is it"},
                                  {"assistant", "the answer"}},
                                 false);
  const std::vector<int32_t> whole = *(*tokenizer)->Encode(*text);
  std::vector<int32_t> tokens(whole.size());
  ASSERT_TRUE((*data)->Read(0, absl::MakeSpan(tokens), 0).ok());
  EXPECT_EQ(tokens, whole);
  // <|im_end|> is the tokenizer's end token; the conversation goes on behind it.
  std::vector<int64_t> ends;
  (*data)->FindEnds(0, (*data)->tokens(), ends);
  EXPECT_EQ(ends, (std::vector<int64_t>{static_cast<int64_t>(whole.size()), (*data)->tokens()}));
  EXPECT_GT(std::count(whole.begin(), whole.end(), (*data)->info().eos), 3);
}

TEST_F(ChatDatasetTest, Build_TokenAcrossTheBorder_Counts) {
  Write("chat.jsonl", Line("a", "\nb"));
  ASSERT_TRUE(Build(BpeOptions()).ok());
  // "\n\n" is one token of the line end before the answer and the one it begins with.
  EXPECT_THAT(Marked(root_ + "/out", 1), HasSubstr("assistant[\n\nb<|im_end|>]\n"));
}

TEST_F(ChatDatasetTest, Build_Template_TravelsWithTheDataset) {
  Write("chat.jsonl", Line("a", "b"));
  BuildOptions options = BpeOptions();
  Write("tokenizer/chat_template.jinja",
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}");
  ASSERT_TRUE(Build(options).ok());
  EXPECT_EQ(Marked(options.out, 1),
            "user: a<|im_end|>assistant: [b<|im_end|>]user: a<|im_end|>assistant: [b<|im_end|>]");
  fs::create_directories(root_ + "/checkpoint");
  ASSERT_TRUE(CopyTokenizer(options.out, root_ + "/checkpoint").ok());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    EXPECT_EQ(Contents(absl::StrCat("checkpoint/", file)),
              Contents(absl::StrCat("tokenizer/", file)))
        << file;
  }
}

TEST_F(ChatDatasetTest, Build_Killed_GoesOnToTheSameBytes) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines += Line(absl::StrCat("question ", i), absl::StrCat("answer ", i * i));
  }
  Write("chat.jsonl", lines);
  BuildOptions options = BpeOptions();
  options.save_bytes = 1000;
  options.shard_tokens = 700;
  options.threads = 2;
  options.name = "d";
  options.validation_fraction = 0.2;
  ASSERT_TRUE(Build(options).ok());
  options.out = root_ + "/killed";
  EXPECT_EXIT(
      {
        fault::Configure("dataset.document=crash@31").IgnoreError();
        Build(options).IgnoreError();
        _exit(0);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  const auto report = Build(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->resumed, 5);
  for (const char* file : {"train/dataset.json", "train/shard-00000.bin", "train/shard-00001.mask",
                           "validation/shard-00000.mask", "train/tokenizer_config.json"}) {
    EXPECT_EQ(Contents(absl::StrCat("out/", file)), Contents(absl::StrCat("killed/", file)))
        << file;
    EXPECT_FALSE(Contents(absl::StrCat("out/", file)).empty()) << file;
  }
}

TEST_F(ChatDatasetTest, Build_WrongOptionsAndLines_AreRefused) {
  const auto error = [&](const BuildOptions& options) {
    const std::string text = Build(options).status().ToString();
    EXPECT_FALSE(fs::exists(options.out)) << text;
    return text;
  };
  Write("chat.jsonl", Line("a", "b") + R"({"messages": [{"role": "tool", "content": ""}]})");
  EXPECT_THAT(error(BpeOptions()), HasSubstr("chat.jsonl:2: message 1: \"tool\" is not one of"));
  Write("chat.jsonl", Line("a", "b"));
  EXPECT_THAT(error(Options("bytes")), HasSubstr("bytes has no chat template; --chat-template"));
  EXPECT_THAT(error(Options("bpe:300")), HasSubstr("the tokenizer of the model"));
  BuildOptions options = BpeOptions();
  options.field = "text";
  EXPECT_THAT(error(options), HasSubstr("--field: acts only without --chat"));
  options = BpeOptions();
  options.chat = "openai";
  EXPECT_THAT(error(options), HasSubstr("--chat: \"openai\" is not one of auto, messages"));
  options = BpeOptions();
  options.chat.clear();
  options.chat_template = "chatml";
  EXPECT_THAT(error(options), HasSubstr("--chat-template: acts only with --chat"));
  Write("raises.jinja", "a\n{{ raise_exception('never') }}");
  options = BpeOptions();
  options.chat_template = root_ + "/raises.jinja";
  EXPECT_THAT(error(options), HasSubstr("chat.jsonl:1: "));
  EXPECT_THAT(error(options), HasSubstr("chat_template.jinja:2:4: the template says: never"));
  Write("chat.txt", "text");
  options = BpeOptions();
  options.inputs = {root_ + "/chat.txt"};
  EXPECT_THAT(error(options), HasSubstr("chat.txt: --chat reads .jsonl files"));
}

TEST_F(ChatDatasetTest, Open_DamagedMask_IsRefusedOrFound) {
  Write("chat.jsonl", Line("a", "b"));
  ASSERT_TRUE(Build(BpeOptions()).ok());
  const std::string mask = Contents("out/shard-00000.mask");
  std::string changed = mask;
  changed[3] = '\7';
  Write("out/shard-00000.mask", changed);
  EXPECT_EQ(Inspect(root_ + "/out", true)->problems.size(), 2u);
  Write("out/shard-00000.mask", mask.substr(1));
  EXPECT_EQ(Dataset::Open(root_ + "/out").status().code(), absl::StatusCode::kDataLoss);
  fs::remove(root_ + "/out/shard-00000.mask");
  EXPECT_EQ(Dataset::Open(root_ + "/out").status().code(), absl::StatusCode::kNotFound);
}

// Encodes as if bytes were not known, so that the text is cut at the answers.
class SecretiveTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) override {
    std::vector<int32_t> tokens;  // two line ends are one token
    for (size_t i = 0; i < text.size(); ++i) {
      const bool two = text.substr(i, 2) == "\n\n";
      tokens.push_back(two ? 256 : static_cast<uint8_t>(text[i]));
      i += two ? 1 : 0;
    }
    return tokens;
  }
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t>) override { return std::string(); }
  int32_t vocab() const override { return 257; }
  int32_t eos() const override { return -1; }
  TokenizerInfo info() const override { return {}; }
};

TEST_F(ChatDatasetTest, TokenizeChat_BytesUnknown_CutsTheTextOrRefuses) {
  const auto chat = chat::ChatTemplate::FromFiles(
      {{"chat_template.jinja", std::string(chat::NamedTemplates()[0].text)}}, "");
  SecretiveTokenizer tokenizer;
  const auto good = TokenizeChat(*chat, tokenizer, {{"user", "a"}, {"assistant", "b"}});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(std::count(good->mask.begin(), good->mask.end(), '\1'), 11);  // b<|im_end|>
  EXPECT_EQ(good->mask.back(), '\2');
  const auto bad = TokenizeChat(*chat, tokenizer, {{"user", "a"}, {"assistant", "\nb"}});
  EXPECT_THAT(bad.status().ToString(), HasSubstr("belongs to an answer and to the text around it"));
}

}  // namespace
}  // namespace hearth::dataset
