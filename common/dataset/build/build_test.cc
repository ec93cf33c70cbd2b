#include "common/dataset/build/build.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/dataset/dataset.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/fault/fault.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::dataset {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class BuildTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ + "/in/sub");
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (int k = 0; k < 30; ++k) {
        text += "document " + std::to_string(i) + " says that line " + std::to_string(k * i) +
                " follows the line before it.\n";
      }
      Write("in/sub/d" + std::to_string(i) + ".txt", text);
    }
    Write("in/a", "first");
    Write("in/copy-of-a", "first");
    Write("in/binary", std::string("\x7f"
                                   "ELF\0\1",
                                   6));
    Write("in/empty", "");
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(root_ + "/" + name, std::ios::binary) << text;
  }

  BuildOptions Options(const std::string& out) {
    BuildOptions options;
    options.inputs = {root_ + "/in"};
    options.tokenizer = "bytes";
    options.out = root_ + "/" + out;
    return options;
  }

  BuildOptions Split(const std::string& out, const std::string& tokenizer) {
    BuildOptions options = Options(out);
    options.tokenizer = tokenizer;
    options.validation_fraction = 0.2;
    return options;
  }

  static std::string Contents(const std::string& path) {
    std::ifstream f(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(f), {});
  }

  // All tokens of a dataset of bytes, decoded.
  std::string TextOf(const std::string& name) {
    const auto data = Dataset::Open(root_ + "/" + name);
    EXPECT_TRUE(data.ok()) << data.status();
    std::vector<int32_t> tokens(static_cast<size_t>((*data)->tokens()));
    EXPECT_TRUE((*data)->Read(0, absl::MakeSpan(tokens), 257).ok());
    return *NewBytesTokenizer()->Decode(tokens);
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
};

TEST_F(BuildTest, Build_Bytes_KeepsTextInPathOrder) {
  const auto report = Build(Options("out"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->files, 61);
  EXPECT_EQ(report->binary, 1);
  EXPECT_EQ(report->duplicates, 1);
  EXPECT_EQ(report->empty, 1);
  ASSERT_EQ(report->outputs.size(), 1u);
  EXPECT_EQ(report->outputs[0].info.tokens, report->bytes + 61);
  const auto data = Dataset::Open(root_ + "/out");
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<int32_t> head(14);
  ASSERT_TRUE((*data)->Read(0, absl::MakeSpan(head), 257).ok());
  EXPECT_EQ(*NewBytesTokenizer()->Decode(head), "firstdocument");
  EXPECT_EQ(head[5], 256);
}

TEST_F(BuildTest, Build_SentencePieceWithSplit_IsDeterministicAndDisjoint) {
  BuildOptions options = Split("one", "sentencepiece:360");
  const auto one = Build(options);
  ASSERT_TRUE(one.ok()) << one.status();
  options.out = root_ + "/two";
  options.name = "one";
  ASSERT_TRUE(Build(options).ok());
  for (const char* file : {"train/shard-00000.bin", "validation/shard-00000.bin",
                           "train/dataset.json", "validation/tokenizer.model"}) {
    EXPECT_EQ(Contents(root_ + "/one/" + file), Contents(root_ + "/two/" + file)) << file;
    EXPECT_FALSE(Contents(root_ + "/one/" + file).empty()) << file;
  }
  ASSERT_EQ(one->outputs.size(), 2u);
  EXPECT_EQ(one->outputs[0].info.documents + one->outputs[1].info.documents, 61);
  EXPECT_GT(one->outputs[1].info.documents, 3);
  EXPECT_LT(one->outputs[1].info.documents, 25);
  EXPECT_EQ(one->outputs[0].info.vocab, 360);
  EXPECT_LT(one->outputs[0].info.tokens + one->outputs[1].info.tokens, one->bytes / 2);

  const auto data = Dataset::Open(one->outputs[1].path);
  ASSERT_TRUE(data.ok()) << data.status();
  auto tokenizer = OpenTokenizer((*data)->info().tokenizer, (*data)->path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> tokens(40);
  ASSERT_TRUE((*data)->Read(0, absl::MakeSpan(tokens), 360).ok());
  EXPECT_THAT(*(*tokenizer)->Decode(tokens), HasSubstr("document"));

  // A checkpoint folder gets it too.
  fs::create_directories(root_ + "/checkpoint");
  ASSERT_TRUE(CopyTokenizer((*data)->path(), root_ + "/checkpoint").ok());
  auto copied = OpenTokenizerIn(root_ + "/checkpoint");
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(*(*copied)->Decode(tokens), *(*tokenizer)->Decode(tokens));
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenTokenizerIn(root_ + "/in").status()));

  // The model file serves for another dataset.
  BuildOptions again = Options("three");
  again.tokenizer = root_ + "/one/train/tokenizer.model";
  const auto three = Build(again);
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(three->outputs[0].info.vocab, 360);
}

TEST_F(BuildTest, Build_TrainedBpe_TravelsWithItsFiles) {
  BuildOptions options = Split("one", "bpe:300");
  const auto one = Build(options);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->outputs[0].info.tokenizer.kind, TokenizerKind::kBpe);
  EXPECT_EQ(one->outputs[0].info.vocab, 300);
  EXPECT_EQ(one->outputs[0].info.eos, 299);
  EXPECT_LT(one->outputs[0].info.tokens + one->outputs[1].info.tokens, one->bytes / 2);
  const std::string train = root_ + "/one/train";
  EXPECT_THAT(Contents(train + "/tokenizer_config.json"), HasSubstr("<|endoftext|>"));

  // Text comes back, document by document.
  const auto data = Dataset::Open(train);
  ASSERT_TRUE(data.ok()) << data.status();
  auto tokenizer = OpenTokenizerIn(train);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> tokens(static_cast<size_t>((*data)->tokens()));
  ASSERT_TRUE((*data)->Read(0, absl::MakeSpan(tokens), 300).ok());
  const std::string text = *(*tokenizer)->Decode(tokens);
  EXPECT_THAT(text, HasSubstr(Contents(root_ + "/in/sub/d9.txt")));

  // A dataset folder is a tokenizer for the next one; the same text gives the same tokens.
  options.tokenizer = train;
  options.out = root_ + "/two";
  options.name = "one";
  ASSERT_TRUE(Build(options).ok());
  EXPECT_EQ(Contents(train + "/shard-00000.bin"), Contents(root_ + "/two/train/shard-00000.bin"));
  EXPECT_EQ(Contents(train + "/dataset.json"), Contents(root_ + "/two/train/dataset.json"));

  // A checkpoint folder gets all files.
  fs::create_directories(root_ + "/checkpoint");
  ASSERT_TRUE(CopyTokenizer(train, root_ + "/checkpoint").ok());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(Contents(root_ + "/checkpoint/" + file), Contents(train + "/" + file)) << file;
  }
  EXPECT_EQ(*(*OpenTokenizerIn(root_ + "/checkpoint"))->Decode(tokens), text);
}

// A Hugging Face folder of another program records nothing for us: its own files say it.
TEST_F(BuildTest, OpenTokenizerIn_AFolderFromElsewhere_ReadsItsFiles) {
  ASSERT_TRUE(Build(Split("bpe", "bpe:300")).ok());
  const std::string folder = root_ + "/elsewhere";
  fs::create_directories(folder);
  fs::copy_file(root_ + "/bpe/train/tokenizer.json", folder + "/tokenizer.json");
  EXPECT_EQ((*OpenTokenizerIn(folder))->eos(), -1);
  fs::copy_file(root_ + "/bpe/train/tokenizer_config.json", folder + "/tokenizer_config.json");
  const auto bpe = OpenTokenizerIn(folder);
  ASSERT_TRUE(bpe.ok()) << bpe.status();
  EXPECT_EQ((*bpe)->eos(), 299);
  const std::vector<int32_t> tokens = *(*bpe)->Encode("document 3");
  EXPECT_EQ(tokens, *(*OpenTokenizerIn(root_ + "/bpe/train"))->Encode("document 3"));
  // One of another kind: the model beside it counts, and without a model the file's error.
  Write("elsewhere/tokenizer.json", R"({"model": {"type": "Unigram"}})");
  EXPECT_THAT(std::string(OpenTokenizerIn(folder).status().message()), HasSubstr("tokenizer.json"));
  ASSERT_TRUE(Build(Split("model", "sentencepiece:360")).ok());
  fs::copy_file(root_ + "/model/train/tokenizer.model", folder + "/tokenizer.model");
  const auto model = OpenTokenizerIn(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->vocab(), 360);
}

TEST_F(BuildTest, Build_GivenJsonWithoutEndToken_AsksForIt) {
  BuildOptions options = Options("one");
  options.tokenizer = "bpe:280";
  ASSERT_TRUE(Build(options).ok());
  fs::remove(root_ + "/one/tokenizer_config.json");
  options.tokenizer = root_ + "/one/tokenizer.json";
  options.out = root_ + "/two";
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("--end-token"));
  options.end_token = "<|nothing|>";
  EXPECT_THAT(std::string(Build(options).status().message()),
              HasSubstr("\"<|nothing|>\" is not one of its added_tokens"));
  options.end_token = "<|endoftext|>";
  ASSERT_TRUE(Build(options).ok());
  EXPECT_EQ(Contents(root_ + "/one/shard-00000.bin"), Contents(root_ + "/two/shard-00000.bin"));
}

TEST_F(BuildTest, Build_JsonLines_EachLineIsADocument) {
  BuildOptions options = Options("out");
  Write("in/web.jsonl",
        "{\"meta\": {\"text\": \"one\"}}\n\n{\"meta\": {\"text\": \"two\"}}\n"
        "{\"meta\": {\"text\": \"one\"}}\n{\"meta\": {\"text\": \"\"}}\n");
  options.inputs = {root_ + "/in/web.jsonl"};
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("web.jsonl: --field"));
  options.field = "meta.text";
  const auto report = Build(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->duplicates, 1);
  EXPECT_EQ(report->empty, 1);
  EXPECT_EQ(report->outputs[0].info.documents, 2);
  const auto data = Dataset::Open(root_ + "/out");
  std::vector<int32_t> tokens(8);
  ASSERT_TRUE((*data)->Read(0, absl::MakeSpan(tokens), 257).ok());
  EXPECT_EQ(*NewBytesTokenizer()->Decode(tokens), "onetwo");
}

TEST_F(BuildTest, Build_FieldOfWhatHasNone_IsRefused) {
  BuildOptions options = Options("out");
  options.field = "text";
  options.inputs = {root_ + "/in/data.json"};
  Write("in/data.json", "{\"text\": \"good\"}\n");
  EXPECT_THAT(std::string(Build(options).status().message()),
              HasSubstr("data.json: --field is for .jsonl and .csv files"));
  options.format = "jsonl";
  EXPECT_TRUE(Build(options).ok());
}

TEST_F(BuildTest, Build_BadJsonLine_NamesFileAndLine) {
  BuildOptions options = Options("out");
  options.field = "text";
  Write("in/bad.jsonl", "{\"text\": \"good\"}\n{\"text\": \n");
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("bad.jsonl:2: byte"));
  Write("in/bad.jsonl", "{\"body\": \"good\"}\n");
  EXPECT_THAT(std::string(Build(options).status().message()),
              HasSubstr("bad.jsonl:1: no field \"text\""));
  Write("in/bad.jsonl", "{\"text\": 3}\n");
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("is not a string"));
  EXPECT_FALSE(fs::exists(root_ + "/out"));
}

TEST_F(BuildTest, Build_AnyNumberOfThreads_SameBytes) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) {
    lines += "{\"text\": \"" + std::string(static_cast<size_t>(i % 4000), 'a') + std::to_string(i) +
             "\"}\n";
  }
  Write("in/many.jsonl", lines);
  BuildOptions options = Options("t1");
  options.field = "text";
  options.tokenizer = "bpe:300";
  options.validation_fraction = 0.1;
  options.name = "same";
  for (const int threads : {1, 2, 5}) {
    options.threads = threads;
    options.out = root_ + "/t" + std::to_string(threads);
    const auto report = Build(options);
    ASSERT_TRUE(report.ok()) << report.status();
    for (const char* file : {"/train/shard-00000.bin", "/train/dataset.json",
                             "/train/tokenizer.json", "/validation/shard-00000.bin"}) {
      EXPECT_EQ(Contents(root_ + "/t1" + file), Contents(options.out + file)) << threads << file;
    }
  }
}

TEST_F(BuildTest, Build_MaxBytes_IsKept) {
  BuildOptions options = Options("out");
  options.max_bytes = 20000;
  const auto report = Build(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_LE(report->bytes, 20000);
  EXPECT_GT(report->bytes, 15000);
  EXPECT_GT(report->oversized, 10);
}

TEST_F(BuildTest, Build_Csv_FieldIsTheDocument) {
  fs::remove_all(root_ + "/in");
  fs::create_directories(root_ + "/in");
  Write("in/a.csv", "id,text\r\n1,one\r\n2,\"two, \"\"2\"\"\"\r\n3,one\r\n4,\r\n");
  BuildOptions options = Options("out");
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("a.csv: --field must say"));
  options.field = "text";
  const auto report = Build(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->duplicates, 1);
  EXPECT_EQ(report->empty, 1);
  EXPECT_EQ(TextOf("out"), "onetwo, \"2\"");
  Write("in/b.csv", "text\ngood\n\"bad\"x\n");
  options.out = root_ + "/bad";
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("b.csv:3: byte 6"));
  EXPECT_FALSE(fs::exists(root_ + "/bad"));
  EXPECT_FALSE(fs::exists(root_ + "/bad.building"));
}

TEST_F(BuildTest, Build_StandardInput_IsReadAsFormatSays) {
  const std::string lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  const auto build = [&](const std::string& text, const std::string& out) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(ends[1]);
    BuildOptions options = Options(out);
    options.inputs = {"-", root_ + "/in/a"};
    options.standard_input = ends[0];
    options.format = "jsonl";
    options.field = "text";
    const absl::Status status = Build(options).status();
    close(ends[0]);
    return status;
  };
  Write("in/a", "{\"text\": \"three\"}");  // its name says no format either
  ASSERT_TRUE(build(lines, "out").ok());
  EXPECT_EQ(TextOf("out"), "threeonetwo");
  EXPECT_THAT(std::string(build(lines + "x", "bad").message()),
              HasSubstr("standard input:3: byte"));
  EXPECT_FALSE(fs::exists(root_ + "/bad.building"));
}

TEST_F(BuildTest, Build_LargeTextFile_IsCutAndRead) {
  fs::remove_all(root_ + "/in");
  fs::create_directories(root_ + "/in");
  std::string text;
  for (int i = 0; text.size() < size_t{3} << 20; ++i) {
    text += "line " + std::to_string(i) + "\n";
  }
  Write("in/large.txt", text);
  BuildOptions options = Options("out");
  options.max_document_bytes = 100'000;
  const auto report = Build(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->lengths.count(), 30);
  EXPECT_LE(report->lengths.longest(), 100'001);
  EXPECT_TRUE(TextOf("out") == text);
}

TEST_F(BuildTest, Build_Fraction_ChoosesByText) {
  BuildOptions options = Options("all");
  const auto all = Build(options);
  ASSERT_TRUE(all.ok()) << all.status();
  options.out = root_ + "/half";
  options.fraction = 0.5;
  const auto half = Build(options);
  ASSERT_TRUE(half.ok()) << half.status();
  const int64_t taken = half->outputs[0].info.documents;
  EXPECT_EQ(taken + half->sampled_out + half->duplicates, 62);
  EXPECT_GT(taken, 15);
  EXPECT_LT(taken, 46);
  // More text beside it changes no choice.
  options.out = root_ + "/again";
  Write("in/z", "one more");
  const auto again = Build(options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(TextOf("again").starts_with(TextOf("half")));
  options.fraction = 0;
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("--fraction"));
}

TEST_F(BuildTest, Build_NearDuplicates_AreDroppedAndNamed) {
  std::string lines;
  std::string page;
  for (int i = 0; i < 200; ++i) {
    page += "word" + std::to_string(i * i) + " ";
  }
  lines += R"({"text": ")" + page + "\"}\n";
  lines += R"({"text": "something else that is not like the page"})"
           "\n";
  lines += R"({"text": ")" + page + " and a footer\"}\n";
  Write("in/pages.jsonl", lines);
  BuildOptions options = Options("out");
  options.inputs = {root_ + "/in/pages.jsonl"};
  options.field = "text";
  options.tokenizer = "bytes";
  auto report = Build(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->near_duplicates, 0) << "not asked for";
  EXPECT_EQ(report->lengths.count(), 3);
  std::string first;
  for (const int threads : {1, 2, 5}) {
    options.threads = threads;
    options.near_duplicates = 0.8;
    options.out = root_ + "/out" + std::to_string(threads);
    report = Build(options);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->near_duplicates, 1);
    EXPECT_EQ(report->lengths.count(), 2);
    EXPECT_THAT(report->near_example.where, HasSubstr("pages.jsonl:3"));
    EXPECT_THAT(report->near_example.earlier, HasSubstr("pages.jsonl:1"));
    EXPECT_GT(report->near_example.similarity, 0.9);
    EXPECT_THAT(ToText(*report), HasSubstr("1 near duplicates\nnear        "));
    const std::string bytes = Contents(options.out + "/shard-00000.bin");
    EXPECT_EQ(first.empty() ? bytes : first, bytes);
    first = bytes;
  }
  options.near_duplicates = 0.3;
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("--near-duplicates"));
}

TEST_F(BuildTest, Build_MaxTokens_EndsBeforeTheDocumentThatDoesNotFit) {
  const auto all = Build(Options("all"));
  ASSERT_TRUE(all.ok()) << all.status();
  BuildOptions options = Options("some");
  options.max_tokens = 20'000;
  const auto some = Build(options);
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_LE(some->outputs[0].info.tokens, 20'000);
  EXPECT_GT(some->outputs[0].info.tokens + all->lengths.longest(), 20'000);
  EXPECT_EQ(some->outputs[0].info.documents + some->over_cap, 61);
  EXPECT_TRUE(TextOf("all").starts_with(TextOf("some")));
  EXPECT_THAT(ToText(*some), HasSubstr(" beyond --max-tokens"));
  options.max_tokens = 2;
  options.out = root_ + "/none";
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("--max-tokens"));
}

TEST_F(BuildTest, Build_KilledAndCalledAgain_SameBytes) {
  BuildOptions options = Split("whole/d", "bpe:300");
  options.save_bytes = 20'000;
  options.shard_tokens = 5000;
  options.threads = 2;
  ASSERT_TRUE(Build(options).ok());
  for (const bool exists : {false, true}) {  // `out`, at the beginning
    for (const char* fault :
         {"dataset.document=crash@4", "dataset.document=crash@31", "dataset.saved=crash@2",
          "dataset.before_publish=crash", "dataset.after_split=crash@1"}) {
      SCOPED_TRACE(fault);
      fs::remove_all(root_ + "/killed");
      fs::create_directories(root_ + (exists ? "/killed/d" : "/killed"));
      options.out = root_ + "/killed/d";
      const bool dies = exists || !std::string_view(fault).starts_with("dataset.after_split");
      if (dies) {
        EXPECT_EXIT(
            {
              fault::Configure(fault).IgnoreError();
              Build(options).IgnoreError();
              _exit(0);
            },
            ::testing::KilledBySignal(SIGKILL), "");
        EXPECT_FALSE(fs::exists(options.out + "/train/dataset.json") &&
                     fs::exists(options.out + "/validation/dataset.json"));
      }
      const auto report = Build(options);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_EQ(report->lengths.count(), 61);
      if (dies && !std::string_view(fault).ends_with("@4")) {
        EXPECT_GT(report->resumed, 5);
      }
      int compared = 0;
      for (const auto& entry : fs::recursive_directory_iterator(root_ + "/whole/d")) {
        const std::string name = entry.path().string().substr(root_.size() + 7);
        if (entry.is_regular_file()) {
          EXPECT_TRUE(Contents(entry.path()) == Contents(root_ + "/killed/" + name)) << name;
          ++compared;
        }
      }
      EXPECT_GT(compared, 8);
      const auto left = fs::recursive_directory_iterator(root_ + "/killed");
      EXPECT_EQ(std::distance(left, fs::recursive_directory_iterator()), compared + 3) << "no more";
    }
  }
}

TEST_F(BuildTest, Build_KilledThenOtherOptions_BeginsAgain) {
  BuildOptions options = Options("out");
  options.save_bytes = 20'000;
  EXPECT_EXIT(
      {
        fault::Configure("dataset.document=crash@31").IgnoreError();
        Build(options).IgnoreError();
        _exit(0);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_FALSE(fs::exists(options.out));
  EXPECT_FALSE(Dataset::Open(options.out + ".building/work-0").ok());
  Write("in/z", "one more");
  const auto report = Build(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->resumed, 0);
  EXPECT_EQ(report->lengths.count(), 62);
  EXPECT_FALSE(fs::exists(options.out + ".building"));
}

TEST_F(BuildTest, Build_FolderOfAnother_IsLeftAlone) {
  fs::create_directories(root_ + "/out.building");
  Write("out.building/mine", "precious");
  EXPECT_TRUE(absl::IsAlreadyExists(Build(Options("out")).status()));
  EXPECT_EQ(Contents(root_ + "/out.building/mine"), "precious");
}

TEST_F(BuildTest, Build_Progress_GoesToTheEnd) {
  BuildOptions options = Options("out");
  std::vector<std::string> phases;
  BuildProgress last;
  options.tokenizer = "bpe:280";
  options.on_progress = [&](const BuildProgress& progress) {
    if (phases.empty() || phases.back() != progress.phase) {
      phases.emplace_back(progress.phase);
    }
    EXPECT_LE(progress.done, progress.total);
    last = progress;
  };
  ASSERT_TRUE(Build(options).ok());
  EXPECT_THAT(phases, ::testing::ElementsAre("reading", "training", "encoding"));
  EXPECT_EQ(last.done, last.total);
  EXPECT_GT(last.total, 60'000);
}

TEST(ToLine, Progress_HasRateAndTimeLeft) {
  EXPECT_EQ(ToLine({"encoding", 1'200'000'000, 2'000'000'000}, absl::Seconds(120)),
            "encoding 60 %, 1.20 of 2.00 GB, 10.0 MB/s, 1:20 left");
  EXPECT_EQ(ToLine({"reading", 0, 0}, absl::ZeroDuration()), "reading 0 %, 0.00 of 0.00 GB");
}

TEST_F(BuildTest, Build_BadOption_NamesIt) {
  BuildOptions options = Options("out");
  options.tokenizer = "sentencepiece:12";
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("--tokenizer"));
  options.tokenizer = "words";
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("\"words\" is not one of"));
  options = Options("out");
  options.validation_fraction = 1;
  EXPECT_THAT(std::string(Build(options).status().message()), HasSubstr("--validation-fraction"));
  options = Options("out");
  options.inputs = {root_ + "/missing"};
  EXPECT_TRUE(absl::IsNotFound(Build(options).status()));
  options = Options("in");
  EXPECT_TRUE(absl::IsAlreadyExists(Build(options).status()));
  EXPECT_FALSE(fs::exists(root_ + "/out"));
}

TEST_F(BuildTest, Build_Fails_LeavesNothingBehind) {
  BuildOptions options = Options("out");
  options.validation_fraction = 1e-9;  // no document falls to the held-out part
  const absl::Status failed = Build(options).status();
  EXPECT_THAT(std::string(failed.message()), HasSubstr(root_ + "/out/validation"));
  for (const fs::directory_entry& entry : fs::directory_iterator(root_)) {
    EXPECT_EQ(entry.path().filename(), "in");
  }
  fs::create_directory(root_ + "/out");
  fs::create_directory(root_ + "/out.tmp");  // somebody else's
  EXPECT_FALSE(Build(options).ok());
  EXPECT_TRUE(fs::is_empty(root_ + "/out")) << "as it was";
  options.validation_fraction = 0.2;
  const auto report = Build(options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->outputs[0].path, root_ + "/out/train");
  EXPECT_TRUE(Dataset::Open(root_ + "/out/train").ok());
  EXPECT_TRUE(Dataset::Open(root_ + "/out/validation").ok());
  EXPECT_TRUE(fs::exists(root_ + "/out.tmp")) << "not ours to remove";
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ + "/out"), fs::directory_iterator()), 2);
  fs::create_directory(root_ + "/disk");
  fs::create_directory_symlink(root_ + "/disk", root_ + "/link");
  options.out = root_ + "/link";
  EXPECT_TRUE(Build(options).ok());
  EXPECT_TRUE(fs::exists(root_ + "/disk/validation/dataset.json")) << "behind the link";
}

}  // namespace
}  // namespace hearth::dataset
