#include "worker/daemon/supervise/sampling.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/io/env.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::worker {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Keeps the answers; takes none while it is full.
class Recorder : public TextListener {
 public:
  bool OnText(v1::AgentMessage answer) override {
    absl::MutexLock lock(&mu_);
    if (full_) {
      ++refused_;
      return false;
    }
    answers_.push_back(answer.written());
    return true;
  }
  void OnTextOver() override {
    absl::MutexLock lock(&mu_);
    ++over_;
  }
  void SetFull(bool full) {
    absl::MutexLock lock(&mu_);
    full_ = full;
  }
  // Waits until `count` texts are over.
  std::vector<v1::WrittenText> AwaitOver(int count = 1) {
    const auto reached = [&] {
      mu_.AssertHeld();
      return over_ >= count;
    };
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience));
    return answers_;
  }
  void AwaitText(const std::string& text) {
    const auto reached = [&] {
      mu_.AssertHeld();
      return TextOf(answers_).find(text) != std::string::npos;
    };
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience));
  }
  void AwaitRefused() {
    const auto reached = [&] {
      mu_.AssertHeld();
      return refused_ > 0;
    };
    absl::MutexLock lock(&mu_);
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience));
  }

  static std::string TextOf(const std::vector<v1::WrittenText>& answers) {
    std::string text;
    for (const v1::WrittenText& answer : answers) {
      text += answer.text();
    }
    return text;
  }

 private:
  absl::Mutex mu_;
  bool full_ = false;
  int refused_ = 0;
  int over_ = 0;
  std::vector<v1::WrittenText> answers_;
};

class SamplingTest : public testing::Test {
 protected:
  SamplingTest() : root_(*CheckpointRoot::Open(dir_.path())) {
    folder_ = root_.path() + "/job/e1/step-00000003";
    std::filesystem::create_directories(folder_);
    EXPECT_TRUE(Env::Real().WriteFileAtomically(folder_ + "/config.json", "{}").ok());
    Make({});
  }

  void Make(Sampling::Options options) {
    options.program.program = HEARTH_FAKE_TRAINER;
    options.program.arguments = {"write-text"};
    options.piece_period = absl::Milliseconds(1);
    sampling_.reset();
    sampling_ = *Sampling::Create(options, root_, Clock::Real(), recorder_);
  }

  void Write(const std::string& script) {
    v1::WriteText request;
    request.set_request_id(5);
    request.set_job_id("job");
    request.set_path(folder_);
    request.mutable_text()->set_prompt(script);
    sampling_->Write(request);
  }

  TempDir dir_;
  CheckpointRoot root_;
  std::string folder_;
  Recorder recorder_;
  std::unique_ptr<Sampling> sampling_;
};

TEST_F(SamplingTest, Text_ComesInOrder_AndItsEndLast) {
  Write("write:once ;write:upon;print:noise;write: a time;end");
  const std::vector<v1::WrittenText> answers = recorder_.AwaitOver();
  EXPECT_EQ(Recorder::TextOf(answers), "once upon a time");
  for (const v1::WrittenText& answer : answers) {
    EXPECT_EQ(answer.request_id(), 5);
    EXPECT_EQ(answer.code(), 0);
    EXPECT_EQ(answer.end() == v1::TEXT_END_TOKEN, &answer == &answers.back());
  }
  // And another one.
  Write("write:again;end");
  EXPECT_EQ(Recorder::TextOf(recorder_.AwaitOver(2)), "once upon a timeagain");
}

TEST_F(SamplingTest, Failures_AreTheLastAnswer) {
  auto last = [this, count = 0](const std::string& script) mutable {
    Write(script);
    return recorder_.AwaitOver(++count).back();
  };
  const v1::WrittenText said = last("write:x;refuse:3");
  EXPECT_EQ(said.code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(said.error(), "not so");
  EXPECT_THAT(last("eprint:out of memory\n;exit:1").error(), HasSubstr("ended: out of memory"));
  EXPECT_THAT(last("crash").error(), HasSubstr("the model's process ended"));
  EXPECT_NE(last("garbage;hang").code(), 0);
  folder_ += "/..";
  EXPECT_EQ(last("end").code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  folder_ = root_.path() + "/job/e1/step-00000004";
  EXPECT_EQ(last("end").code(), static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(SamplingTest, Stop_KillsAllOfIt_AndIsTheLastAnswerIfItSaysWhy) {
  Write("ignore_term;escapee;write:here;hang");
  recorder_.AwaitText("here");
  sampling_->Stop("a task came");
  const v1::WrittenText last = recorder_.AwaitOver().back();
  EXPECT_EQ(last.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(last.error(), "a task came");
  Write("write:there;hang");
  recorder_.AwaitText("there");
  sampling_->Stop("");
  EXPECT_EQ(recorder_.AwaitOver(2).back().code(), 0) << "nobody waits for it";
  Write("write:gone;hang");
  recorder_.AwaitText("gone");
  sampling_.reset();  // does not wait for the process to end by itself
}

TEST_F(SamplingTest, SilentProcess_IsEnded) {
  Sampling::Options options;
  options.silence = absl::Milliseconds(50);
  options.alive_period = absl::Milliseconds(10);
  Make(options);
  Write("hang");
  const std::vector<v1::WrittenText> answers = recorder_.AwaitOver();
  EXPECT_THAT(answers.back().error(), HasSubstr("no sign of life"));
}

TEST_F(SamplingTest, FullListener_LosesNothing) {
  recorder_.SetFull(true);
  Write("write:once;end");
  recorder_.AwaitRefused();
  recorder_.SetFull(false);
  const std::vector<v1::WrittenText> answers = recorder_.AwaitOver();
  EXPECT_EQ(Recorder::TextOf(answers), "once");
  EXPECT_EQ(answers.back().end(), v1::TEXT_END_TOKEN);
}

}  // namespace
}  // namespace hearth::worker
