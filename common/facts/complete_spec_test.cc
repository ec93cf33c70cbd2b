#include "common/facts/complete_spec.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/dataset/dataset_writer.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/spec/resolve/resolve.h"
#include "common/tokenizer/tokenizer_kind.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::facts {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CompleteSpecTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return (dir_ / name).string(); }

  std::string WriteDataset(const std::string& name, const std::string& tokenizer) {
    dataset::DatasetWriter::Options options;
    options.info.name = name;
    options.info.split = "all";
    const tokenizer::TokenizerKindRow& kind = *tokenizer::FindTokenizerKind(tokenizer);
    options.info.tokenizer = {kind.kind, std::string(kind.file), 257, 256};
    options.info.vocab = 257;
    options.info.eos = 256;
    if (!kind.file.empty()) {
      options.tokenizer_files[std::string(kind.file)] = "a model";
    }
    auto writer = dataset::DatasetWriter::Create(Path(name), options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->AddDocument(std::vector<int32_t>(500, 7)).ok());
    EXPECT_TRUE((*writer)->Finish().ok());
    return Path(name);
  }

  std::string WriteModel(const std::string& name, int vocab) {
    fs::create_directories(dir_ / name);
    std::ofstream(dir_ / name / "config.json")
        << R"({"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
      "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 128,
      "hidden_act": "silu", "tie_word_embeddings": true, "vocab_size": )"
        << vocab << "}";
    return Path(name);
  }

  static v1::JobSpec Resolved(const std::vector<std::string>& data, const std::string& from) {
    v1::JobSpec spec;
    spec.set_name("job");
    for (const std::string& path : data) {
      spec.mutable_data()->add_train()->set_path(path);
    }
    spec.mutable_data()->set_sequence_length(64);
    spec.mutable_train()->set_steps(10);
    if (from.empty()) {
      spec.mutable_model()->set_preset("hearth-nano");
    } else {
      spec.mutable_model()->set_from(from);
    }
    std::vector<spec::FieldViolation> violations;
    spec::Resolve(spec, violations);
    EXPECT_TRUE(spec::ViolationsToStatus(violations).ok());
    return spec;
  }

  static std::string Said(const absl::Status& status) { return std::string(status.message()); }

  const TempDir temp_;
  const fs::path dir_ = temp_.path();
};

TEST_F(CompleteSpecTest, QwenFolderAndBytes_AreRefusedUnlessAllowed) {
  const std::string data = WriteDataset("bytes", "bytes");
  const std::string from = WriteModel("qwen", 151936);
  const v1::JobSpec spec = Resolved({data}, from);
  v1::JobSpec completed = spec;
  const std::string error = Said(CompleteSpec(completed, Env::Real()));
  EXPECT_THAT(error, AllOf(HasSubstr("data.train[0].path"), HasSubstr(data), HasSubstr(from),
                           HasSubstr("bytes (257 tokens)"), HasSubstr("151936"),
                           HasSubstr("data.allow_other_tokenizer")));
  EXPECT_EQ(Said(CheckWhatIsHere(spec, Env::Real())), error);
  completed = spec;
  EXPECT_TRUE(CompleteSpec(completed, Env::Real(), Tokenizers::kAsTheyAre).ok()) << "a resume";
  completed = spec;
  completed.mutable_data()->set_allow_other_tokenizer(true);
  EXPECT_TRUE(CompleteSpec(completed, Env::Real()).ok());
  EXPECT_EQ(completed.model().vocab(), 151936);
}

TEST_F(CompleteSpecTest, CheckpointWithItsTokenizer_TakesItsOwnData) {
  const std::string bytes = WriteDataset("bytes", "bytes");
  const std::string pieces = WriteDataset("pieces", "sentencepiece");
  const std::string from = WriteModel("checkpoint", 320);
  ASSERT_TRUE(dataset::CopyTokenizer(pieces, from).ok());
  v1::JobSpec spec = Resolved({pieces}, from);
  EXPECT_TRUE(CompleteSpec(spec, Env::Real()).ok());
  v1::JobSpec other = Resolved({pieces, bytes}, from);
  EXPECT_THAT(Said(CompleteSpec(other, Env::Real())),
              AllOf(HasSubstr("data.train[1].path"), HasSubstr("sentencepiece, tokenizer.model"),
                    HasSubstr("--tokenizer " + from + "/tokenizer.model")));
}

TEST_F(CompleteSpecTest, DatasetsOfTwoTokenizers_AreRefused) {
  const std::string bytes = WriteDataset("bytes", "bytes");
  const std::string pieces = WriteDataset("pieces", "sentencepiece");
  v1::JobSpec spec = Resolved({bytes, pieces}, "");
  EXPECT_THAT(Said(CompleteSpec(spec, Env::Real())),
              AllOf(HasSubstr("data.train[1].path"), HasSubstr("data.train[0].path " + bytes)));
}

TEST_F(CompleteSpecTest, WhatIsNotHere_IsNotChecked) {
  const std::string bytes = WriteDataset("bytes", "bytes");
  const std::string pieces = WriteDataset("pieces", "sentencepiece");
  EXPECT_TRUE(CheckWhatIsHere(Resolved({bytes, "/elsewhere"}, "/nowhere"), Env::Real()).ok());
  EXPECT_TRUE(CheckWhatIsHere(Resolved({bytes, Path("")}, ""), Env::Real()).ok())
      << "a folder of the same name that is no dataset";
  EXPECT_THAT(Said(CheckWhatIsHere(Resolved({bytes, "/elsewhere", pieces}, ""), Env::Real())),
              HasSubstr("data.train[2].path"));
}

}  // namespace
}  // namespace hearth::facts
