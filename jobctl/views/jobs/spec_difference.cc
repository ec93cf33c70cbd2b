#include "jobctl/views/jobs/spec_difference.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/config/yaml_writer.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "jobctl/views/output/output.h"
#include "jobctl/views/output/table.h"
#include "jobctl/views/text/display_text.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

constexpr int kNarrowestValue = 20;  // columns

std::string ValueOf(const v1::JobSpec& spec, const std::string& path) {
  const spec::Place place = spec::FindPlace(spec, path);
  return place.message == nullptr ? "unset" : config::WriteFlow(*place.message, *place.field);
}

}  // namespace

std::vector<KeyDifference> SpecDifferences(const v1::JobSpec& a, const v1::JobSpec& b) {
  std::vector<KeyDifference> differences;
  spec::ForEachField([&](const std::string& path, const google::protobuf::FieldDescriptor& field) {
    if (spec::HasRows(field)) {
      return;
    }
    const std::string left = ValueOf(a, path);
    const std::string right = ValueOf(b, path);
    if (left != right) {
      differences.push_back({path, left, right});
    }
  });
  return differences;
}

nlohmann::ordered_json DifferencesJson(const std::string& a,
                                       const std::string& b,
                                       const std::vector<KeyDifference>& differences) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const KeyDifference& row : differences) {
    rows.push_back({{"key", row.path}, {a, row.a}, {b, row.b}});
  }
  return rows;
}

std::string RenderDifferences(const std::string& a,
                              const std::string& b,
                              const std::vector<KeyDifference>& differences,
                              int columns) {
  Table table({"KEY", a, b});
  for (const KeyDifference& row : differences) {
    table.Add({row.path, row.a, row.b});
  }
  if (columns == 0 || table.Width() <= columns) {
    return table.Render();
  }
  const auto line = [columns](const std::string& mark, const std::string& text) {
    const int indent = DisplayWidth(mark);
    return absl::StrCat(mark,
                        WrapText(EscapeControl(text, /*keep_lines=*/false),
                                 std::max(columns - indent, kNarrowestValue), indent),
                        "\n");
  };
  std::string out = absl::StrCat(line("- ", a), line("+ ", b));
  for (const KeyDifference& row : differences) {
    absl::StrAppend(&out, "\n", row.path, "\n", line("  - ", row.a), line("  + ", row.b));
  }
  return out;
}

}  // namespace hearth::jobctl
