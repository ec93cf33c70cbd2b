#include "coordinator/service/streams/sample_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/service/streams/open_stream.h"

namespace hearth::coordinator {
namespace {

// Reason of an UNAVAILABLE that is about workers, not about the coordinator.
constexpr char kNotWritten[] = "TEXT_NOT_WRITTEN";

}  // namespace

SampleReactor::SampleReactor(Executor& executor,
                             Loop& loop,
                             Inspector& inspector,
                             WorkerSlots& slots,
                             const v1::SampleCheckpointRequest& request,
                             int64_t seed)
    : StreamReactor(executor),
      loop_(loop),
      inspector_(inspector),
      slots_(slots),
      request_(request) {
  // Chosen here where the request has none: the first answer names it, so the text can be had
  // again.
  if (!request.text().has_seed()) {
    request_.mutable_text()->set_seed(seed);
  }
}

SampleReactor::~SampleReactor() {
  absl::MutexLock lock(&text_mu_);
  if (writing_ > 0) {
    inspector_.StopWriting(worker_.connection_id, writing_);
  }
}

void SampleReactor::Find() {
  // The client may go away while the question waits in the loop: that must not keep this alive.
  const std::weak_ptr<StreamReactor> weak = weak_from_this();
  loop_.Query([weak, request = request_](const Core* core) {
    const auto self = std::static_pointer_cast<SampleReactor>(weak.lock());
    if (self == nullptr) {
      return;
    }
    absl::StatusOr<v1::Checkpoint> checkpoint = absl::UnavailableError("the coordinator stops");
    Core::IdleReaders workers;
    if (core != nullptr) {
      checkpoint = FindCheckpoint(*core, request.job_id(), request.step());
      if (absl::IsNotFound(checkpoint.status()) && request.step() == 0 &&
          core->FindJob(request.job_id()) != nullptr) {
        checkpoint = absl::FailedPreconditionError(
            absl::StrCat(request.job_id(),
                         " has no checkpoint yet: it writes one every "
                         "checkpoint.every_steps steps, and on jobctl pause"));
      }
      if (checkpoint.ok()) {
        workers = core->FindIdleReaders(*checkpoint, request.worker_id());
      }
    }
    self->Found(std::move(checkpoint), workers);
  });
}

absl::Status SampleReactor::Choose(const v1::Checkpoint& checkpoint,
                                   const Core::IdleReaders& workers) {
  if (!request_.worker_id().empty() && workers.idle.empty() && workers.others.empty()) {
    return rpc::NotFoundError("worker", request_.worker_id());
  }
  absl::Status busy;
  for (const Core::Reader& worker : workers.idle) {
    absl::StatusOr<std::unique_ptr<WorkerSlots::Slot>> slot = slots_.Take(worker.worker_id);
    if (slot.ok()) {
      worker_ = worker;
      slot_ = *std::move(slot);
      return absl::OkStatus();
    }
    busy = slot.status();
  }
  if (!busy.ok()) {
    return busy;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "no idle worker sees the checkpoint of step ", checkpoint.step(), " (", checkpoint.path(),
      "): ", workers.others.empty() ? "no worker is known" : workers.others));
}

void SampleReactor::Found(absl::StatusOr<v1::Checkpoint> checkpoint,
                          const Core::IdleReaders& workers) {
  const absl::Status refused = checkpoint.ok() ? Choose(*checkpoint, workers) : checkpoint.status();
  if (!refused.ok()) {
    Arrived(refused);
    return;
  }
  {
    absl::MutexLock lock(&text_mu_);
    *next_.mutable_checkpoint() = *checkpoint;
    next_.set_worker_id(worker_.worker_id);
    next_.set_device(worker_.device);
    next_.set_seed(request_.text().seed());
    ready_ = true;
  }
  v1::WriteText question;
  question.set_job_id(request_.job_id());
  question.set_path(worker_.folder);
  *question.mutable_text() = request_.text();
  const std::weak_ptr<StreamReactor> weak = weak_from_this();
  const int64_t id = inspector_.Write(
      worker_.connection_id, std::move(question), [weak](absl::StatusOr<v1::WrittenText> piece) {
        if (const auto self = std::static_pointer_cast<SampleReactor>(weak.lock())) {
          self->Arrived(std::move(piece));
        }
      });
  // The caller holds this, so the destructor cannot run before the id stands here.
  {
    absl::MutexLock lock(&text_mu_);
    writing_ = id;
  }
  Wake();
}

void SampleReactor::Arrived(absl::StatusOr<v1::WrittenText> piece) {
  {
    absl::MutexLock lock(&text_mu_);
    if (over_) {
      return;
    }
    if (piece.ok() && next_.text().size() + piece->text().size() > kWaitingBytes) {
      piece = absl::ResourceExhaustedError(
          "the client does not read the text as fast as it is written");
    }
    if (piece.ok()) {
      next_.mutable_text()->append(piece->text());
      next_.set_end(piece->end());
      ready_ = ready_ || !piece->text().empty();
      over_ = piece->end() != v1::TEXT_END_UNSPECIFIED;
      ready_ = ready_ || over_;
    } else {
      over_ = true;
      end_ = worker_.worker_id.empty()
                 ? piece.status()
                 : Annotate(piece.status(), absl::StrCat("worker ", worker_.worker_id));
      if (absl::IsUnavailable(end_) && !worker_.worker_id.empty()) {
        end_ = rpc::MakeError(end_.code(), std::string(end_.message()), kNotWritten);
      }
    }
  }
  Wake();
}

SampleReactor::Next SampleReactor::Produce(v1::SampleCheckpointResponse& response,
                                           absl::Status& status) {
  if (!started_) {
    started_ = true;
    Find();
    return Next::kWait;
  }
  absl::MutexLock lock(&text_mu_);
  if (ready_) {
    ready_ = false;
    response = std::exchange(next_, {});
    return Next::kWrite;
  }
  if (!over_) {
    return Next::kWait;
  }
  status = end_;
  // Before the client hears of the end, so that its next call finds it free.
  slot_.reset();
  return Next::kEnd;
}

}  // namespace hearth::coordinator
