#include "jobctl/doctor/finding.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/table_rows.h"
#include "jobctl/views/text/display_text.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

constexpr int kVerdictColumns = 9;  // "warning" and the blanks after it
constexpr int kNarrowest = 20;

}  // namespace

const char* VerdictName(Verdict verdict) {
  static constexpr EnumNames<Verdict, Verdict::kFailed> kNames = {"ok", "note", "warning",
                                                                  "failed"};
  return kNames[verdict].data();  // a literal: it ends in 0
}

bool AnyFailed(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kFailed; });
}

std::string Render(const Findings& findings, const OutputFormat& format, int columns) {
  if (format == OutputFormat::kJson || format == OutputFormat::kYaml) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Finding& finding : findings) {
      list.push_back({{"check", finding.check},
                      {"status", VerdictName(finding.verdict)},
                      {"text", finding.text},
                      {"remedy", finding.remedy}});
    }
    // Text from a library or a driver may not be UTF-8. JSON is also YAML.
    return list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  size_t width = 0;
  for (const Finding& finding : findings) {
    width = std::max(width, finding.check.size());
  }
  // The text begins right of the verdict and the check.
  const int indent = kVerdictColumns + static_cast<int>(width) + 2;
  const auto fitted = [columns, indent](const std::string& text, int more) {
    const int left = indent + more;
    return columns > 0 ? WrapText(text, std::max(columns - left, kNarrowest), left)
                       : absl::StrReplaceAll(text, {{"\n", " "}});
  };
  std::string out;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&out, "%-8s %-*s  %s\n", VerdictName(finding.verdict),
                          static_cast<int>(width), finding.check, fitted(finding.text, 0));
    if (!finding.remedy.empty()) {
      absl::StrAppendFormat(&out, "%-8s %-*s  -> %s\n", "", static_cast<int>(width), "",
                            fitted(finding.remedy, 3));
    }
  }
  return out;
}

}  // namespace hearth::jobctl
