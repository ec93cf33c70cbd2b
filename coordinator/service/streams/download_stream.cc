#include "coordinator/service/streams/download_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/service/agents/agent_rules.h"
#include "coordinator/service/streams/open_stream.h"

namespace hearth::coordinator {
namespace {

constexpr char kManifest[] = "MANIFEST.json";
// Reason of an UNAVAILABLE that is about workers, not about the coordinator.
constexpr char kNotSeen[] = "CHECKPOINT_NOT_SEEN";

}  // namespace

void DownloadReactor::Find() {
  const std::weak_ptr<StreamReactor> weak = weak_from_this();
  loop_.Query([weak, request = request_](const Core* core) {
    const auto self = std::static_pointer_cast<DownloadReactor>(weak.lock());
    if (self == nullptr) {
      return;
    }
    absl::StatusOr<v1::Checkpoint> checkpoint = absl::UnavailableError("the coordinator stops");
    std::optional<Core::Reader> reader;
    if (core != nullptr) {
      checkpoint = FindCheckpoint(*core, request.job_id(), request.step());
      reader = checkpoint.ok() ? core->FindReader(*checkpoint) : std::nullopt;
    }
    self->Found(std::move(checkpoint), std::move(reader));
  });
}

void DownloadReactor::Found(absl::StatusOr<v1::Checkpoint> checkpoint,
                            std::optional<Core::Reader> reader) {
  absl::Status refused = checkpoint.status();
  std::unique_ptr<WorkerSlots::Slot> slot;
  if (refused.ok() && !reader.has_value()) {
    refused = absl::UnavailableError(absl::StrCat("no worker that sees ", checkpoint->path(),
                                                  " (step ", checkpoint->step(), ") is connected"));
  }
  if (refused.ok()) {
    absl::StatusOr<std::unique_ptr<WorkerSlots::Slot>> taken = slots_.Take(reader->worker_id);
    refused = taken.status();
    slot = taken.ok() ? *std::move(taken) : nullptr;
  }
  const bool go_on = refused.ok();
  {
    absl::MutexLock lock(&pieces_mu_);
    refused_ = std::move(refused);
    slot_ = std::move(slot);
    if (go_on) {
      checkpoint_ = *std::move(checkpoint);
      reader_ = *std::move(reader);
      asked_ = request_.offset();
    }
  }
  if (go_on) {
    AskMore();
  }
  {
    // Not before the first question is there: found, with nothing to wait for, is the end.
    absl::MutexLock lock(&pieces_mu_);
    found_ = true;
  }
  Wake();
}

void DownloadReactor::AskMore() {
  while (true) {
    v1::ReadCheckpointFile question;
    uint64_t connection = 0;
    int64_t id = 0;
    {
      absl::MutexLock lock(&pieces_mu_);
      // The first piece says how long the file is.
      const size_t window = file_bytes_ < 0 ? 1 : kWindow;
      if (pieces_.size() >= window || (file_bytes_ >= 0 && asked_ >= file_bytes_)) {
        return;
      }
      id = next_id_++;
      pieces_.push_back({id, std::nullopt});
      question.set_job_id(request_.job_id());
      question.set_path(reader_.folder);
      question.set_file(request_.file().empty() ? kManifest : request_.file());
      question.set_offset(asked_);
      question.set_max_bytes(kPieceBytes);
      asked_ += kPieceBytes;
      connection = reader_.connection_id;
    }
    const std::weak_ptr<StreamReactor> weak = weak_from_this();
    inspector_.Read(connection, std::move(question),
                    [weak, id](absl::StatusOr<v1::CheckpointFileBytes> answer) {
                      const auto self = std::static_pointer_cast<DownloadReactor>(weak.lock());
                      if (self != nullptr) {
                        self->Arrived(id, std::move(answer));
                      }
                    });
  }
}

void DownloadReactor::Arrived(int64_t id, absl::StatusOr<v1::CheckpointFileBytes> answer) {
  {
    absl::MutexLock lock(&pieces_mu_);
    for (Piece& piece : pieces_) {
      if (piece.id == id) {
        piece.answer = std::move(answer);
        break;
      }
    }
  }
  Wake();
}

absl::Status DownloadReactor::Explain(const absl::Status& status) const {
  absl::MutexLock lock(&pieces_mu_);
  const absl::Status told = Annotate(status, absl::StrCat("checkpoint of step ", checkpoint_.step(),
                                                          ", worker ", reader_.worker_id));
  return absl::IsUnavailable(told)
             ? rpc::MakeError(told.code(), std::string(told.message()), kNotSeen)
             : told;
}

absl::Status DownloadReactor::Take(v1::CheckpointFileBytes piece,
                                   v1::DownloadCheckpointResponse& response) {
  absl::MutexLock lock(&pieces_mu_);
  if (sent_ < 0) {
    sent_ = request_.offset();
    file_bytes_ = piece.file_bytes();
    if (sent_ > file_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrCat("offset ", sent_, " is behind the ", file_bytes_, " bytes of the file"));
    }
  }
  const auto size = static_cast<int64_t>(piece.data().size());
  // Every piece but the last is full. So the offsets of all are known at once, and several can be
  // on their way.
  const int64_t expected = std::min<int64_t>(kPieceBytes, file_bytes_ - sent_);
  if (piece.file_bytes() != file_bytes_ || size != expected) {
    return absl::FailedPreconditionError("the file changed while it was read");
  }
  sent_ += size;
  response.set_data(std::move(*piece.mutable_data()));
  response.set_file_bytes(file_bytes_);
  if (first_) {
    first_ = false;
    *response.mutable_checkpoint() = checkpoint_;
  }
  return absl::OkStatus();
}

DownloadReactor::Next DownloadReactor::End() {
  // Declared before the lock, so that it is given back after the lock is released.
  std::unique_ptr<WorkerSlots::Slot> slot;
  absl::MutexLock lock(&pieces_mu_);
  slot = std::move(slot_);
  return Next::kEnd;
}

DownloadReactor::Next DownloadReactor::Produce(v1::DownloadCheckpointResponse& response,
                                               absl::Status& status) {
  if (!started_) {
    started_ = true;
    Find();
    return Next::kWait;
  }
  absl::StatusOr<v1::CheckpointFileBytes> piece = absl::UnknownError("");
  bool over = false;
  {
    absl::MutexLock lock(&pieces_mu_);
    status = refused_;
    over = found_ && (!refused_.ok() || pieces_.empty());  // everything was sent
    if (!over) {
      if (!found_ || !pieces_.front().answer.has_value()) {
        return Next::kWait;
      }
      piece = *std::move(pieces_.front().answer);
      pieces_.pop_front();
    }
  }
  if (over) {
    return End();
  }
  status = piece.ok() ? Take(*std::move(piece), response) : piece.status();
  if (!status.ok()) {
    status = Explain(status);
    return End();
  }
  AskMore();
  return Next::kWrite;
}

}  // namespace hearth::coordinator
