#include "worker/daemon/disk/disk_worker.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "common/io/rooted_env.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DiskWorkerTest : public ::testing::Test {
 protected:
  std::string WriteRawBin(int tokens) {
    const std::string path = (dir_ / "raw.bin").string();
    const std::vector<uint16_t> data(tokens, 7);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data.data()), std::streamsize{2} * tokens);
    return path;
  }

  static v1::PathInfo InspectPath(const std::string& path, Env& env = Env::Real()) {
    facts::TokenizerReader tokenizers(env);
    return worker::InspectPath(path, env, tokenizers);
  }

  const TempDir temp_;
  const fs::path dir_ = temp_.path();
};

TEST_F(DiskWorkerTest, InspectPath_RawBin_CountsTokens) {
  const v1::PathInfo info = InspectPath(WriteRawBin(1000));
  EXPECT_EQ(info.error(), "");
  EXPECT_EQ(info.kind(), "raw_bin");
  EXPECT_EQ(info.tokens(), 1000);
  EXPECT_EQ(info.vocab(), 0);
}

TEST_F(DiskWorkerTest, InspectPath_Missing_SaysSo) {
  const std::string path = (dir_ / "nowhere").string();
  EXPECT_THAT(InspectPath(path).error(), HasSubstr(path));
}

TEST_F(DiskWorkerTest, InspectPath_BeyondTheRoots_OneAnswerWhetherItExists) {
  RootedEnv bounded(Env::Real(), {{(dir_ / "data").string() + "/"}, {}, "worker w1"});
  fs::create_directories(dir_ / "data");
  fs::create_directories(dir_ / "data-of-others");
  std::ofstream(dir_ / "data-of-others/there.bin", std::ios::binary) << "abcd";
  fs::create_symlink(dir_ / "data-of-others", dir_ / "data/link");
  std::set<std::string> errors;
  for (const char* path :
       {"data-of-others/there.bin", "data-of-others/absent.bin", "data/link/there.bin",
        "data/link/absent.bin", "data/../data-of-others/there.bin", "absent"}) {
    const v1::PathInfo info = InspectPath((dir_ / path).string(), bounded);
    errors.insert(absl::StrReplaceAll(info.error(), {{(dir_ / path).string(), "PATH"}}));
    EXPECT_EQ(info.kind(), "") << path;
  }
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_THAT(*errors.begin(), HasSubstr("PATH lies outside of the folders that worker w1 reads"));
  fs::rename(WriteRawBin(10), dir_ / "data/raw.bin");
  EXPECT_EQ(InspectPath((dir_ / "data/raw.bin").string(), bounded).error(), "");
  EXPECT_THAT(InspectPath((dir_ / "data/absent.bin").string(), bounded).error(),
              HasSubstr("no such file"));
}

TEST_F(DiskWorkerTest, InspectPath_NotADataset_SaysWhy) {
  EXPECT_NE(InspectPath(dir_.string()).error(), "");
}

TEST_F(DiskWorkerTest, InspectPath_ModelFolder_GivesShapeAndMissesWeights) {
  std::ofstream(dir_ / "config.json") << R"({"model_type": "llama", "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
    "vocab_size": 320, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 128,
    "hidden_act": "silu", "tie_word_embeddings": true})";
  v1::PathInfo info = InspectPath(dir_.string());
  EXPECT_EQ(info.kind(), "model");
  EXPECT_EQ(info.vocab(), 320);
  EXPECT_EQ(info.model().layers(), 2);
  EXPECT_THAT(info.error(), HasSubstr("no model.safetensors"));
  std::ofstream(dir_ / "model.safetensors") << "x";
  info = InspectPath(dir_.string());
  EXPECT_EQ(info.error(), "");
}

TEST_F(DiskWorkerTest, Requests_InspectAndDelete_AreDoneInOrder) {
  const auto root = CheckpointRoot::Open((dir_ / "root").string());
  ASSERT_TRUE(root.ok());
  const fs::path step = dir_ / "root/job-1/e1/step-00000001";
  fs::create_directories(step);
  absl::Mutex mu;
  std::vector<v1::AgentMessage> answers;
  const auto answered = [&] { return !answers.empty(); };
  DiskWorker disk(*root, Env::Real(), [&](v1::AgentMessage message) {
    absl::MutexLock lock(&mu);
    answers.push_back(std::move(message));
  });
  v1::DeleteCheckpointFolder remove;
  remove.set_job_id("job-1");
  remove.set_path(step.string());
  disk.Delete(remove);
  v1::InspectPaths inspect;
  inspect.set_request_id(42);
  inspect.add_paths(WriteRawBin(10));
  inspect.add_paths(step.string());
  disk.Inspect(inspect);
  absl::MutexLock lock(&mu);
  ASSERT_TRUE(mu.AwaitWithTimeout(absl::Condition(&answered), absl::Seconds(30)));
  const v1::InspectPathsResult& result = answers[0].inspect_result();
  EXPECT_EQ(result.request_id(), 42);
  ASSERT_EQ(result.paths_size(), 2);
  EXPECT_EQ(result.paths(0).tokens(), 10);
  EXPECT_NE(result.paths(1).error(), "");
  EXPECT_FALSE(fs::exists(step));
}

TEST_F(DiskWorkerTest, Read_AnswersWithBytesOrWhyNot) {
  const auto root = CheckpointRoot::Open((dir_ / "root").string());
  ASSERT_TRUE(root.ok());
  const fs::path step = dir_ / "root/job-1/e1/step-00000001";
  fs::create_directories(step);
  std::ofstream(step / "MANIFEST.json") << std::string(300 << 10, 'm');
  absl::Mutex mu;
  std::vector<v1::CheckpointFileBytes> answers;
  const auto answered = [&] { return answers.size() == 2; };
  DiskWorker disk(*root, Env::Real(), [&](const v1::AgentMessage& message) {
    absl::MutexLock lock(&mu);
    answers.push_back(message.checkpoint_bytes());
  });
  v1::ReadCheckpointFile read;
  read.set_request_id(7);
  read.set_job_id("job-1");
  read.set_path(step.string());
  read.set_file("MANIFEST.json");
  read.set_max_bytes(1 << 30);
  disk.Read(read);
  read.set_request_id(8);
  read.set_file("../x");
  disk.Read(read);
  absl::MutexLock lock(&mu);
  ASSERT_TRUE(mu.AwaitWithTimeout(absl::Condition(&answered), absl::Seconds(30)));
  EXPECT_EQ(answers[0].request_id(), 7);
  EXPECT_EQ(answers[0].code(), 0);
  // However much was asked for.
  EXPECT_TRUE(answers[0].data() == std::string(256 << 10, 'm'));
  EXPECT_EQ(answers[0].file_bytes(), 300 << 10);
  EXPECT_EQ(answers[1].request_id(), 8);
  EXPECT_EQ(answers[1].code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(answers[1].error(), HasSubstr("../x"));
}

}  // namespace
}  // namespace hearth::worker
