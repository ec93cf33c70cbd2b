#include "jobctl/views/jobs/job_template.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/yaml_writer.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/facts.h"
#include "common/spec/fields/rows.h"
#include "jobctl/views/output/output.h"
#include "jobctl/views/text/display_text.h"

namespace hearth::jobctl {
namespace {

using spec::FieldFacts;

constexpr int kColumns = 100;

bool IsSet(const v1::JobSpec& spec, const std::string& path) {
  const spec::Place place = spec::FindPlace(spec, path);
  if (place.message == nullptr) {
    return false;
  }
  const auto& reflection = *place.message->GetReflection();
  if (spec::HasRows(*place.field)) {
    // A section that is there and holds nothing would be a key without a value.
    return reflection.HasField(*place.message, place.field) &&
           reflection.GetMessage(*place.message, place.field).ByteSizeLong() > 0;
  }
  return place.field->is_repeated() ? reflection.FieldSize(*place.message, place.field) > 0
                                    : reflection.HasField(*place.message, place.field);
}

// What stands behind the key when it is not set.
std::string DefaultValue(const FieldFacts& facts) {
  const v1::FieldRow& row = spec::RowOf(*facts.field);
  if (!row.default_value().empty()) {
    return row.default_value() == "0" && !row.zero().empty() ? row.zero() : row.default_value();
  }
  return facts.field->is_map() ? "{}" : facts.field->is_repeated() ? "[]" : "";
}

std::string Sentences(const FieldFacts& facts) {
  std::string text = facts.comment;
  const bool row_default = !spec::RowOf(*facts.field).default_value().empty();
  if (!facts.default_text.empty() && !row_default && !facts.field->is_repeated()) {
    absl::StrAppend(&text, " Default: ", facts.default_text, ".");
  }
  if (!facts.needs.empty()) {
    absl::StrAppend(&text, " Acts only ", facts.needs, ".");
  }
  return text;
}

void Append(const v1::JobSpec& spec, const FieldFacts& facts, bool off, std::string& out) {
  const auto depth = static_cast<size_t>(std::count(facts.path.begin(), facts.path.end(), '.'));
  const std::string indent(2 * depth, ' ');
  // Keys of a section that is off are off too: the '#' stands in the first column for all of them.
  const std::string before = off ? "#" + indent : indent;
  const std::string prose =
      WrapText(Sentences(facts), kColumns - static_cast<int>(before.size()) - 2, 0);
  absl::StrAppend(&out, before, "# ",
                  absl::StrJoin(absl::StrSplit(prose, '\n'), "\n" + before + "# "), "\n");
  const std::string& name = facts.field->name();
  const bool section = spec::HasRows(*facts.field);
  if (IsSet(spec, facts.path)) {
    const spec::Place place = spec::FindPlace(spec, facts.path);
    absl::StrAppend(&out, indent, name, ":",
                    section ? "" : " " + config::WriteFlow(*place.message, *place.field), "\n");
  } else {
    const std::string value = section ? "" : DefaultValue(facts);
    absl::StrAppend(&out, off ? before : indent + "#", name, ":", value.empty() ? "" : " ", value,
                    "\n");
  }
}

void AppendSection(const v1::JobSpec& spec, const std::string& path, bool off, std::string& out) {
  for (const FieldFacts* facts : spec::FieldsIn(path)) {
    const bool section = spec::HasRows(*facts->field);
    const bool below_off = off || (section && !IsSet(spec, facts->path));
    if (path.empty()) {
      out += '\n';
    }
    Append(spec, *facts, below_off && section ? true : off, out);
    if (section) {
      AppendSection(spec, facts->path, below_off, out);
    }
  }
}

}  // namespace

std::string JobTemplate(const v1::JobSpec& spec) {
  std::string out =
      "# A job of Hearth. Keys behind a # show their default; remove the # to set them.\n"
      "# jobctl explain KEY tells more, jobctl submit FILE --dry-run client checks the file.\n";
  AppendSection(spec, "", /*off=*/false, out);
  return out;
}

}  // namespace hearth::jobctl
