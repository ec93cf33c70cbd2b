#include "worker/daemon/supervise/worker_task.h"

#include <algorithm>
#include <utility>

#include "common/base/clip_text.h"
#include "worker/daemon/supervise/clip_texts.h"
#include "worker/daemon/supervise/line_splitter.h"

namespace hearth::worker {
namespace {

// Bound on every text for people that a trainer sends.
constexpr size_t kMaxTextBytes = 4000;
constexpr size_t kMaxPhaseBytes = 64;

}  // namespace

WorkerTask::WorkerTask(const v1::Task& task, const ReportLimits& limits, Clock& clock)
    : task_(task), clock_(clock), reports_(task.job_id(), task.epoch(), task.rank(), limits) {}

void WorkerTask::FillIn(const std::string& checkpoint_dir,
                        const std::string& advertise_host,
                        int threads,
                        const std::string& device) {
  if (task_.checkpoint_dir().empty()) {
    task_.set_checkpoint_dir(checkpoint_dir);
  }
  task_.set_advertise_host(advertise_host);
  task_.set_threads(threads);
  task_.set_device(device);
}

v1::TaskExit WorkerTask::Refuse(v1::ExitReason reason, const std::string& why) {
  v1::TaskExit exit;
  exit.mutable_exit()->set_reason(reason);
  exit.mutable_exit()->set_message(why);
  *exit.mutable_exit()->mutable_time() = ToProtoTime(clock_.Now());
  exit.set_clean(true);
  ReportExit(exit);
  return exit;
}

v1::TaskExit WorkerTask::End(const ExitFacts& facts) {
  v1::TaskExit exit = MakeTaskExit(facts, said_, step_, checkpoint_step_, clock_.Now());
  ReportExit(exit);
  return exit;
}

void WorkerTask::ReportExit(const v1::TaskExit& exit) {
  life_ = Life::kEnded;
  keys_.Clear();
  v1::TaskReport report;
  *report.mutable_exit() = exit;
  Report(std::move(report));
}

std::optional<v1::TaskDying> WorkerTask::ReportDying(const ExitFacts& facts,
                                                     bool known,
                                                     absl::Duration dying_for) {
  // If the end was asked for, nobody needs a report that the task is dying.
  std::optional<v1::TaskDying> dying;
  if (running()) {
    dying = MakeTaskDying(facts, known, dying_for, said_, step_, clock_.Now());
  }
  if (dying.has_value()) {
    v1::TaskReport report;
    *report.mutable_dying() = *dying;
    Report(std::move(report));
  }
  return dying;
}

void WorkerTask::Report(v1::TaskReport report) {
  if (!forgotten_) {
    // A coordinator ends the stream of a worker that sends it more; log lines have limits of their
    // own, keys and values are answered by it.
    if (!report.has_kv_put()) {
      ClipTexts(report, kMaxTextBytes);
    }
    reports_.Add(std::move(report));
  }
}

void WorkerTask::Take(v1::FromTrainer message, const DeviceReading& device) {
  if (forgotten_) {
    return;
  }
  v1::TaskReport report;
  switch (message.message_case()) {
    case v1::FromTrainer::kRunInfo:
      energy_.Since(device.energy_joules);  // loading is no step's energy
      if (!device.name.empty()) {
        message.mutable_run_info()->set_device(device.name);
      }
      *report.mutable_run_info() = std::move(*message.mutable_run_info());
      break;
    case v1::FromTrainer::kStep:
      return TakeStep(std::move(*message.mutable_step()), device);
    case v1::FromTrainer::kLog:
      return TakeLog(message.log());
    case v1::FromTrainer::kCheckpoint:
      checkpoint_step_ = message.checkpoint().step();
      *report.mutable_checkpoint() = std::move(*message.mutable_checkpoint());
      break;
    case v1::FromTrainer::kTrial:
      *report.mutable_trial() = std::move(*message.mutable_trial());
      break;
    case v1::FromTrainer::kKvPut:
      *report.mutable_kv_put() = std::move(*message.mutable_kv_put());
      break;
    case v1::FromTrainer::kKvWait:
      return keys_.Add(message.kv_wait().key());
    case v1::FromTrainer::kExit:
      if (!said_.has_value()) {  // a second one would come from a watch that was late
        said_ = std::move(*message.mutable_exit());
      }
      return;
    case v1::FromTrainer::kPhase:
      phase_ = ClipText(message.phase().name(), kMaxPhaseBytes);
      return;
    case v1::FromTrainer::kProgress:
      step_ = std::max(step_, message.progress().step());
      compute_seconds_ = message.progress().compute_seconds();
      return;
    case v1::FromTrainer::kAlive:  // the host has taken note
    case v1::FromTrainer::MESSAGE_NOT_SET:
      return;
  }
  Report(std::move(report));
}

void WorkerTask::TakeStep(v1::StepReport step, const DeviceReading& device) {
  const double joules = energy_.Since(device.energy_joules);
  if (step.energy_joules() == 0.0) {
    step.set_energy_joules(joules);
  }
  if (step.power_watts() == 0.0) {
    step.set_power_watts(device.power_watts);
  }
  if (step.temperature_celsius() == 0.0) {
    step.set_temperature_celsius(device.temperature_celsius);
  }
  if (step.utilization_ratio() == 0.0) {
    step.set_utilization_ratio(device.utilization_ratio);
  }
  step_ = step.step();
  last_step_ = step;
  step.set_epoch(task_.epoch());
  v1::TaskReport report;
  *report.mutable_step() = std::move(step);
  Report(std::move(report));
}

void WorkerTask::TakeLog(const v1::LogLine& log) {
  v1::LogLine line =
      MakeLine(log.level(), SanitizeUtf8(ClipBytes(log.text(), LineSplitter::kMaxLineBytes)));
  if (log.has_time()) {
    *line.mutable_time() = log.time();
  }
  reports_.AddLog(std::move(line), clock_.Monotonic());
}

void WorkerTask::TakeOutput(std::string_view level, std::string text) {
  if (!forgotten_) {
    reports_.AddLog(MakeLine(level, std::move(text)), clock_.Monotonic());
  }
}

v1::LogLine WorkerTask::MakeLine(std::string_view level, std::string text) const {
  v1::LogLine line;
  *line.mutable_time() = ToProtoTime(clock_.Now());
  line.set_epoch(task_.epoch());
  line.set_rank(task_.rank());
  line.set_level(level.data(), level.size());
  line.set_text(std::move(text));
  return line;
}

void WorkerTask::Tick(double energy_joules) {
  reports_.LetIn(clock_.Monotonic());
  if (lives()) {
    energy_.Begin(energy_joules);
  }
}

void WorkerTask::BeginSession() {
  // Everything that is not acknowledged is sent again. The coordinator knows by the numbers what it
  // has already.
  sent_seq_ = 0;
  keys_.AskAgain();
}

v1::TaskStatus WorkerTask::Status() const {
  v1::TaskStatus status;
  status.set_job_id(task_.job_id());
  status.set_epoch(task_.epoch());
  status.set_rank(task_.rank());
  status.set_running(!ended());
  status.set_last_seq(reports_.last_seq());
  status.set_first_unacked_seq(reports_.first_unacked_seq());
  status.set_step(step_);
  return status;
}

std::optional<v1::AgentMessage> WorkerTask::NextMessage() {
  if (forgotten_) {
    return std::nullopt;
  }
  v1::AgentMessage message;
  // Keys first: a rendezvous waits for them.
  if (std::optional<std::string> key = keys_.TakeToAsk()) {
    v1::TaskKvWait& wait = *message.mutable_kv_wait();
    wait.set_job_id(task_.job_id());
    wait.set_epoch(task_.epoch());
    wait.set_rank(task_.rank());
    wait.set_key(*std::move(key));
    return message;
  }
  std::optional<v1::TaskReport> report = reports_.After(sent_seq_);
  // Lines gather until nothing else waits: while much is sent they go in larger reports.
  if (!report.has_value() && reports_.SealLogs()) {
    report = reports_.After(sent_seq_);
  }
  if (!report.has_value()) {
    return std::nullopt;
  }
  sent_seq_ = report->seq();
  *message.mutable_report() = *std::move(report);
  return message;
}

void WorkerTask::Ack(int64_t seq) {
  reports_.Ack(seq);
}

bool WorkerTask::TakeKeyAnswer(const v1::KvValue& value) {
  return !ended() && (keys_.Answer(value.key()) || !value.error().empty());
}

}  // namespace hearth::worker
