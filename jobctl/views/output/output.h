// stdout is data, stderr is messages. All formatting of the commands' answers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"
#include "jobctl/views/output/output_format.h"
#include "nlohmann/json_fwd.hpp"

namespace hearth::jobctl {

// Protobuf's JSON mapping, indented, with zero-valued fields, newline at the end.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message);
absl::StatusOr<std::string> ToYaml(const google::protobuf::Message& message);
// The same value as YAML, newline at the end. Strings must be UTF-8.
std::string ToYaml(const nlohmann::ordered_json& json);
// The JSON text itself, or the same value as YAML if that is the format.
std::string JsonAs(const OutputFormat& format, const std::string& json);
// Prints `message` as JSON or YAML, or the part of it that a template asks for. False: another
// format was asked for, and nothing is printed. kInvalidArgument: JsonPath::Print.
absl::StatusOr<bool> PrintMessage(const OutputFormat& format,
                                  const google::protobuf::Message& message);

// An additional column, for one row.
struct ExtraCell {
  std::string header;
  std::string text;
};

// Prints a list of jobs or workers in the format asked for. `whole` is what JSON and YAML show;
// `extra` stands before the age in tables, for lists of one job.
absl::Status PrintJobs(const OutputFormat& format,
                       const std::vector<v1::Job>& jobs,
                       const google::protobuf::Message& whole,
                       const std::vector<ExtraCell>& extra = {});
absl::Status PrintWorkers(const OutputFormat& format,
                          const std::vector<v1::Worker>& workers,
                          const google::protobuf::Message& whole);

// The tables of those, and of events; events of several jobs have a column for the job. `columns`
// as in Table::Render; ages are those at `now`. `wide`: with all columns, and nothing is cut.
std::string RenderJobs(const std::vector<v1::Job>& jobs,
                       bool wide,
                       const std::vector<ExtraCell>& extra,
                       absl::Time now,
                       int columns);
std::string RenderWorkers(const std::vector<v1::Worker>& workers,
                          bool wide,
                          absl::Time now,
                          int columns);
std::string RenderEvents(const std::vector<v1::JobEvent>& events, bool wide, int columns);

// Cells of tables of jobs: the newest loss (held-out, if the task reads models and trains none);
// tokens a second while the job runs. "-" = none.
std::string LossText(const v1::Job& job);
std::string SpeedText(const v1::Job& job);

// After a mutation: "job/ID verbed", or the message itself under -o json|yaml|name.
absl::Status PrintMutation(const OutputFormat& format,
                           bool quiet,
                           std::string_view resource,
                           std::string_view verbed,
                           const google::protobuf::Message& message);

// SUCCEEDED, FAILED or CANCELLED.
bool Ended(v1::JobState state);
// Ended, or PAUSED: nothing happens until somebody resumes the job.
bool Rests(v1::JobState state);
std::string StateName(v1::JobState state);     // "RUNNING"
std::string StateName(v1::WorkerState state);  // "IDLE"
absl::Time TimeOf(const google::protobuf::Timestamp& timestamp);
// Local time with seconds; "-" when unset.
std::string TimeText(const google::protobuf::Timestamp& timestamp);

// The width that text for people is fitted to: the terminal's; 0 (any) if stdout is no terminal.
int FitColumns();

// Writes all of `text`; control characters except line ends and tabs are escaped, because text from
// users and workers must not control the terminal.
void WriteOut(std::string_view text);  // stdout
void WriteErr(std::string_view text);  // stderr
// Writes `text` unchanged, for our own control sequences. Text from elsewhere must be escaped
// first.
void WriteTerminal(std::string_view text);  // stdout

}  // namespace hearth::jobctl
