#include "coordinator/service/loop/backups.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/log/log.h"
#include "common/rpc/grpc_status.h"

namespace hearth::coordinator {

Backups::Backups(std::string data_dir, BackupFolder folder, Clock& clock)
    : data_dir_(std::move(data_dir)), folder_(std::move(folder)), clock_(clock) {}

Backups::~Backups() {
  Stop();
}

void Backups::Make(Done done) {
  if (const absl::Status begun = Begin(done); !begun.ok()) {
    done(begun);
  }
}

absl::Status Backups::Begin(Done& done) {
  absl::MutexLock lock(&mu_);
  if (stopping_) {
    return rpc::UnavailableError("the coordinator is stopping", "STOPPING", absl::Seconds(1));
  }
  if (running_) {
    return absl::FailedPreconditionError(
        absl::StrCat("a backup to ", folder_.path, " is being made; ask again when it is over"));
  }
  if (thread_.joinable()) {
    thread_.join();  // it answers and does nothing more
  }
  running_ = true;
  thread_ = std::thread([this, done = std::move(done)] {
    pthread_setname_np(pthread_self(), "hearth-backup");
    Run(done);
  });
  return absl::OkStatus();
}

void Backups::Run(const Done& done) {
  const absl::Duration began = clock_.Monotonic();
  const auto make = [&]() -> absl::StatusOr<TimedBackup> {
    HEARTH_ASSIGN_OR_RETURN(MadeBackup made, MakeBackup(data_dir_, folder_, clock_.Now(),
                                                        [this] { return stopping_.load(); }));
    return TimedBackup{std::move(made), clock_.Monotonic() - began};
  };
  const absl::StatusOr<TimedBackup> result = make();
  if (result.ok()) {
    HEARTH_LOG_INFO("backup: {} ({} bytes)", result->made.path, result->made.report.bytes);
  } else {
    HEARTH_LOG_ERROR("backup: {}", std::string(result.status().message()));
  }
  {
    absl::MutexLock lock(&mu_);
    running_ = false;  // before the answer: its caller may ask for the next one
  }
  done(result);
}

void Backups::Stop() {
  std::thread last;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    last = std::move(thread_);
  }
  if (last.joinable()) {
    last.join();
  }
}

}  // namespace hearth::coordinator
