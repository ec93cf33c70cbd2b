#include "worker/trainer/rank/job_data.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "worker/trainer/checkpoint/hf_model.h"
#include "worker/trainer/rank/open_loader.h"

namespace hearth::trainer {
namespace {

// A job waits this long for its data to be verified. Then it begins, and ends if a file turns out
// to be damaged.
constexpr absl::Duration kCheckPatience = absl::Seconds(5);

// Jobs that are older than the field have no value.
bool Verifies(const v1::JobSpec& spec) {
  return !spec.data().has_verify() || spec.data().verify();
}

}  // namespace

JobData::JobData(RankContext& rank, std::string verified_folder)
    : rank_(rank), verified_folder_(std::move(verified_folder)) {}

absl::Status JobData::VerifyModel() {
  if (!rank_.spec.model().has_from() || !rank_.task.resume_path().empty() ||
      !Verifies(rank_.spec)) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::vector<RecordedFile> files,
                          RecordedModelFiles(rank_.env, rank_.spec.model().from()));
  return Verifier().Verify(files);
}

absl::Status JobData::Open() {
  HEARTH_ASSIGN_OR_RETURN(train_, OpenLoader(rank_.spec, rank_.spec.data().train(),
                                             rank_.spec.data().shuffle(), rank_.env));
  if (rank_.spec.data().validation_size() > 0) {
    HEARTH_ASSIGN_OR_RETURN(
        validation_, OpenLoader(rank_.spec, rank_.spec.data().validation(), false, rank_.env));
  }
  return absl::OkStatus();
}

void JobData::StartCheck() {
  if (!Verifies(rank_.spec)) {
    return;
  }
  std::vector<RecordedFile> files = train_->RecordedFiles();
  if (validation_ != nullptr) {
    const std::vector<RecordedFile> more = validation_->RecordedFiles();
    files.insert(files.end(), more.begin(), more.end());
  }
  if (!files.empty()) {
    check_ = std::make_unique<BackgroundCheck>(Verifier(), std::move(files), rank_.clock);
  }
}

absl::Status JobData::AwaitCheck() {
  if (check_ == nullptr) {
    return absl::OkStatus();
  }
  rank_.blame = v1::EXIT_REASON_BAD_DATA;
  return check_->Wait(kCheckPatience);
}

absl::Status JobData::Damage() {
  absl::Status found = check_ == nullptr ? absl::OkStatus() : check_->status();
  if (!found.ok()) {
    rank_.blame = v1::EXIT_REASON_BAD_DATA;
  }
  return found;
}

void JobData::NoteUnverified() {
  if (check_ != nullptr && !check_->done()) {
    rank_.link.SendLog("warning",
                       "the training is over before all files of its data could be verified");
  }
}

std::string JobData::tokenizer_folder() const {
  return TokenizerFolder(*train_);
}

FileVerifier JobData::Verifier() const {
  // The disk is seldom faster than so many cores hash.
  return FileVerifier(verified_folder_, std::clamp(rank_.task.threads(), 1, 4), rank_.env,
                      rank_.clock);
}

}  // namespace hearth::trainer
