// The job file explained, from the rows that its fields state.
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config.h"
#include "common/spec/fields/facts.h"
#include "common/spec/fields/rows.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/views/output/table.h"
#include "jobctl/views/text/display_text.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

using spec::FieldFacts;

constexpr int kValueColumn = 13;  // where the values of a field's lines begin

std::string FirstSentence(const std::string& comment) {
  const size_t stop = comment.find(". ");
  return stop == std::string::npos ? comment : comment.substr(0, stop + 1);
}

std::string NameOf(const FieldFacts& facts) {
  return facts.field->name();
}

void Line(std::string& out, const char* name, const std::string& value) {
  if (value.empty()) {
    return;
  }
  const int columns = FitColumns();
  absl::StrAppend(&out, "  ", name, std::string(kValueColumn - 2 - std::string(name).size(), ' '),
                  columns > 0 ? WrapText(value, columns - kValueColumn, kValueColumn) : value,
                  "\n");
}

std::string DefaultText(const FieldFacts& facts) {
  return facts.required ? "none: the job file must give it" : facts.default_text;
}

std::string ResumeText(const FieldFacts& facts) {
  return absl::StrCat(facts.resumable ? "may change it" : "may not change it",
                      facts.resume_why.empty() ? "" : ": ", facts.resume_why);
}

std::string FieldsTable(const std::vector<const FieldFacts*>& fields) {
  Table table({"KEY", "TYPE", "DEFAULT", "MEANING"});
  for (const FieldFacts* facts : fields) {
    const std::string text = facts->required ? "required" : facts->default_text;
    table.Add(
        {NameOf(*facts), facts->type, text.empty() ? "-" : text, FirstSentence(facts->comment)});
  }
  return table.Render(FitColumns());
}

std::string Explain(const FieldFacts& facts) {
  const int columns = FitColumns();
  std::string out = facts.path + "\n  ";
  absl::StrAppend(&out, columns > 0 ? WrapText(facts.comment, columns - 2, 2) : facts.comment,
                  "\n\n");
  Line(out, "type", absl::StrCat(facts.type, facts.unit.empty() ? "" : ", in ", facts.unit));
  Line(out, "range", facts.range);
  Line(out, facts.field->is_map() ? "keys" : "one of", spec::JoinedNames(facts));
  Line(out, "default", DefaultText(facts));
  Line(out, "acts only", facts.needs);
  Line(out, "a resume", ResumeText(facts));
  Line(out, "known as", absl::StrJoin(spec::RowOf(*facts.field).synonyms(), ", "));
  const std::vector<const FieldFacts*> below = spec::FieldsIn(facts.path);
  if (!below.empty()) {
    absl::StrAppend(&out, "\n", FieldsTable(below));
  }
  return out;
}

std::string Overview() {
  Table table({"KEY", "TYPE", "MEANING"});
  for (const FieldFacts* facts : spec::FieldsIn("")) {
    table.Add({NameOf(*facts), facts->type, FirstSentence(facts->comment)});
  }
  return absl::StrCat(
      "The job file says what to train, on what, and how. Its keys:\n\n",
      table.Render(FitColumns()),
      "\njobctl explain KEY tells more, e.g. jobctl explain optimizer.lr; jobctl init writes a job "
      "file.\n");
}

nlohmann::ordered_json ToJson(const FieldFacts& facts) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const std::string_view name : facts.names) {
    names.push_back(std::string(name));
  }
  const auto& synonyms = spec::RowOf(*facts.field).synonyms();
  return {{"path", facts.path},
          {"type", facts.type},
          {"unit", or_null(facts.unit)},
          {"meaning", facts.comment},
          {"required", facts.required},
          {"default", or_null(facts.default_text)},
          {"range", or_null(facts.range)},
          {"one_of", names},
          {"acts_only", or_null(facts.needs)},
          {"resume_may_change", facts.resumable},
          {"resume_why", or_null(facts.resume_why)},
          {"synonyms", std::vector<std::string>(synonyms.begin(), synonyms.end())}};
}

absl::Status Unknown(const std::string& path) {
  const size_t dot = path.rfind('.');
  const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string key = path.substr(dot == std::string::npos ? 0 : dot + 1);
  const FieldFacts* around = section.empty() ? nullptr : spec::FindFieldFacts(section);
  const std::vector<const FieldFacts*> fields = section.empty() || around != nullptr
                                                    ? spec::FieldsIn(section)
                                                    : std::vector<const FieldFacts*>();
  const google::protobuf::Descriptor& type =
      fields.empty() ? *v1::JobSpec::descriptor() : *fields.front()->field->containing_type();
  return absl::NotFoundError(absl::StrCat(path, ": ", config::UnknownKeyText(key, type)));
}

absl::StatusOr<int> Run(Context& context, const std::string& path) {
  const FieldFacts* facts = path.empty() ? nullptr : spec::FindFieldFacts(path);
  if (!path.empty() && facts == nullptr) {
    return Unknown(path);
  }
  if (!context.format.data()) {
    WriteOut(facts == nullptr ? Overview() : Explain(*facts));
    return kExitOk;
  }
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const FieldFacts& row : spec::JobFileFields()) {
    const bool below = facts != nullptr && row.path.size() > facts->path.size() &&
                       row.path.compare(0, facts->path.size(), facts->path) == 0 &&
                       (row.path[facts->path.size()] == '.' || row.path[facts->path.size()] == '[');
    if (facts == nullptr || &row == facts || below) {
      out.push_back(ToJson(row));
    }
  }
  WriteOut(context.format == OutputFormat::kYaml ? ToYaml(out) : out.dump(2) + "\n");
  return kExitOk;
}

}  // namespace

Action SetupExplain(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  app.add_option("field", *path, "Field or section, e.g. train.steps (default: an overview)");
  return [path](Context& context) { return Run(context, *path); };
}

}  // namespace hearth::jobctl
