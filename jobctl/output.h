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

namespace hearth::jobctl {

enum class OutputFormat { kTable, kWide, kJson, kYaml, kName };

absl::StatusOr<OutputFormat> ParseOutputFormat(std::string_view name);

// Left-aligned columns, two spaces apart; headers have no spaces.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void Add(std::vector<std::string> row);
  std::string Render() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Protobuf's JSON mapping, indented, with zero-valued fields, newline at the end.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message);
absl::StatusOr<std::string> ToYaml(const google::protobuf::Message& message);

// A column more, for one row.
struct ExtraCell {
  std::string header;
  std::string text;
};

// Prints a list of jobs or workers in the format asked for. `whole` is what JSON and YAML show;
// `extra` stands before the age in tables, for lists of one job.
absl::Status PrintJobs(OutputFormat format,
                       const std::vector<v1::Job>& jobs,
                       const google::protobuf::Message& whole,
                       const std::vector<ExtraCell>& extra = {});
absl::Status PrintWorkers(OutputFormat format,
                          const std::vector<v1::Worker>& workers,
                          const google::protobuf::Message& whole);

// After a mutation: "job/ID verbed", or the message itself under -o json|yaml|name.
absl::Status PrintMutation(OutputFormat format,
                           bool quiet,
                           std::string_view resource,
                           std::string_view verbed,
                           const google::protobuf::Message& message);

// SUCCEEDED, FAILED or CANCELLED.
bool Ended(v1::JobState state);
std::string StateName(v1::JobState state);     // "RUNNING"
std::string StateName(v1::WorkerState state);  // "IDLE"
std::string Number(double value, int digits);  // fixed point; "-" when not finite
std::string Sparkline(const std::vector<double>& values, int width);  // U+2581..U+2588
absl::Time TimeOf(const google::protobuf::Timestamp& timestamp);
// Local time with seconds; "-" when unset.
std::string TimeText(const google::protobuf::Timestamp& timestamp);

void WriteOut(std::string_view text);  // stdout, whole
void WriteErr(std::string_view text);  // stderr, whole

}  // namespace hearth::jobctl
