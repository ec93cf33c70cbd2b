// stdout is data, stderr is messages. All formatting of the commands' answers.
#pragma once

#include <cstddef>
#include <set>
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

// Left-aligned columns, two spaces apart; headers have no spaces. Control characters in cells are
// escaped, line ends too.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void Add(std::vector<std::string> row);
  // Never cuts this column, counted from 0.
  void Keep(size_t column) { kept_.insert(column); }
  // Shortens the last column in the middle instead of wrapping it: for paths, which differ at
  // their end.
  void ShortenLast() { shorten_last_ = true; }
  // For -o wide: cuts and shortens nothing. The last column wraps at blanks only, so a table may be
  // wider than asked for.
  void Whole() { whole_ = true; }
  // Columns that it takes where any width is allowed.
  int Width() const;
  // At most `columns` wide, 0 = any width: a long last column wraps as WrapText does, the widest of
  // the others are cut with an ellipsis, to no less than 8 characters.
  std::string Render(int columns = 0) const;

 private:
  std::vector<int> Widths() const;
  std::string LastCell(const std::string& cell, int width, int indent) const;

  std::vector<std::vector<std::string>> rows_;
  std::set<size_t> kept_;
  bool shorten_last_ = false;
  bool whole_ = false;
};

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
std::string Number(double value, int digits);  // fixed point; "-" when not finite
std::string Sparkline(const std::vector<double>& values, int width);  // U+2581..U+2588
absl::Time TimeOf(const google::protobuf::Timestamp& timestamp);
// Local time with seconds; "-" when unset.
std::string TimeText(const google::protobuf::Timestamp& timestamp);

// `text` with what a terminal would take for commands, or draw out of order, as \u00XX: control
// characters (C0 but tab and, with `keep_lines`, line end; DEL; C1), marks of writing direction,
// and bytes that are not UTF-8. JSON and YAML strings stay what they are.
std::string EscapeControl(std::string_view text, bool keep_lines);

// Columns that UTF-8 text takes on a terminal, a code point each.
int DisplayWidth(std::string_view text);

enum class LongWords { kBreak, kKeep };

// `text` wrapped at blanks and line ends so that each line has at most `width` columns; lines after
// the first are indented by `indent` blanks. A word that is longer than `width` begins a line, and
// is broken after a slash, else where the line is full; with kKeep it gets a wider line.
std::string WrapText(std::string_view text,
                     int width,
                     int indent,
                     LongWords long_words = LongWords::kBreak);

// `text` in at most `width` columns: the middle is left out, and more of the end stays than of the
// beginning.
std::string ShortenMiddle(std::string_view text, int width);

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
