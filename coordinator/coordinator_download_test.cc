// DownloadCheckpoint over loopback gRPC, with the worker played by the test.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/service/streams/download_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/recorded_checkpoint.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPiece = 256 << 10;

class DownloadTest : public RecordedCheckpointTest {
 protected:
  using Stream = Reading<v1::DownloadCheckpointResponse>;

  std::unique_ptr<Stream> Download(const std::string& file,
                                   int64_t offset = 0,
                                   int64_t step = 0,
                                   const std::string& job_id = "tiny-job") {
    auto stream = std::make_unique<Stream>();
    v1::DownloadCheckpointRequest request;
    request.set_job_id(job_id);
    request.set_file(file);
    request.set_offset(offset);
    request.set_step(step);
    rpc::SetDeadline(stream->context, FakeAgent::kPatience);
    stream->reader = jobs_->DownloadCheckpoint(&stream->context, request);
    return stream;
  }

  v1::ReadCheckpointFile AwaitQuestion() {
    const v1::CoordinatorMessage message =
        agent_->Await([](const v1::CoordinatorMessage& m) { return m.has_read_checkpoint(); });
    EXPECT_TRUE(message.has_read_checkpoint());
    EXPECT_EQ(message.read_checkpoint().job_id(), "tiny-job");
    EXPECT_EQ(message.read_checkpoint().path(), folder_);
    EXPECT_EQ(message.read_checkpoint().max_bytes(), kPiece);
    return message.read_checkpoint();
  }

  // As the worker of a file with these bytes.
  void Answer(const v1::ReadCheckpointFile& question, const std::string& bytes) {
    v1::AgentMessage message;
    v1::CheckpointFileBytes& answer = *message.mutable_checkpoint_bytes();
    answer.set_request_id(question.request_id());
    answer.set_data(bytes.substr(static_cast<size_t>(question.offset()),
                                 static_cast<size_t>(question.max_bytes())));
    answer.set_file_bytes(static_cast<int64_t>(bytes.size()));
    agent_->Write(message);
  }
  void Refuse(const v1::ReadCheckpointFile& question, absl::StatusCode code) {
    v1::AgentMessage message;
    v1::CheckpointFileBytes& answer = *message.mutable_checkpoint_bytes();
    answer.set_request_id(question.request_id());
    answer.set_code(static_cast<int32_t>(code));
    answer.set_error("/root/file: not there");
    agent_->Write(message);
  }
};

std::string Bytes(int64_t size) {
  std::string bytes;
  for (int64_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(i * 7 + i / 253));
  }
  return bytes;
}

TEST_F(DownloadTest, File_ComesInPiecesFromTheOffset) {
  const std::string bytes = Bytes(3 * kPiece + 100);
  const auto stream = Download("model.safetensors", 5);
  // One question until the size is known, then two at a time.
  v1::ReadCheckpointFile question = AwaitQuestion();
  EXPECT_EQ(question.file(), "model.safetensors");
  EXPECT_EQ(question.offset(), 5);
  Answer(question, bytes);
  const v1::ReadCheckpointFile second = AwaitQuestion();
  const v1::ReadCheckpointFile third = AwaitQuestion();
  EXPECT_EQ(second.offset(), 5 + kPiece);
  EXPECT_EQ(third.offset(), 5 + 2 * kPiece);
  // Answers may cross; what the client gets stays in order.
  Answer(third, bytes);
  Answer(second, bytes);
  Answer(AwaitQuestion(), bytes);
  std::string got;
  v1::DownloadCheckpointResponse response;
  bool first = true;
  while (stream->reader->Read(&response)) {
    EXPECT_EQ(response.has_checkpoint(), first);
    first = false;
    EXPECT_EQ(response.file_bytes(), static_cast<int64_t>(bytes.size()));
    got += response.data();
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(got == bytes.substr(5));
}

TEST_F(DownloadTest, EmptyFileAndManifest_AreOneResponse) {
  const auto stream = Download("");
  const v1::ReadCheckpointFile question = AwaitQuestion();
  EXPECT_EQ(question.file(), "MANIFEST.json");
  Answer(question, "");
  v1::DownloadCheckpointResponse response;
  ASSERT_TRUE(stream->reader->Read(&response));
  EXPECT_EQ(response.checkpoint().step(), 3);
  EXPECT_EQ(response.data(), "");
  EXPECT_FALSE(stream->reader->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(DownloadTest, WorkerLost_EndsWithItsName) {
  const auto stream = Download("model.safetensors");
  Answer(AwaitQuestion(), Bytes(4 * kPiece));
  v1::DownloadCheckpointResponse response;
  ASSERT_TRUE(stream->reader->Read(&response));
  agent_->Leave();
  EXPECT_FALSE(stream->reader->Read(&response));
  const absl::Status status = stream->Finish();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("checkpoint of step 3, worker w1: the worker that was asked about the "
                        "checkpoint has gone"));
  // Without it nobody sees the folder.
  const absl::Status nobody = Download("model.safetensors")->Finish();
  EXPECT_TRUE(absl::IsUnavailable(nobody)) << nobody;
  // The second if the coordinator's core has not heard yet that it has gone.
  EXPECT_THAT(std::string(nobody.message()),
              testing::AnyOf(HasSubstr("no worker that sees"), HasSubstr("has gone")));
}

TEST_F(DownloadTest, WhatCannotBeRead_IsSaid) {
  EXPECT_TRUE(absl::IsNotFound(Download("x", 0, 0, "no-job")->Finish()));
  EXPECT_TRUE(absl::IsNotFound(Download("x", 0, 99)->Finish()));
  const std::map<absl::StatusCode, absl::StatusCode> codes = {
      {absl::StatusCode::kNotFound, absl::StatusCode::kNotFound},
      {absl::StatusCode::kInvalidArgument, absl::StatusCode::kInvalidArgument},
      // Not the caller's token.
      {absl::StatusCode::kUnauthenticated, absl::StatusCode::kFailedPrecondition}};
  for (const auto& [code, said] : codes) {
    const auto stream = Download("x");
    Refuse(AwaitQuestion(), code);
    const absl::Status status = stream->Finish();
    EXPECT_EQ(status.code(), said) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker w1: /root/file: not there"));
  }
  const auto behind = Download("x", 11);
  v1::ReadCheckpointFile question = AwaitQuestion();
  v1::AgentMessage message;
  message.mutable_checkpoint_bytes()->set_request_id(question.request_id());
  message.mutable_checkpoint_bytes()->set_file_bytes(10);
  agent_->Write(message);
  EXPECT_THAT(std::string(behind->Finish().message()), HasSubstr("offset 11 is behind the 10"));
}

TEST_F(DownloadTest, FileThatShrinks_IsNoEndlessLoop) {
  const auto stream = Download("x");
  Answer(AwaitQuestion(), Bytes(3 * kPiece));
  Answer(AwaitQuestion(), Bytes(kPiece));
  v1::DownloadCheckpointResponse response;
  ASSERT_TRUE(stream->reader->Read(&response));
  EXPECT_FALSE(stream->reader->Read(&response));
  EXPECT_THAT(std::string(stream->Finish().message()),
              HasSubstr("the file changed while it was read"));
}

TEST_F(DownloadTest, MoreThanAWorkersShare_IsRefused) {
  const auto first = Download("x");
  AwaitQuestion();
  const auto second = Download("x");
  AwaitQuestion();
  const absl::Status refused = Download("x")->Finish();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 run from worker w1"));
}

TEST(WorkerSlots, ArePerWorkerAndInAll_AndComeBack) {
  WorkerSlots slots(kDownloadLimits);
  auto first = slots.Take("a");
  auto second = slots.Take("a");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(slots.Take("a").status()));
  first->reset();
  EXPECT_TRUE(slots.Take("a").ok());  // and given back at once
  std::vector<std::unique_ptr<WorkerSlots::Slot>> others;
  for (int i = 1; i < kDownloadLimits.open_max; ++i) {
    auto slot = slots.Take(absl::StrCat("w", i));
    ASSERT_TRUE(slot.ok()) << slot.status();
    others.push_back(*std::move(slot));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(slots.Take("b").status()));
  others.pop_back();
  EXPECT_TRUE(slots.Take("b").ok());
}

}  // namespace
}  // namespace hearth::coordinator
