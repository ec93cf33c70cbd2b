#include "jobctl/views/output/output_format.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/violations/names.h"

namespace hearth::jobctl {
namespace {

constexpr struct {
  std::string_view name;
  OutputFormat::Kind format;
} kFormats[] = {{"table", OutputFormat::kTable}, {"wide", OutputFormat::kWide},
                {"json", OutputFormat::kJson},   {"yaml", OutputFormat::kYaml},
                {"name", OutputFormat::kName},   {"jsonpath", OutputFormat::kJsonPath}};

}  // namespace

std::vector<std::string> FormatNames(FormatSet formats) {
  std::vector<std::string> names;
  for (const auto& row : kFormats) {
    if (row.format != OutputFormat::kTable && (formats & 1U << row.format) != 0) {
      names.emplace_back(row.name);
    }
  }
  return names;
}

absl::StatusOr<OutputFormat> ParseOutputFormat(std::string_view name) {
  const std::string_view word = name.substr(0, name.find('='));
  const std::string_view text = word.size() < name.size() ? name.substr(word.size() + 1) : "";
  std::vector<std::string_view> names;
  for (const auto& row : kFormats) {
    const bool takes_text = row.format == OutputFormat::kJsonPath;
    if (row.name == word && takes_text) {
      HEARTH_ASSIGN_OR_RETURN(JsonPath path, JsonPath::Parse(text));
      return OutputFormat(std::move(path));
    }
    if (row.name == name) {
      return OutputFormat(row.format);
    }
    names.push_back(row.name);
  }
  const bool columns = absl::StartsWith(std::string(word), "custom-columns");
  return absl::InvalidArgumentError(
      absl::StrCat("--output: ",
                   spec::UnknownNameText(std::string(name), "format", names,
                                         columns ? "--columns job_id,state of list and get" : "")));
}

}  // namespace hearth::jobctl
