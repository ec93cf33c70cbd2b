#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/link/link.h"

namespace hearth::trainer {
namespace {

// Lines of metrics.jsonl of steps up to `last_step`; damaged lines (a crash in mid-write) go.
std::string KeptLines(std::string_view text, int64_t last_step) {
  std::string kept;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const auto json =
        nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) {
      continue;
    }
    const auto step = json.find("step");
    if (step == json.end()) {
      continue;
    }
    // int64 is a string in protobuf's JSON mapping.
    int64_t number = -1;
    if (step->is_string()) {
      number = std::strtoll(step->get<std::string>().c_str(), nullptr, 10);
    }
    if (step->is_number_integer()) {
      number = step->get<int64_t>();
    }
    if (number >= 0 && number <= last_step) {
      absl::StrAppend(&kept, line, "\n");
    }
  }
  return kept;
}

class StandaloneLinkImpl : public StandaloneLink {
 public:
  StandaloneLinkImpl(v1::Task task, bool quiet, Clock& clock)
      : task_(std::move(task)), quiet_(quiet), values_(clock) {}

  absl::Status Open(const std::string& out_dir, Env& env) {
    HEARTH_RETURN_IF_ERROR(env.CreateDirs(out_dir));
    std::vector<std::string> of_before = {"/run.json", "/exit.json"};
    if (task_.resume_step() == 0) {
      of_before.emplace_back("/trial.json");
    }
    for (const std::string& name : of_before) {
      HEARTH_RETURN_IF_ERROR(env.RemoveAll(absl::StrCat(out_dir, name)));
    }
    env_ = &env;
    out_dir_ = out_dir;
    const std::string path = absl::StrCat(out_dir, "/metrics.jsonl");
    std::string kept;
    if (task_.resume_step() > 0 && env.Exists(path)) {
      HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(path));
      kept = KeptLines(text, task_.resume_step());
    }
    HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(path, kept));
    absl::MutexLock lock(&mu_);
    HEARTH_ASSIGN_OR_RETURN(metrics_, env.NewAppendableFile(path));
    return absl::OkStatus();
  }

  const v1::Task& task() const override { return task_; }
  uint64_t TakeControl() override { return control_.exchange(0); }
  void RequestControl(v1::ControlBit bit) override { control_.fetch_or(uint64_t{1} << (bit & 63)); }

  void SendRunInfo(const v1::RunInfo& info) override {
    WriteJson("run.json", info);
    Line(absl::StrFormat(
        "%d parameters, micro-batch %d, %d tokens a step, recipe %s (%s) on %s, from step %d",
        info.parameters(), info.micro_batch_size(), info.global_batch_tokens(), info.recipe(),
        info.recipe_execution(), info.device(), info.start_step()));
  }

  void SendTrial(const v1::PrecisionTrial& trial) override {
    WriteJson("trial.json", trial);
    Line(trial.text());
  }

  void SendStep(const v1::StepReport& report) override {
    std::string json;
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    if (google::protobuf::util::MessageToJsonString(report, &json, options).ok()) {
      json += '\n';
      absl::MutexLock lock(&mu_);
      const absl::Status status = metrics_->Append(json);
      if (!status.ok() && !std::exchange(complained_, true)) {
        std::fprintf(stderr, "warning: %s\n", status.ToString().c_str());
      }
    }
    // What was found of a model is in the log.
    if (!task_.models().empty()) {
      Line(absl::StrCat("model ", report.step(), "/", task_.models_size()));
      return;
    }
    std::string line =
        absl::StrFormat("step %d/%d  loss %.4f  grad %.3f  lr %.3g  %.0f tok/s", report.step(),
                        task_.spec().train().steps(), report.loss(), report.grad_norm(),
                        report.learning_rate(), report.tokens_per_second());
    if (report.has_validation_loss()) {
      absl::StrAppendFormat(&line, "  validation %.4f", report.validation_loss());
    }
    Line(line);
  }

  void SendCheckpoint(const v1::CheckpointAnnouncement& checkpoint) override {
    Line(absl::StrFormat("checkpoint of step %d: %s (%d bytes, %.2f s)", checkpoint.step(),
                         checkpoint.path(), checkpoint.bytes(), checkpoint.seconds()));
  }

  void SendProgress(int64_t, double) override {}
  void SendPhase(std::string_view) override {}

  void SendLog(std::string_view level, std::string_view text) override {
    if (level == "debug") {
      return;
    }
    std::fprintf(stderr, "%s: %s\n", std::string(level).c_str(), std::string(text).c_str());
  }

  void SendExit(const v1::TrainerExit& exit) override {
    {
      absl::MutexLock lock(&mu_);
      metrics_->Sync().IgnoreError();
    }
    WriteJson("exit.json", exit);
  }

  absl::Status Put(std::string_view key, std::string_view value) override {
    return values_.Put(key, value);
  }
  absl::StatusOr<std::string> Wait(std::string_view key, absl::Duration timeout) override {
    return values_.Wait(key, timeout);
  }

 private:
  void WriteJson(const std::string& name, const google::protobuf::Message& message) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    options.always_print_primitive_fields = true;
    std::string json;
    if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) {
      return;  // our own messages always print
    }
    const absl::Status status =
        env_->WriteFileAtomically(absl::StrCat(out_dir_, "/", name), json + "\n");
    if (!status.ok()) {
      std::fprintf(stderr, "warning: %s\n", status.ToString().c_str());
    }
  }

  void Line(const std::string& text) {
    if (quiet_) {
      return;
    }
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }

  const v1::Task task_;
  const bool quiet_;
  Env* env_ = nullptr;
  std::string out_dir_;
  LocalKeyValueStore values_;
  std::atomic<uint64_t> control_{0};
  absl::Mutex mu_;
  std::unique_ptr<WritableFile> metrics_ ABSL_GUARDED_BY(mu_);
  bool complained_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StandaloneLink>> NewStandaloneLink(
    v1::Task task, const std::string& out_dir, bool quiet, Env& env, Clock& clock) {
  auto link = std::make_unique<StandaloneLinkImpl>(std::move(task), quiet, clock);
  HEARTH_RETURN_IF_ERROR(link->Open(out_dir, env));
  return std::unique_ptr<StandaloneLink>(std::move(link));
}

}  // namespace hearth::trainer
