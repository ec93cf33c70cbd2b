#include "coordinator/service/agents/agent_rules.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/spec/data/sample_tables.h"
#include "common/spec/evaluation/evaluation_table.h"

namespace hearth::coordinator {
namespace {

using rpc::FieldRule;
using rpc::TextKind;

// Counters of steps, epochs and reports: no sum of a few of them overflows.
constexpr double kCountMax = int64_t{1} << 53;
constexpr double kStepMax = int64_t{1} << 40;  // train.steps' own bound
constexpr double kSecondsMax = 1e9;            // some 30 years
constexpr double kDroppedMax = int64_t{1} << 40;
constexpr int64_t kIdBytes = 63;
constexpr int64_t kNameBytes = 253;
// A key or value over its own limit of the key-value space is refused there, with an answer to the
// rank that would wait for it in vain.
constexpr int64_t kRefusedLater = 16 << 20;

// Anything not named here: strings of at most 4 KiB without control characters, 1,024 entries,
// numbers that are finite and not below 0, known enum values.
constexpr FieldRule kRules[] = {
    // The worker's identity.
    {.field = "Hello.worker_id", .max_bytes = kIdBytes},
    {.field = "Hello.incarnation", .max_bytes = 64},
    {.field = "Hello.name_key", .max_bytes = 128},
    {.field = "Hello.host", .max_bytes = kNameBytes},
    {.field = "Hello.labels", .max_entries = 64},
    {.field = "Hello.LabelsEntry.key", .max_bytes = kNameBytes},
    {.field = "Hello.LabelsEntry.value", .max_bytes = kNameBytes},
    {.field = "Hello.http_address", .max_bytes = 300},
    {.field = "Hello.root_uuid", .max_bytes = 64},
    {.field = "Hello.version", .max_bytes = 128},
    {.field = "Hello.generation", .max = kCountMax},
    {.field = "Hello.confinement", .max_bytes = kNameBytes, .max_entries = 16},
    {.field = "Hello.unhealthy_reason", .text = TextKind::kText},
    {.field = "AgentMessage.hello", .max_message_bytes = 256 << 10},
    {.field = "DeviceInfo.kind", .max_bytes = 16},
    {.field = "DeviceInfo.index", .max = 65535},
    {.field = "DeviceInfo.model", .max_bytes = kNameBytes},
    {.field = "DeviceInfo.uuid", .max_bytes = 64},
    {.field = "DeviceInfo.memory_bytes", .max = kCountMax},
    {.field = "DeviceInfo.pci_bus_id", .max_bytes = 64},
    {.field = "DeviceInfo.threads", .max = 65536},
    {.field = "DeviceInfo.compute_capability", .max_bytes = 32},
    {.field = "DeviceInfo.driver_version", .max_bytes = 64},
    {.field = "DeviceInfo.cuda_version", .max_bytes = 32},
    {.field = "DeviceInfo.host_memory_bytes", .max = kCountMax},
    {.field = "TaskStatus.job_id", .max_bytes = kIdBytes},
    {.field = "TaskStatus.epoch", .max = kCountMax},
    {.field = "TaskStatus.rank", .max = 65535},
    {.field = "TaskStatus.last_seq", .max = kCountMax},
    {.field = "TaskStatus.first_unacked_seq", .max = kCountMax},
    {.field = "TaskStatus.step", .max = kStepMax},
    // How it is.
    {.field = "AgentMessage.heartbeat", .max_message_bytes = 16 << 10},
    {.field = "Heartbeat.job_id", .max_bytes = kIdBytes},
    {.field = "Heartbeat.epoch", .max = kCountMax},
    {.field = "Heartbeat.step", .max = kStepMax},
    {.field = "Heartbeat.unhealthy_reason", .text = TextKind::kText},
    {.field = "Heartbeat.phase", .max_bytes = 64},
    {.field = "Heartbeat.checkpoint_free_bytes", .max = kCountMax * 1024},
    {.field = "Heartbeat.compute_seconds", .max = kSecondsMax},
    {.field = "DeviceStatus.temperature_celsius", .min = -300},
    {.field = "DeviceStatus.throttle_reasons", .max_bytes = 64, .max_entries = 64},
    {.field = "DeviceStatus.last_xid", .min = -1},
    {.field = "DeviceStatus.host_memory_available_bytes", .max = kCountMax},
    {.field = "Goodbye.reason", .text = TextKind::kText},
    // What its tasks did.
    {.field = "TaskReport.job_id", .max_bytes = kIdBytes},
    {.field = "TaskReport.epoch", .max = kCountMax},
    {.field = "TaskReport.rank", .max = 65535},
    {.field = "TaskReport.seq", .min = 1, .max = kCountMax},
    {.field = "TaskReport.run_info", .max_message_bytes = 16 << 10},
    {.field = "RunInfo.parameters", .max = kCountMax},
    {.field = "RunInfo.global_batch_tokens", .max = kCountMax},
    {.field = "RunInfo.recipe", .max_bytes = 64},
    {.field = "RunInfo.recipe_execution", .max_bytes = 64},
    {.field = "RunInfo.planned_bytes", .max = kCountMax},
    {.field = "RunInfo.start_step", .max = kStepMax},
    {.field = "TaskReport.step", .max_message_bytes = 1 << 20},
    {.field = "StepReport.epoch", .max = kCountMax},
    {.field = "StepReport.step", .min = 1, .max = kStepMax},
    {.field = "StepReport.tokens", .max = kCountMax * 64},
    // Training may go wrong in any way; what it measured is shown as it is.
    {.field = "StepReport.loss", .any_number = true},
    {.field = "StepReport.grad_norm", .any_number = true},
    {.field = "StepReport.learning_rate", .any_number = true},
    {.field = "StepReport.validation_loss", .any_number = true},
    {.field = "StepReport.tokens_per_second", .any_number = true},
    {.field = "StepReport.mfu", .any_number = true},
    {.field = "StepReport.step_seconds", .max = kSecondsMax},
    {.field = "StepReport.data_wait_seconds", .max = kSecondsMax},
    {.field = "StepReport.comm_seconds", .max = kSecondsMax},
    {.field = "StepReport.checkpoint_seconds", .max = kSecondsMax},
    {.field = "StepReport.resume_seconds", .max = kSecondsMax},
    {.field = "StepReport.skipped_checkpoints", .max = kCountMax},
    {.field = "StepReport.energy_joules", .max = 1e15},
    {.field = "StepReport.power_watts", .max = 1e9},
    {.field = "StepReport.temperature_celsius", .max = 1e4},
    {.field = "StepReport.utilization_ratio", .max = 1},
    {.field = "StepReport.skipped_steps", .max = kCountMax},
    {.field = "StepReport.comm_bytes", .max = kCountMax},
    {.field = "StepReport.recipe", .max_bytes = 64},
    {.field = "StepReport.weight_quantizations", .max = kCountMax * 1024},
    {.field = "StepReport.tensors", .max_entries = 16384},
    {.field = "EvaluationResult.name", .max_bytes = 63},
    {.field = "EvaluationResult.task", .max_bytes = 63},
    {.field = "EvaluationResult.step", .max = kStepMax},
    {.field = "EvaluationResult.items", .max = kCountMax},
    {.field = "EvaluationResult.cut_items", .max = kCountMax},
    {.field = "EvaluationResult.accuracy", .max = 1},
    {.field = "EvaluationResult.accuracy_normalised", .max = 1},
    {.field = "EvaluationResult.accuracy_bytes", .max = 1},
    {.field = "EvaluationResult.perplexity", .any_number = true},
    {.field = "EvaluationResult.seconds", .max = kSecondsMax},
    {.field = "StepReport.held_out", .max_entries = spec::kEvaluatedOnMax},
    {.field = "StepReport.sources", .max_entries = spec::kReportedSourcesMax},
    {.field = "SourceReport.loss", .any_number = true},
    {.field = "SourceReport.passes", .max = kCountMax},
    {.field = "StepReport.samples", .max_entries = spec::kSamplesMax},
    // Models write any character.
    {.field = "SampleText.prompt",
     .max_bytes = spec::kSamplePromptBytesMax,
     .text = TextKind::kAny},
    {.field = "SampleText.text", .max_bytes = spec::kSampleTextBytesMax, .text = TextKind::kAny},
    {.field = "SampleText.step", .max = kStepMax},
    {.field = "SampleText.tokens", .max = spec::kSampleTokensMax},
    {.field = "HeldOutLoss.loss", .any_number = true},
    {.field = "HeldOutLoss.bits_per_byte", .any_number = true},
    {.field = "HeldOutLoss.tokens", .max = kCountMax},
    {.field = "TensorStats.layer", .min = -1},
    {.field = "TensorStats.role", .max_bytes = 16},
    {.field = "TensorStats.amax", .any_number = true},
    {.field = "TensorStats.underflow_ratio", .any_number = true},
    {.field = "TensorStats.saturation_ratio", .any_number = true},
    {.field = "GuardDecision.step", .max = kStepMax},
    {.field = "GuardDecision.until_step", .min = -1},
    {.field = "GuardDecision.loss", .any_number = true},
    {.field = "GuardDecision.grad_norm", .any_number = true},
    {.field = "GuardDecision.loss_limit", .any_number = true},
    {.field = "GuardDecision.grad_norm_limit", .any_number = true},
    {.field = "GuardDecision.text", .text = TextKind::kText},
    {.field = "GuardCounts.non_finite", .max = kCountMax},
    {.field = "GuardCounts.spike", .max = kCountMax},
    {.field = "GuardCounts.grad_spike", .max = kCountMax},
    {.field = "GuardCounts.redone_steps", .max = kCountMax},
    {.field = "GuardCounts.remedies", .max = kCountMax},
    {.field = "GuardCounts.fallbacks", .max = kCountMax},
    {.field = "TaskReport.trial", .max_message_bytes = 64 << 10},
    {.field = "PrecisionTrial.text", .text = TextKind::kText},
    {.field = "PrecisionTrial.max_gap", .any_number = true},
    {.field = "PrecisionTrialRun.training_loss", .any_number = true},
    {.field = "PrecisionTrialRun.held_out_loss", .any_number = true},
    {.field = "PrecisionTrialRun.gap", .any_number = true},
    {.field = "PrecisionTrialRun.problem", .text = TextKind::kText},
    // The core cuts a line that is too long; here its bound is that of a message.
    {.field = "LogBatch.lines", .max_entries = 65536},
    {.field = "LogBatch.dropped", .max = kDroppedMax},
    {.field = "LogLine.text", .max_bytes = kRefusedLater, .text = TextKind::kAny},
    {.field = "LogLine.level", .max_bytes = 16},
    {.field = "LogLine.epoch", .max = kCountMax},
    {.field = "LogLine.rank", .max = 65535},
    {.field = "LogLine.cursor", .max = kCountMax},
    {.field = "CheckpointAnnouncement.step", .min = 1, .max = kStepMax},
    {.field = "CheckpointAnnouncement.bytes", .max = kCountMax * 64},
    {.field = "CheckpointAnnouncement.manifest_sha256", .max_bytes = 64},
    {.field = "CheckpointAnnouncement.seconds", .max = kSecondsMax},
    {.field = "CheckpointAnnouncement.validation_loss", .any_number = true},
    {.field = "CheckpointAnnouncement.removed_steps", .max = kStepMax},
    {.field = "KvPut.key", .max_bytes = kRefusedLater, .text = TextKind::kAny},
    {.field = "KvPut.value", .max_bytes = kRefusedLater},
    {.field = "TaskReport.exit", .max_message_bytes = 256 << 10},
    {.field = "TaskReport.dying", .max_message_bytes = 256 << 10},
    {.field = "TrainerExit.message", .text = TextKind::kText},
    {.field = "TrainerExit.step", .max = kStepMax},
    {.field = "TrainerExit.checkpoint_step", .max = kStepMax},
    {.field = "TaskExit.wait_status", .min = -65536, .max = 65536},
    {.field = "TaskExit.unclean_reason", .text = TextKind::kText},
    {.field = "TaskExit.silent_seconds", .max = kSecondsMax},
    {.field = "TaskDying.seconds", .max = kSecondsMax},
    // What it was asked.
    {.field = "TaskKvWait.job_id", .max_bytes = kIdBytes},
    {.field = "TaskKvWait.epoch", .max = kCountMax},
    {.field = "TaskKvWait.rank", .max = 65535},
    {.field = "TaskKvWait.key", .max_bytes = 256, .text = TextKind::kAny},
    {.field = "InspectPathsResult.request_id", .max = kCountMax},
    {.field = "InspectPathsResult.paths", .max_entries = 4096},
    {.field = "PathInfo.path", .max_bytes = kRefusedLater, .text = TextKind::kAny},
    {.field = "PathInfo.error", .max_bytes = kRefusedLater, .text = TextKind::kAny},
    {.field = "PathInfo.kind", .max_bytes = 32},
    {.field = "PathInfo.tokens", .max = kCountMax / 1024},
    {.field = "PathInfo.model", .max_message_bytes = 64 << 10},
    {.field = "TokenizerFacts.kind", .max_bytes = 32},
    {.field = "TokenizerFacts.file", .max_bytes = 255},
    {.field = "TokenizerFacts.sha256", .max_bytes = 64},
    {.field = "TokenizerFacts.probe", .max_entries = 1024},
    {.field = "AgentMessage.checkpoint_bytes", .max_message_bytes = 320 << 10},
    {.field = "CheckpointFileBytes.request_id", .max = kCountMax},
    {.field = "CheckpointFileBytes.code", .max = 16},
    {.field = "CheckpointFileBytes.error", .text = TextKind::kText},
    {.field = "CheckpointFileBytes.data", .max_bytes = kPieceBytes, .text = TextKind::kAny},
    {.field = "CheckpointFileBytes.file_bytes", .max = kCountMax * 1024},
    {.field = "AgentMessage.written", .max_message_bytes = 128 << 10},
    {.field = "WrittenText.request_id", .max = kCountMax},
    {.field = "WrittenText.code", .max = 16},
    {.field = "WrittenText.error", .text = TextKind::kText},
    // A model's words: any character.
    {.field = "WrittenText.text", .max_bytes = 64 << 10, .text = TextKind::kAny},
    {.field = "AgentMessage.checkpoint_folders", .max_message_bytes = 4 << 20},
    {.field = "CheckpointFolders.request_id", .max = kCountMax},
    {.field = "CheckpointFolders.folders", .max_entries = 2000},
    {.field = "CheckpointFolder.job_id", .max_bytes = 255},
    {.field = "CheckpointFolder.epoch", .max = kCountMax},
    {.field = "CheckpointFolder.name", .max_bytes = 255},
    {.field = "CheckpointFolder.step", .max = kStepMax},
    {.field = "CheckpointFolder.bytes", .max = kCountMax * 64},
    {.field = "google.protobuf.Timestamp.seconds", .min = -62135596800, .max = 253402300799},
    {.field = "google.protobuf.Timestamp.nanos", .max = 999999999},
};

const rpc::FieldRules& Rules() {
  static const auto* const rules = new rpc::FieldRules(FieldRule{}, kRules);
  return *rules;
}

absl::Status CheckHello(const v1::Hello& hello) {
  if (!hello.checkpoint_root().empty() && !IsCleanPath(hello.checkpoint_root())) {
    return rpc::FieldError("hello.checkpoint_root", "is not a clean absolute path");
  }
  for (int i = 0; i < hello.tasks_size(); ++i) {
    if (hello.tasks(i).first_unacked_seq() > hello.tasks(i).last_seq()) {
      return rpc::FieldError(absl::StrCat("hello.tasks[", i, "].first_unacked_seq"),
                             "is past last_seq");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCheckpoint(const v1::TaskReport& report, std::string_view root) {
  const std::string& path = report.checkpoint().path();
  const std::string folder = absl::StrCat(absl::string_view(root.data(), root.size()), "/",
                                          report.job_id(), "/e", report.epoch(), "/");
  return IsCleanPath(path) && path.starts_with(folder)
             ? absl::OkStatus()
             : rpc::FieldError("report.checkpoint.path",
                               absl::StrCat("is not below ", folder, " of this worker"));
}

// Names below the root: what the coordinator may answer with a path to remove.
absl::Status CheckFolders(const v1::CheckpointFolders& listing) {
  const auto plain = [](const std::string& name) {
    return name.find('/') == std::string::npos && name != "." && name != "..";
  };
  for (int i = 0; i < listing.folders_size(); ++i) {
    const v1::CheckpointFolder& folder = listing.folders(i);
    if (folder.job_id().empty() || !plain(folder.job_id()) || !plain(folder.name())) {
      return rpc::FieldError(absl::StrCat("checkpoint_folders.folders[", i, "]"),
                             "is not a folder name");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const FieldRule> AgentFieldRules() {
  return kRules;
}

bool IsCleanPath(std::string_view path) {
  absl::string_view rest(path.data(), path.size());
  if (!absl::ConsumePrefix(&rest, "/")) {
    return false;
  }
  if (rest.empty()) {
    return true;
  }
  for (const absl::string_view part : absl::StrSplit(rest, '/')) {
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
  }
  return true;
}

absl::Status CheckAgentMessage(const v1::AgentMessage& message, std::string_view checkpoint_root) {
  absl::Status status = Rules().Check(message);
  if (status.ok() && message.has_hello()) {
    status = CheckHello(message.hello());
  }
  if (status.ok() && message.has_report() && message.report().has_checkpoint()) {
    // The root "/" has no name of its own in front of the job's.
    status = CheckCheckpoint(message.report(), checkpoint_root == "/" ? "" : checkpoint_root);
  }
  if (status.ok() && message.has_checkpoint_folders()) {
    status = CheckFolders(message.checkpoint_folders());
  }
  return status;
}

}  // namespace hearth::coordinator
