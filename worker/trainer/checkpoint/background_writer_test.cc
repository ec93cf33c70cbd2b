#include "worker/trainer/checkpoint/background_writer.h"

#include <atomic>
#include <cstring>

#include "absl/synchronization/notification.h"
#include "common/formats/codecs.h"
#include "common/io/faulty_env.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/common/weight_folder.h"
#include "worker/trainer/checkpoint/hf_model.h"

namespace hearth::trainer {
namespace {

class BackgroundWriterTest : public ::testing::Test {
 protected:
  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

CheckpointContent Content(const TestModel& model, const std::vector<float>& moment, int64_t step) {
  CheckpointContent content;
  content.meta.step = step;
  content.meta.recorded.mutable_data()->set_sequence_length(16);
  content.meta.model = model.spec;
  content.table = &model.table;
  content.weights = model.pointers();
  content.state = {{"m", TensorDType::kF32, {static_cast<int64_t>(moment.size())}, moment.data()}};
  return content;
}

// Copies nothing before Finish, as a device that is busy.
class CountingReader : public ContentReader {
 public:
  absl::Status Read(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    read += bytes;
    return absl::OkStatus();
  }
  absl::Status Start(void* to, const void* from, size_t bytes) override {
    begun_.push_back({to, from, bytes});
    started += bytes;
    return absl::OkStatus();
  }
  absl::Status AllStarted() override { return absl::OkStatus(); }
  absl::Status Finish() override {
    for (const Copy& copy : begun_) {
      std::memcpy(copy.to, copy.from, copy.bytes);
      finished += copy.bytes;
    }
    return absl::OkStatus();
  }
  size_t started = 0;
  size_t finished = 0;
  std::atomic<size_t> read = 0;

 private:
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  std::vector<Copy> begun_;
};

// A disk that stands still until it is let go, on a machine with little memory if told so.
class SlowEnv : public FaultyEnv {
 public:
  SlowEnv() : FaultyEnv(Env::Real()) {}
  absl::Status Rename(const std::string& from, const std::string& to) override {
    go.WaitForNotification();
    return FaultyEnv::Rename(from, to);
  }
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    if (little_memory && path == "/proc/meminfo") {
      return "MemTotal: 4 kB\nMemAvailable:      2 kB\n";
    }
    return FaultyEnv::ReadFile(path);
  }
  absl::Notification go;
  bool little_memory = false;
};

TEST_F(BackgroundWriterTest, SlowDisk_SubmitReturnsAndTheWriterIsBusy) {
  const TestModel model = MakeTestModel("llama");
  std::vector<float> moment(100, 1.0f);
  SlowEnv env;
  BackgroundWriter writer(env, Clock::Real(), dir_, 0);
  const CheckpointContent content = Content(model, moment, 1);
  writer.Reserve(content);
  EXPECT_TRUE(writer.CanBegin());  // waits for Reserve alone
  ASSERT_TRUE(writer.Submit(content).ok());
  // What a step does meanwhile.
  std::fill(moment.begin(), moment.end(), 2.0f);
  EXPECT_FALSE(writer.CanBegin());
  EXPECT_FALSE(writer.Take(false).has_value());
  env.go.Notify();
  const auto done = writer.Take(true);
  ASSERT_TRUE(done.has_value() && done->ok()) << done->status();
  EXPECT_FALSE((*done)->stood_still);
  EXPECT_TRUE(writer.CanBegin());
  const auto loaded = LoadCheckpoint(Env::Real(), {{(*done)->path, 1, ""}}, model.spec);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(static_cast<const float*>(loaded->state->Find("m")->data)[99], 1.0f);
}

TEST_F(BackgroundWriterTest, NoMemoryForASnapshot_WritesFromTheContentItself) {
  const TestModel model = MakeTestModel("gpt2");  // transposed tensors too
  const std::vector<float> moment(100, 1.0f);
  SlowEnv env;
  env.go.Notify();
  env.little_memory = true;
  BackgroundWriter writer(env, Clock::Real(), dir_, 0);
  CheckpointContent content = Content(model, moment, 1);
  CountingReader reader;
  content.reader = &reader;
  writer.Reserve(content);
  ASSERT_TRUE(writer.Submit(content).ok());
  const auto done = writer.Take(false);
  ASSERT_TRUE(done.has_value() && done->ok()) << done->status();
  EXPECT_TRUE((*done)->stood_still);
  EXPECT_EQ(reader.started, 0U);
  EXPECT_GT(reader.read, 0U);
  // The same bytes as by way of a snapshot.
  BackgroundWriter other(Env::Real(), Clock::Real(), dir_ + "/other", 0);
  content.reader = nullptr;
  content.threads = 1;
  ASSERT_TRUE(other.Submit(content).ok());
  const auto same = other.Take(true);
  ASSERT_TRUE(same.has_value() && same->ok()) << same->status();
  EXPECT_EQ((*same)->manifest_sha256, (*done)->manifest_sha256);
}

TEST_F(BackgroundWriterTest, Submit_StateChangesAfterwards_SnapshotIsWritten) {
  TestModel model = MakeTestModel("llama");
  std::vector<float> moment(100);
  BackgroundWriter writer(Env::Real(), Clock::Real(), dir_, 0);
  EXPECT_FALSE(writer.Take(true).has_value());
  for (int64_t step = 1; step <= 3; ++step) {
    std::fill(moment.begin(), moment.end(), static_cast<float>(step));
    ASSERT_TRUE(writer.Submit(Content(model, moment, step)).ok());
  }
  std::fill(moment.begin(), moment.end(), -1.0f);
  for (int64_t step = 1; step <= 3; ++step) {
    const auto done = writer.Take(true);
    ASSERT_TRUE(done.has_value());
    ASSERT_TRUE(done->ok()) << done->status();
    EXPECT_EQ((*done)->step, step);
    const auto loaded =
        LoadCheckpoint(Env::Real(), {{(*done)->path, step, (*done)->manifest_sha256}}, model.spec);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const TensorView* m = loaded->state->Find("m");
    ASSERT_NE(m, nullptr);
    EXPECT_EQ(static_cast<const float*>(m->data)[99], static_cast<float>(step));
  }
  EXPECT_FALSE(writer.Take(true).has_value());
}

TEST_F(BackgroundWriterTest, Submit_Bf16Weights_AreCopiedWithTheirOwnSize) {
  const TestModel model = MakeTestModel("llama");
  const std::vector<float> moment(100);
  CheckpointContent content = Content(model, moment, 1);
  std::vector<std::vector<uint16_t>> narrow;
  for (const std::vector<float>& weight : model.weights) {
    narrow.emplace_back(weight.size(), formats::EncodeBf16(weight[0]));
  }
  content.weights.clear();
  for (const auto& bits : narrow) {
    content.bf16_weights.push_back(bits.data());
  }
  CountingReader reader;
  content.reader = &reader;
  BackgroundWriter writer(Env::Real(), Clock::Real(), dir_, 0);
  ASSERT_TRUE(writer.Submit(content).ok());
  const auto done = writer.Take(true);
  ASSERT_TRUE(done.has_value() && done->ok()) << done->status();
  size_t expected = moment.size() * sizeof(float);
  for (const auto& bits : narrow) {
    expected += bits.size() * sizeof(uint16_t);
  }
  EXPECT_EQ(reader.started, expected);
  EXPECT_EQ(reader.finished, expected);
  std::vector<std::vector<float>> read;
  std::vector<float*> pointers;
  for (const auto& bits : narrow) {
    read.emplace_back(bits.size());
  }
  for (auto& values : read) {
    pointers.push_back(values.data());
  }
  ASSERT_TRUE(LoadHfWeights(Env::Real(), (*done)->path, model.table, pointers).ok());
  for (size_t k = 0; k < read.size(); ++k) {
    EXPECT_EQ(read[k][0], formats::DecodeBf16(narrow[k][0])) << model.table[k].name;
  }
}

TEST_F(BackgroundWriterTest, Take_TwoInARow_EachHasItsOwnValidationLoss) {
  const TestModel model = MakeTestModel("llama");
  const std::vector<float> moment(100);
  BackgroundWriter writer(Env::Real(), Clock::Real(), dir_, 0);
  for (int64_t step = 1; step <= 2; ++step) {
    CheckpointContent content = Content(model, moment, step);
    content.meta.validation_loss = 0.5 * static_cast<double>(step);
    ASSERT_TRUE(writer.Submit(content).ok());
  }
  for (int64_t step = 1; step <= 2; ++step) {
    const auto done = writer.Take(true);
    ASSERT_TRUE(done.has_value() && done->ok());
    EXPECT_EQ((*done)->step, step);
    EXPECT_EQ((*done)->validation_loss, 0.5 * static_cast<double>(step));
  }
}

TEST_F(BackgroundWriterTest, Take_AfterAFailure_ReturnsIt) {
  FaultyEnv env(Env::Real());
  env.SetDiskSpace(1000);
  const TestModel model = MakeTestModel("llama");
  const std::vector<float> moment(100);
  BackgroundWriter writer(env, Clock::Real(), dir_, 0);
  ASSERT_TRUE(writer.Submit(Content(model, moment, 1)).ok());
  const auto done = writer.Take(true);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(done->status())) << done->status();
}

}  // namespace
}  // namespace hearth::trainer
