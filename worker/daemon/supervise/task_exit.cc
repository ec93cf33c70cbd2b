#include "worker/daemon/supervise/task_exit.h"

#include <string.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/spec/fields/rows.h"

namespace hearth::worker {
namespace {

// Why a trainer ended that sent no TrainerExit.
void Explain(const ExitFacts& facts, v1::TrainerExit& exit) {
  exit.set_reason(v1::EXIT_REASON_INTERNAL);
  if (!facts.start_error.empty()) {
    exit.set_message(facts.start_error);
    return;
  }
  if (!facts.protocol_error.empty()) {
    exit.set_message(facts.protocol_error);
    return;
  }
  if (!facts.hung.empty()) {
    exit.set_reason(v1::EXIT_REASON_HUNG);
    exit.set_message(facts.hung);
    return;
  }
  std::string text;
  if (facts.wait_status < 0) {
    exit.set_reason(v1::EXIT_REASON_KILLED);
    const char* name = sigabbrev_np(-facts.wait_status);
    text = absl::StrCat("the trainer was ended by signal ", -facts.wait_status,
                        name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
  } else {
    text = absl::StrCat("the trainer ended with code ", facts.wait_status, " and gave no reason");
  }
  if (!facts.last_words.empty()) {
    absl::StrAppend(&text, "; its last line: ", facts.last_words);
  }
  exit.set_message(text);
}

}  // namespace

google::protobuf::Timestamp ToProtoTime(absl::Time time) {
  google::protobuf::Timestamp out;
  const int64_t seconds = absl::ToUnixSeconds(time);
  out.set_seconds(seconds);
  out.set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return out;
}

absl::Duration StopGrace(const v1::JobSpec& spec) {
  return absl::Seconds(
      spec::IntOrDefault(spec.checkpoint(), v1::CheckpointSpec::kGraceSecondsFieldNumber));
}

v1::TaskExit MakeTaskExit(const ExitFacts& facts,
                          const std::optional<v1::TrainerExit>& said,
                          int64_t step,
                          int64_t checkpoint_step,
                          absl::Time now) {
  v1::TaskExit out;
  out.set_wait_status(facts.wait_status);
  out.set_clean(facts.clean);
  out.set_before_kill(facts.before_kill);
  out.set_unclean_reason(facts.unclean_reason);
  v1::TrainerExit& exit = *out.mutable_exit();
  // What the trainer said itself comes before what its end looks like.
  if (said.has_value() && said->reason() != v1::EXIT_REASON_UNSPECIFIED) {
    exit = *said;
  } else {
    Explain(facts, exit);
    out.set_silent_seconds(facts.hung.empty() ? 0.0 : absl::ToDoubleSeconds(facts.silent));
  }
  exit.set_step(std::max(exit.step(), step));
  exit.set_checkpoint_step(std::max(exit.checkpoint_step(), checkpoint_step));
  if (!exit.has_time()) {
    *exit.mutable_time() = ToProtoTime(now);
  }
  return out;
}

std::optional<v1::TaskDying> MakeTaskDying(const ExitFacts& facts,
                                           bool known,
                                           absl::Duration dying_for,
                                           const std::optional<v1::TrainerExit>& said,
                                           int64_t step,
                                           absl::Time now) {
  const v1::ExitReason reason = said.has_value() ? said->reason() : v1::EXIT_REASON_UNSPECIFIED;
  if (reason == v1::EXIT_REASON_FINISHED || reason == v1::EXIT_REASON_STOPPED ||
      reason == v1::EXIT_REASON_PAUSED) {
    return std::nullopt;
  }
  v1::TaskDying out;
  known = known || reason != v1::EXIT_REASON_UNSPECIFIED;
  if (known) {
    v1::TaskExit exit = MakeTaskExit(facts, said, step, 0, now);
    out.set_seconds(exit.silent_seconds());
    *out.mutable_exit() = std::move(*exit.mutable_exit());
  } else {
    out.mutable_exit()->set_message("the trainer is ending; the reason is not known yet");
    out.mutable_exit()->set_step(step);
    *out.mutable_exit()->mutable_time() = ToProtoTime(now);
  }
  out.set_seconds(out.seconds() + absl::ToDoubleSeconds(dying_for));
  return out;
}

}  // namespace hearth::worker
