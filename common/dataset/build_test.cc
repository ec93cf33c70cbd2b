#include "common/dataset/build.h"

#include <filesystem>
#include <fstream>

#include "common/dataset/dataset.h"
#include "common/dataset/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::dataset {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class BuildTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/build_test_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
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
  void TearDown() override { fs::remove_all(root_); }

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

  static std::string Contents(const std::string& path) {
    std::ifstream f(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(f), {});
  }

  std::string root_;
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
  BuildOptions options = Options("one");
  options.tokenizer = "sentencepiece:360";
  options.validation_fraction = 0.2;
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
  BuildOptions options = Options("one");
  options.tokenizer = "bpe:300";
  options.validation_fraction = 0.2;
  const auto one = Build(options);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->outputs[0].info.tokenizer.kind, "bpe");
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
