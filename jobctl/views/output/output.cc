#include "jobctl/views/output/output.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/config/scalars.h"
#include "common/spec/objective/objective_table.h"
#include "common/time/clock.h"
#include "google/protobuf/util/json_util.h"
#include "jobctl/views/output/table.h"
#include "jobctl/views/text/display_text.h"
#include "jobctl/views/text/terminal.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/yaml.h"

namespace hearth::jobctl {
namespace {

using Json = nlohmann::ordered_json;

void EmitYaml(const Json& json, YAML::Emitter& out) {
  if (json.is_object()) {
    out << YAML::BeginMap;
    for (const auto& [key, value] : json.items()) {
      out << YAML::Key;
      if (config::FormatString(key) != key) {
        out << YAML::DoubleQuoted;  // such as on, which YAML 1.1 readers take for true
      }
      out << key << YAML::Value;
      EmitYaml(value, out);
    }
    out << YAML::EndMap;
  } else if (json.is_array()) {
    out << YAML::BeginSeq;
    for (const Json& item : json) {
      EmitYaml(item, out);
    }
    out << YAML::EndSeq;
  } else if (json.is_string()) {
    // Quoted, or readers would take texts such as true or 1 for something else.
    out << YAML::DoubleQuoted << json.get<std::string>();
  } else if (json.is_null()) {
    out << YAML::Null;  // the emitter quotes the text
  } else {
    out << json.dump();
  }
}

// What is left of the host's memory, and all of it.
std::string HostMemoryText(const v1::Worker& worker) {
  constexpr double kGiB = 1 << 30;
  const auto all = static_cast<double>(worker.device().host_memory_bytes());
  const auto left = static_cast<double>(worker.device_status().host_memory_available_bytes());
  return all == 0 ? "-" : absl::StrFormat("%.1f/%.1fGiB", left / kGiB, all / kGiB);
}

// "a=1,b=2" by key.
std::string LabelsText(const v1::Job& job) {
  const auto& labels = job.spec().labels();
  std::vector<std::string> pairs;
  for (const auto& [key, value] : labels) {
    pairs.push_back(absl::StrCat(key, "=", value));
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs.empty() ? "-" : absl::StrJoin(pairs, ",");
}

int WorkerCount(const v1::Job& job) {
  return job.workers_size();
}

// The tables of events.
enum EventTable : unsigned {
  kNarrowOfOne = 1,
  kNarrowOfSeveral = 2,
  kWideOfOne = 4,
  kWideOfSeveral = 8,
};
constexpr unsigned kNarrow = kNarrowOfOne | kNarrowOfSeveral;
constexpr unsigned kWide = kWideOfOne | kWideOfSeveral;

struct EventColumn {
  const char* header;
  unsigned tables;  // those that have it
  std::string (*cell)(const v1::JobEvent& event);
};

std::string TimeWithoutYear(const v1::JobEvent& event) {
  constexpr size_t kYear = 5;  // characters of "2026-"
  const std::string time = TimeText(event.time());
  return time.size() <= kYear ? time : time.substr(kYear);
}

std::string FromState(const v1::JobEvent& event) {
  const bool from = event.to_state() != v1::JOB_STATE_UNSPECIFIED &&
                    event.from_state() != v1::JOB_STATE_UNSPECIFIED;
  return from ? StateName(event.from_state()) : "-";
}

std::string ToState(const v1::JobEvent& event) {
  return event.to_state() == v1::JOB_STATE_UNSPECIFIED ? "-" : StateName(event.to_state());
}

// 80 columns hold the id of a job only without actor and step.
constexpr EventColumn kEventColumns[] = {
    {"TIME", kNarrow, TimeWithoutYear},
    {"TIME", kWide, [](const v1::JobEvent& event) { return TimeText(event.time()); }},
    {"JOB", kNarrowOfSeveral | kWideOfSeveral,
     [](const v1::JobEvent& event) { return event.job_id(); }},
    {"TYPE", kNarrow | kWide, [](const v1::JobEvent& event) { return event.type(); }},
    {"ACTOR", kNarrowOfOne | kWide, [](const v1::JobEvent& event) { return event.actor(); }},
    {"FROM", kWide, FromState},
    {"TO", kWide, ToState},
    {"STATE", kNarrow, ToState},
    {"EPOCH", kWide, [](const v1::JobEvent& event) { return absl::StrCat(event.epoch()); }},
    {"STEP", kNarrowOfOne | kWide,
     [](const v1::JobEvent& event) { return absl::StrCat(event.step()); }},
    {"WHAT", kNarrow | kWide, [](const v1::JobEvent& event) { return event.message(); }},
};

}  // namespace

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) {
    return absl::InternalError(absl::StrCat("cannot print as JSON: ", status.ToString()));
  }
  return json;
}

absl::StatusOr<std::string> ToYaml(const google::protobuf::Message& message) {
  const absl::StatusOr<std::string> json = ToJson(message);
  if (!json.ok()) {
    return json.status();
  }
  const Json parsed = Json::parse(*json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    return absl::InternalError("protobuf printed JSON that does not parse");
  }
  return ToYaml(parsed);
}

std::string ToYaml(const Json& json) {
  YAML::Emitter out;
  EmitYaml(json, out);
  return absl::StrCat(out.c_str(), "\n");
}

std::string JsonAs(const OutputFormat& format, const std::string& json) {
  return format == OutputFormat::kYaml ? ToYaml(nlohmann::ordered_json::parse(json)) : json;
}

absl::StatusOr<bool> PrintMessage(const OutputFormat& format,
                                  const google::protobuf::Message& message) {
  if (!format.data()) {
    return false;
  }
  if (format == OutputFormat::kJsonPath) {
    HEARTH_ASSIGN_OR_RETURN(const std::string values, format.path().Print(message));
    WriteOut(absl::EndsWith(values, "\n") ? values : values + "\n");
    return true;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text,
                          format == OutputFormat::kJson ? ToJson(message) : ToYaml(message));
  WriteOut(text);
  return true;
}

absl::Status PrintJobs(const OutputFormat& format,
                       const std::vector<v1::Job>& jobs,
                       const google::protobuf::Message& whole,
                       const std::vector<ExtraCell>& extra) {
  const absl::StatusOr<bool> printed = PrintMessage(format, whole);
  if (!printed.ok() || *printed) {
    return printed.status();
  }
  if (format == OutputFormat::kName) {
    for (const v1::Job& job : jobs) {
      WriteOut(absl::StrCat("job/", job.job_id(), "\n"));
    }
    return absl::OkStatus();
  }
  WriteOut(
      RenderJobs(jobs, format == OutputFormat::kWide, extra, Clock::Real().Now(), FitColumns()));
  return absl::OkStatus();
}

std::string LossText(const v1::Job& job) {
  if (!spec::Trains(job.spec())) {
    const v1::StepReport& last = job.last_report();
    return last.has_validation_loss() ? Number(last.validation_loss(), 4) : "-";
  }
  return job.step() > 0 ? Number(job.last_report().loss(), 4) : "-";
}

std::string SpeedText(const v1::Job& job) {
  const bool live = job.state() == v1::JOB_STATE_RUNNING;
  return live && job.last_report().tokens_per_second() > 0
             ? FormatCount(job.last_report().tokens_per_second())
             : "-";
}

std::string RenderJobs(const std::vector<v1::Job>& jobs,
                       bool wide,
                       const std::vector<ExtraCell>& extra,
                       absl::Time now,
                       int columns) {
  std::vector<std::string> header = {"NAME", "STATE", "STEP", "LOSS", "TOK/S", "WORKERS"};
  if (wide) {
    header.insert(header.end(),
                  {"OWNER", "PRIORITY", "EPOCH", "RECIPE", "CHECKPOINT", "LABELS", "REASON"});
  }
  for (const ExtraCell& cell : extra) {
    header.push_back(cell.header);
  }
  header.push_back("AGE");
  Table table(header);
  if (wide) {
    table.Whole();
  }
  for (const v1::Job& job : jobs) {
    std::vector<std::string> row = {
        job.job_id(),
        StateName(job.state()),
        absl::StrCat(job.step(), "/", spec::TotalSteps(job)),
        LossText(job),
        SpeedText(job),
        absl::StrCat(WorkerCount(job), "/", job.spec().resources().workers())};
    if (wide) {
      row.push_back(job.owner().empty() ? "-" : job.owner());
      row.push_back(absl::StrCat(job.spec().resources().priority()));
      row.push_back(absl::StrCat(job.epoch()));
      row.push_back(job.spec().precision().recipe());
      row.push_back(job.has_checkpoint() ? absl::StrCat(job.checkpoint().step()) : "-");
      row.push_back(LabelsText(job));
      row.push_back(job.reason().empty() ? "-" : job.reason());
    }
    for (const ExtraCell& cell : extra) {
      row.push_back(cell.text);
    }
    row.push_back(HumanDuration(now - TimeOf(job.create_time())));
    table.Add(std::move(row));
  }
  return table.Render(columns);
}

std::string RenderEvents(const std::vector<v1::JobEvent>& events, bool wide, int columns) {
  const bool several = std::any_of(events.begin(), events.end(), [&](const v1::JobEvent& event) {
    return event.job_id() != events.front().job_id();
  });
  const unsigned kind =
      wide ? (several ? kWideOfSeveral : kWideOfOne) : (several ? kNarrowOfSeveral : kNarrowOfOne);
  std::vector<std::string> header;
  for (const EventColumn& column : kEventColumns) {
    if ((column.tables & kind) != 0) {
      header.emplace_back(column.header);
    }
  }
  Table table(header);
  table.Keep(0);
  if (wide) {
    table.Whole();
  }
  for (const v1::JobEvent& event : events) {
    std::vector<std::string> row;
    for (const EventColumn& column : kEventColumns) {
      if ((column.tables & kind) != 0) {
        row.push_back(column.cell(event));
      }
    }
    table.Add(std::move(row));
  }
  return table.Render(columns);
}

absl::Status PrintWorkers(const OutputFormat& format,
                          const std::vector<v1::Worker>& workers,
                          const google::protobuf::Message& whole) {
  const absl::StatusOr<bool> printed = PrintMessage(format, whole);
  if (!printed.ok() || *printed) {
    return printed.status();
  }
  if (format == OutputFormat::kName) {
    for (const v1::Worker& worker : workers) {
      WriteOut(absl::StrCat("worker/", worker.worker_id(), "\n"));
    }
    return absl::OkStatus();
  }
  WriteOut(
      RenderWorkers(workers, format == OutputFormat::kWide, Clock::Real().Now(), FitColumns()));
  return absl::OkStatus();
}

std::string RenderWorkers(const std::vector<v1::Worker>& workers,
                          bool wide,
                          absl::Time now,
                          int columns) {
  std::vector<std::string> header = {"NAME", "STATE", "DEVICE", "MEMORY", "JOB"};
  if (wide) {
    header.insert(header.end(), {"BUSY", "POWER", "HOST", "HOST MEMORY", "MODEL", "HTTP",
                                 "CHECKPOINTS", "REASON"});
  }
  header.push_back("SEEN");
  Table table(header);
  if (wide) {
    table.Whole();
  }
  for (const v1::Worker& worker : workers) {
    const v1::DeviceInfo& device = worker.device();
    std::string state = StateName(worker.state());
    if (worker.draining()) {
      state += ",draining";
    } else if (worker.cordoned()) {
      state += ",cordoned";
    }
    std::vector<std::string> row = {
        worker.worker_id(), state,
        device.kind() == "cpu" ? absl::StrCat("cpu/", device.threads())
                               : absl::StrCat(device.kind(), ":", device.index()),
        absl::StrFormat("%.1fGiB", static_cast<double>(device.memory_bytes()) / (1 << 30)),
        worker.job_id().empty() ? "-" : worker.job_id()};
    if (wide) {
      const v1::DeviceStatus& status = worker.device_status();
      row.insert(row.end(),
                 {absl::StrFormat("%.0f%%", status.utilization_ratio() * 100.0),
                  status.power_watts() > 0.0 ? absl::StrFormat("%.0fW", status.power_watts()) : "-",
                  worker.host(), HostMemoryText(worker), device.model(), worker.http_address(),
                  worker.checkpoint_root(), worker.reason().empty() ? "-" : worker.reason()});
    }
    row.push_back(worker.has_last_seen_time() ? HumanDuration(now - TimeOf(worker.last_seen_time()))
                                              : "-");
    table.Add(std::move(row));
  }
  return table.Render(columns);
}
absl::Status PrintMutation(const OutputFormat& format,
                           bool quiet,
                           std::string_view resource,
                           std::string_view verbed,
                           const google::protobuf::Message& message) {
  const absl::StatusOr<bool> printed = PrintMessage(format, message);
  if (!printed.ok() || *printed) {
    return printed.status();
  }
  const std::string name(resource);
  if (format == OutputFormat::kName || quiet) {
    WriteOut(name + "\n");
  } else {
    WriteOut(absl::StrCat(name, " ", std::string(verbed), "\n"));
  }
  return absl::OkStatus();
}

bool Ended(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

bool Rests(v1::JobState state) {
  return Ended(state) || state == v1::JOB_STATE_PAUSED;
}

std::string StateName(v1::JobState state) {
  const std::string name = v1::JobState_Name(state);
  return std::string(absl::StripPrefix(name, "JOB_STATE_"));
}

std::string StateName(v1::WorkerState state) {
  const std::string name = v1::WorkerState_Name(state);
  return std::string(absl::StripPrefix(name, "WORKER_STATE_"));
}

absl::Time TimeOf(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

std::string TimeText(const google::protobuf::Timestamp& timestamp) {
  if (timestamp.seconds() == 0) {
    return "-";
  }
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", TimeOf(timestamp), absl::LocalTimeZone());
}

int FitColumns() {
  return IsTerminal() ? SizeOfTerminal().columns : 0;
}

void WriteOut(std::string_view text) {
  WriteTerminal(EscapeControl(text, /*keep_lines=*/true));
}

void WriteErr(std::string_view text) {
  const std::string safe = EscapeControl(text, /*keep_lines=*/true);
  std::fwrite(safe.data(), 1, safe.size(), stderr);
}

void WriteTerminal(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace hearth::jobctl
