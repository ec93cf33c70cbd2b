// SampleCheckpoint over loopback gRPC, with the workers played by the test.
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hearth/v1/generate.grpc.pb.h"
#include "tests/support/coordinator/recorded_checkpoint.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

class SampleTest : public RecordedCheckpointTest {
 protected:
  using Stream = Reading<v1::SampleCheckpointResponse>;

  SampleTest() : texts_(v1::GenerateService::NewStub(channel_)) {}

  // A worker beside the one that runs the job.
  void AddIdle(const std::string& name = "w2") {
    idle_ = std::make_unique<FakeAgent>(coordinator_->listen_address(), name);
    idle_->Await([](const v1::CoordinatorMessage& m) { return m.has_welcome(); });
  }

  static v1::SampleCheckpointRequest Request(const std::string& worker = "",
                                             const std::string& job = "tiny-job") {
    v1::SampleCheckpointRequest request;
    request.set_job_id(job);
    request.set_worker_id(worker);
    request.mutable_text()->set_prompt("Once");
    return request;
  }

  std::unique_ptr<Stream> Sample(const v1::SampleCheckpointRequest& request) {
    auto stream = std::make_unique<Stream>();
    rpc::SetDeadline(stream->context, FakeAgent::kPatience);
    stream->reader = texts_->SampleCheckpoint(&stream->context, request);
    return stream;
  }

  v1::WriteText AwaitQuestion() {
    const v1::CoordinatorMessage message =
        idle_->Await([](const v1::CoordinatorMessage& m) { return m.has_write(); });
    EXPECT_TRUE(message.has_write());
    EXPECT_EQ(message.write().job_id(), "tiny-job");
    EXPECT_EQ(message.write().path(), folder_);
    return message.write();
  }

  void Answer(const v1::WriteText& question, const std::string& text, v1::TextEnd end = {}) {
    v1::AgentMessage message;
    message.mutable_written()->set_request_id(question.request_id());
    message.mutable_written()->set_text(text);
    message.mutable_written()->set_end(end);
    idle_->Write(message);
  }
  void Refuse(const v1::WriteText& question, absl::StatusCode code, const std::string& error) {
    v1::AgentMessage message;
    message.mutable_written()->set_request_id(question.request_id());
    message.mutable_written()->set_code(static_cast<int>(code));
    message.mutable_written()->set_error(error);
    idle_->Write(message);
  }

  std::unique_ptr<v1::GenerateService::Stub> texts_;
  std::unique_ptr<FakeAgent> idle_;
};

TEST_F(SampleTest, Text_IsStreamedFromAnIdleWorker) {
  AddIdle();
  const auto stream = Sample(Request());
  v1::SampleCheckpointResponse response;
  const v1::WriteText question = AwaitQuestion();
  EXPECT_EQ(question.text().prompt(), "Once");
  EXPECT_TRUE(question.text().has_seed());
  ASSERT_TRUE(stream->reader->Read(&response));
  EXPECT_EQ(response.checkpoint().step(), 3);
  EXPECT_EQ(response.worker_id(), "w2");
  EXPECT_EQ(response.seed(), question.text().seed());
  std::string text = response.text();
  Answer(question, " upon");
  while (text.empty() && stream->reader->Read(&response)) {
    text += response.text();
  }
  EXPECT_EQ(text, " upon") << "before the text is complete";
  Answer(question, "");  // only a sign of life
  Answer(question, " a time", v1::TEXT_END_STOP);
  v1::TextEnd end = v1::TEXT_END_UNSPECIFIED;
  while (stream->reader->Read(&response)) {
    text += response.text();
    end = response.end();
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(text, " upon a time");
  EXPECT_EQ(end, v1::TEXT_END_STOP);
}

TEST_F(SampleTest, NoWorker_SaysWhyForEach) {
  const absl::Status busy = Sample(Request())->Finish();
  EXPECT_TRUE(absl::IsFailedPrecondition(busy)) << busy;
  EXPECT_THAT(std::string(busy.message()),
              HasSubstr("no idle worker sees the checkpoint of step 3"));
  EXPECT_THAT(std::string(busy.message()), HasSubstr("w1 runs tiny-job"));
  EXPECT_TRUE(absl::IsNotFound(Sample(Request("nobody"))->Finish()));
  EXPECT_TRUE(absl::IsNotFound(Sample(Request("", "no-job"))->Finish()));
  v1::SampleCheckpointRequest old = Request();
  old.set_step(99);
  EXPECT_TRUE(absl::IsNotFound(Sample(old)->Finish()));
  v1::SampleCheckpointRequest hot = Request();
  hot.mutable_text()->set_temperature(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(Sample(hot)->Finish()));
}

TEST_F(SampleTest, WorkersRefusal_NamesTheWorker_AndIsNotTheCoordinatorsWord) {
  AddIdle();
  constexpr std::pair<absl::StatusCode, absl::StatusCode> kSaid[] = {
      {absl::StatusCode::kInvalidArgument, absl::StatusCode::kInvalidArgument},
      {absl::StatusCode::kUnavailable, absl::StatusCode::kUnavailable},
      {absl::StatusCode::kUnauthenticated, absl::StatusCode::kFailedPrecondition}};
  for (const auto& [code, said] : kSaid) {
    const auto stream = Sample(Request("w2"));
    Refuse(AwaitQuestion(), code, "not so");
    v1::SampleCheckpointResponse response;
    while (stream->reader->Read(&response)) {
    }
    const absl::Status status = stream->Finish();
    EXPECT_EQ(status.code(), said) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker w2: not so"));
  }
}

TEST_F(SampleTest, SecondTextOnOneWorker_IsRefused_AndALeavingClientEndsIts) {
  AddIdle();
  auto first = Sample(Request());
  const v1::WriteText question = AwaitQuestion();
  const absl::Status second = Sample(Request())->Finish();
  EXPECT_TRUE(absl::IsResourceExhausted(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr("1 run from worker w2"));
  first->context.TryCancel();
  first->Finish().IgnoreError();
  const v1::CoordinatorMessage stop =
      idle_->Await([](const v1::CoordinatorMessage& m) { return m.has_stop_writing(); });
  EXPECT_EQ(stop.stop_writing().request_id(), question.request_id());
}

TEST_F(SampleTest, LostWorker_EndsTheText) {
  AddIdle();
  const auto stream = Sample(Request());
  Answer(AwaitQuestion(), " upon");
  v1::SampleCheckpointResponse response;
  ASSERT_TRUE(stream->reader->Read(&response));
  idle_->Leave();
  while (stream->reader->Read(&response)) {
  }
  const absl::Status status = stream->Finish();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker w2: the worker that was asked"));
}

}  // namespace
}  // namespace hearth::coordinator
