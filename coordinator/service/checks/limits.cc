#include "coordinator/service/checks/limits.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/clip_text.h"

namespace hearth::coordinator {
namespace {

using rpc::FieldRule;
using rpc::TextKind;

constexpr int64_t kIdBytes = 128;  // longer than any id that there can be
constexpr int64_t kRequestIdBytes = 128;
constexpr double kCursorMax = 0x1p62;

constexpr FieldRule kDefault = {.min = std::numeric_limits<double>::lowest(),
                                .max = std::numeric_limits<double>::max(),
                                .any_number = true};

constexpr FieldRule kRules[] = {
    {.field = "*.page_token", .max_bytes = 512},
    {.field = "*.etag", .max_bytes = 64},
    {.field = "*.request_id", .max_bytes = kRequestIdBytes},
    {.field = "*.worker_id", .max_bytes = kIdBytes},
    {.field = "*.job_id", .max_bytes = kIdBytes},
    {.field = "CreateJobRequest.spec", .max_message_bytes = kSpecBytes},
    {.field = "PlanJobRequest.spec", .max_message_bytes = kSpecBytes},
    {.field = "PlanJobRequest.gpus", .max_bytes = 128, .max_entries = 64},
    {.field = "ListJobPlansRequest.gpu", .max_bytes = 128},
    {.field = "UpdateJobRequest.labels", .max_entries = 64},
    // Labels are checked as those of a job file; but any that is there can be removed.
    {.field = "UpdateJobRequest.LabelsEntry.key", .max_bytes = 1 << 20, .text = TextKind::kAny},
    {.field = "UpdateJobRequest.LabelsEntry.value", .text = TextKind::kAny},
    {.field = "AddNoteRequest.text", .max_bytes = 2048},
    {.field = "ResumeJobRequest.overrides", .max_entries = 256},
    {.field = "WatchJobRequest.cursor", .min = 0, .max = kCursorMax},
    {.field = "StreamMetricsRequest.cursor", .min = 0, .max = kCursorMax},
    {.field = "StreamMetricsRequest.from_step", .min = 0, .max = kCursorMax},
    {.field = "StreamLogsRequest.cursor", .min = 0, .max = kCursorMax},
    {.field = "DownloadCheckpointRequest.step", .min = 0, .max = kCursorMax},
    {.field = "DownloadCheckpointRequest.file", .max_bytes = 1024},
    {.field = "DownloadCheckpointRequest.offset", .min = 0, .max = kCursorMax},
    {.field = "SampleCheckpointRequest.step", .min = 0, .max = kCursorMax},
    {.field = "TextRequest.prompt", .max_bytes = 256 << 10, .text = TextKind::kAny},
    {.field = "TextRequest.max_tokens", .min = 0, .max = 65536},
    {.field = "TextRequest.temperature", .min = 0, .max = 100},
    {.field = "TextRequest.top_k", .min = 0, .max = 1 << 20},
    {.field = "TextRequest.top_p", .min = 0, .max = 1},
    {.field = "TextRequest.min_p", .min = 0, .max = 1},
    {.field = "TextRequest.repetition_penalty", .min = 1e-3, .max = 1e3},
    {.field = "TextRequest.stop", .max_bytes = 256, .max_entries = 16, .text = TextKind::kAny},
    {.field = "TextRequest.seed", .min = 0, .max = kCursorMax},
    {.field = "PruneCheckpointsRequest.min_age_seconds", .min = 0, .max = 1e12},
    {.field = "DeclareLostRequest.worker_ids", .max_bytes = kIdBytes, .max_entries = 1000},
};

}  // namespace

absl::Span<const FieldRule> RequestFieldRules() {
  return kRules;
}

absl::Status CheckRequest(const google::protobuf::Message& request) {
  static const auto* const rules = new rpc::FieldRules(kDefault, kRules);
  return rules->Check(request);
}

v1::Job ListEntry(const v1::Job& job) {
  const auto size = static_cast<int64_t>(job.ByteSizeLong());
  if (size <= kListEntryBytes) {
    return job;
  }
  // What an older coordinator took in without limits: the parts that have none of their own go.
  v1::Job entry = job;
  entry.mutable_spec()->clear_data();
  entry.mutable_spec()->mutable_model()->clear_from();
  entry.mutable_spec()->mutable_precision()->Clear();
  entry.mutable_last_report()->clear_worst_tensors();
  entry.mutable_last_report()->clear_tensors();
  entry.mutable_last_report()->clear_evaluations();
  entry.mutable_last_report()->clear_samples();
  entry.mutable_last_report()->clear_sources();
  entry.mutable_spec()->mutable_train()->clear_evaluations();
  entry.mutable_spec()->mutable_train()->clear_samples();
  entry.mutable_spec()->clear_evaluate();
  entry.mutable_spec()->clear_notify();
  entry.clear_notifications();
  entry.clear_models();
  entry.clear_trial();
  entry.clear_warnings();
  if (static_cast<int64_t>(entry.ByteSizeLong()) > kListEntryBytes) {
    entry.mutable_spec()->clear_labels();
    entry.mutable_spec()->mutable_resources()->clear_selector();
    entry.mutable_spec()->mutable_optimizer()->clear_groups();
    entry.clear_devices();
    entry.clear_checkpoint();
    entry.set_reason(ClipText(job.reason(), 4096));
  }
  if (static_cast<int64_t>(entry.ByteSizeLong()) > kListEntryBytes) {
    v1::Job least;
    least.set_job_id(job.job_id());
    least.mutable_spec()->set_name(ClipText(job.spec().name(), 63));
    least.set_state(job.state());
    least.set_reason_code(job.reason_code());
    *least.mutable_create_time() = job.create_time();
    entry = std::move(least);
  }
  entry.add_warnings(absl::StrCat("shortened here: the whole job has ", size, " bytes"));
  return entry;
}

v1::Worker ListEntry(const v1::Worker& worker) {
  const auto size = static_cast<int64_t>(worker.ByteSizeLong());
  if (size <= kListEntryBytes) {
    return worker;
  }
  v1::Worker entry;
  entry.set_worker_id(worker.worker_id());
  entry.set_state(worker.state());
  entry.set_cordoned(worker.cordoned());
  entry.set_draining(worker.draining());
  entry.set_host(ClipText(worker.host(), 253));
  entry.mutable_device()->set_kind(ClipText(worker.device().kind(), 16));
  entry.set_reason(absl::StrCat("shortened here: the whole worker has ", size, " bytes"));
  *entry.mutable_last_seen_time() = worker.last_seen_time();
  return entry;
}

}  // namespace hearth::coordinator
