// The formats of -o: which one was asked for, and which a command prints.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "jobctl/views/output/json_path.h"

namespace hearth::jobctl {

// What -o asks for.
class OutputFormat {
 public:
  enum Kind { kTable, kWide, kJson, kYaml, kName, kJsonPath };

  OutputFormat(Kind kind) : kind_(kind) {}  // NOLINT(google-explicit-constructor): one is the other
  explicit OutputFormat(JsonPath path)
      : kind_(kJsonPath), template_(std::make_shared<const JsonPath>(std::move(path))) {}

  Kind kind() const { return kind_; }

  friend bool operator==(const OutputFormat& a, Kind b) { return a.kind_ == b; }
  // Whether a whole message is printed, for programs: JSON, YAML or a part of it.
  bool data() const { return kind_ == kJson || kind_ == kYaml || kind_ == kJsonPath; }
  const JsonPath& path() const { return *template_; }  // only of kJsonPath

 private:
  Kind kind_;
  std::shared_ptr<const JsonPath> template_;
};

// Formats that a command prints, a bit of each: 1 << OutputFormat::Kind.
using FormatSet = unsigned;
constexpr FormatSet kPrintsText = 1U << OutputFormat::kTable;
constexpr FormatSet kPrintsWide = kPrintsText | 1U << OutputFormat::kWide;
constexpr FormatSet kPrintsJson = kPrintsText | 1U << OutputFormat::kJson;
constexpr FormatSet kPrintsName = kPrintsText | 1U << OutputFormat::kName;
constexpr FormatSet kPrintsData = kPrintsJson | 1U << OutputFormat::kYaml;
constexpr FormatSet kPrintsMessage = kPrintsData | 1U << OutputFormat::kJsonPath;  // PrintMessage
constexpr FormatSet kPrintsChange = kPrintsMessage | kPrintsName;                  // PrintMutation
constexpr FormatSet kPrintsRows = kPrintsChange | kPrintsWide;

// The names of the formats in `formats` for -o, without "table", which all commands print.
std::vector<std::string> FormatNames(FormatSet formats);

// "table", "jsonpath={.jobs[*].job_id}" ... kInvalidArgument: there is no such format, and the text
// names the nearest; or the template cannot be read.
absl::StatusOr<OutputFormat> ParseOutputFormat(std::string_view name);

}  // namespace hearth::jobctl
