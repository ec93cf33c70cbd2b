#include "worker/trainer/checkpoint/background_writer.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/io/available_memory.h"

namespace hearth::trainer {

BackgroundWriter::BackgroundWriter(
    Env& env, Clock& clock, std::string dir, int32_t keep_last, PinHooks hooks)
    : env_(env),
      clock_(clock),
      dir_(std::move(dir)),
      keep_last_(keep_last),
      snapshot_(std::move(hooks)) {
  thread_ = std::thread([this] { Run(); });
}

BackgroundWriter::~BackgroundWriter() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  thread_.join();
}

void BackgroundWriter::Begin(size_t reserve) {
  absl::MutexLock lock(&mu_);
  reserve_ = reserve;
  busy_ = true;
}

void BackgroundWriter::Reserve(const CheckpointContent& content) {
  AwaitIdle();
  content_.threads = content.threads;
  if (const size_t bytes = Snapshot::Bytes(content); bytes > 0) {
    Begin(bytes);
  }
}

bool BackgroundWriter::CanBegin() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &BackgroundWriter::Reserved));
  return !busy_;
}

void BackgroundWriter::AwaitIdle() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &BackgroundWriter::Idle));
}

absl::Status BackgroundWriter::Submit(const CheckpointContent& content) {
  AwaitIdle();
  const size_t bytes = Snapshot::Bytes(content);
  // No memory for a snapshot: training stands still while its own memory is written, and the report
  // says so.
  if (!snapshot_.Reserve(bytes, AvailableMemory(env_), content.threads).ok()) {
    absl::StatusOr<CommittedCheckpoint> result =
        WriteCheckpoint(env_, clock_, dir_, content, keep_last_);
    if (result.ok()) {
      result->stood_still = true;
    }
    absl::MutexLock lock(&mu_);
    done_.push_back(std::move(result));
    return absl::OkStatus();
  }
  // The writer's thread is idle (AwaitIdle), so content_ and reader_ belong to this one until
  // Begin.
  HEARTH_ASSIGN_OR_RETURN(content_, snapshot_.Take(content));
  reader_ = content.reader;
  Begin(/*reserve=*/0);
  return absl::OkStatus();
}

absl::StatusOr<CommittedCheckpoint> BackgroundWriter::Write() {
  // Copies from the GPU may still be under way: here they are waited for, and not by the step.
  if (reader_ != nullptr) {
    HEARTH_RETURN_IF_ERROR(reader_->Finish());
  }
  return WriteCheckpoint(env_, clock_, dir_, content_, keep_last_);
}

void BackgroundWriter::Run() {
  for (;;) {
    size_t reserve = 0;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &BackgroundWriter::HasWork));
      if (!busy_) {
        return;
      }
      reserve = reserve_;
    }
    if (reserve > 0) {
      // Too little memory now is met again, and told, by Submit.
      snapshot_.Reserve(reserve, AvailableMemory(env_), content_.threads).IgnoreError();
      absl::MutexLock lock(&mu_);
      busy_ = false;
      continue;
    }
    absl::StatusOr<CommittedCheckpoint> result = Write();
    absl::MutexLock lock(&mu_);
    done_.push_back(std::move(result));
    busy_ = false;
  }
}

std::optional<absl::StatusOr<CommittedCheckpoint>> BackgroundWriter::Take(bool wait) {
  if (wait) {
    AwaitIdle();
  }
  absl::MutexLock lock(&mu_);
  if (done_.empty()) {
    return std::nullopt;
  }
  absl::StatusOr<CommittedCheckpoint> result = std::move(done_.front());
  done_.erase(done_.begin());
  return result;
}

}  // namespace hearth::trainer
