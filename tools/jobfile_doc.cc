// Writes the tables of docs/jobfile.md and configs/job.schema.json from the rows of the job file's
// fields.
//
//   jobfile_doc DOCUMENT SCHEMA           exits with 1 when either is not what the rows say
//   jobfile_doc --write DOCUMENT SCHEMA   writes them
//
// The tables stand between the lines "<!-- fields: made by tools/jobfile_doc.cc -->" and "<!-- end
// -->".
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/spec/fields/facts.h"
#include "common/spec/fields/rows.h"
#include "hearth/v1/job.pb.h"
#include "nlohmann/json.hpp"

namespace hearth {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using spec::FieldFacts;
using Json = nlohmann::ordered_json;

std::string Cell(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"](", "]\\("}});
}

std::string ValueText(const FieldFacts& facts) {
  std::string text = facts.type;
  if (!facts.unit.empty()) {
    absl::StrAppend(&text, ", ", facts.unit);
  }
  if (!facts.range.empty()) {
    absl::StrAppend(&text, ", ", facts.range);
  }
  if (!facts.names.empty()) {
    absl::StrAppend(&text, ": ", spec::JoinedNames(facts));
  }
  return text;
}

std::string MeaningText(const FieldFacts& facts) {
  std::string text = facts.comment;
  if (!facts.needs.empty()) {
    absl::StrAppend(&text, " Acts only ", facts.needs, ".");
  }
  return text;
}

// Sections without a rule of their own leave it to their fields.
std::string ResumeText(const FieldFacts& facts) {
  const bool open = facts.resume_why.empty() && spec::HasFieldsOfItsOwn(facts);
  return facts.resumable ? "yes" : open ? "some" : "no";
}

std::string TableOf(const std::vector<const FieldFacts*>& fields) {
  std::string out =
      "| key | value | default | a resume may change it | meaning |\n|---|---|---|---|---|\n";
  for (const FieldFacts* facts : fields) {
    absl::StrAppend(&out, "| `", facts->path, "` | ", Cell(ValueText(*facts)), " | ",
                    facts->required ? "required" : Cell(facts->default_text), " | ",
                    ResumeText(*facts), " | ", Cell(MeaningText(*facts)), " |\n");
  }
  return out;
}

// The whole file, then a table for each section, list and map that has fields of its own.
std::string Tables() {
  std::string out = "\n" + TableOf(spec::FieldsIn(""));
  for (const FieldFacts& facts : spec::JobFileFields()) {
    if (spec::HasFieldsOfItsOwn(facts)) {
      absl::StrAppend(&out, "\n## ", facts.path, "\n\n", facts.comment, "\n\n",
                      TableOf(spec::FieldsIn(facts.path)));
    }
  }
  return out + "\n";
}

bool IsSection(const Descriptor* type) {
  return type != nullptr && type->file()->package() == v1::JobSpec::descriptor()->file()->package();
}

Json ObjectOf(const Descriptor& type, const std::string& path);

// A number in the range of its row.
Json NumberOf(const FieldDescriptor& field, const char* type) {
  const v1::FieldRow& row = spec::RowOf(field);
  Json out = {{"type", type}};
  const auto bound = [&](double value) {
    return *type == 'i' ? Json(static_cast<int64_t>(value)) : Json(value);
  };
  if (row.has_min()) {
    out[row.above_min() ? "exclusiveMinimum" : "minimum"] = bound(row.min());
  }
  if (row.has_max()) {
    out[row.below_max() ? "exclusiveMaximum" : "maximum"] = bound(row.max());
  }
  if (row.zero().empty()) {
    return out;
  }
  const Json zero = row.zero() == "0" ? Json(0) : Json(row.zero());
  return {{"anyOf", Json::array({out, {{"const", zero}}})}};
}

// YAML readers take an unquoted true, or 1, for something else than text; the job file does not.
Json TextOf(const FieldDescriptor& field) {
  const std::vector<std::string_view> names =
      field.is_map() ? std::vector<std::string_view>() : spec::NamesOf(spec::RowOf(field));
  if (names.empty()) {
    return {{"type", Json::array({"string", "number", "boolean"})}};
  }
  Json values = Json::array();
  for (const std::string_view name : names) {
    values.push_back(std::string(name));
    if (name == "true" || name == "false") {
      values.push_back(name == "true");
    }
  }
  return {{"enum", values}};
}

// One value: an element of a list, or of a map's entries.
Json ValueOf(const FieldDescriptor& field, const std::string& path) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return {{"type", "boolean"}};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberOf(field, "number");
    case FieldDescriptor::CPPTYPE_STRING:
      return TextOf(field);
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      if (field.message_type()->full_name() == "google.protobuf.Timestamp") {
        return {{"type", "string"},
                {"pattern", "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})$"}};
      }
      if (!IsSection(field.message_type())) {
        return {{"type", "string"}, {"pattern", "^([0-9.]+(h|m|s|ms))+$"}};
      }
      const Json object = ObjectOf(*field.message_type(), path);
      return field.message_type() == v1::DataSource::descriptor()
                 ? Json{{"anyOf", Json::array({{{"type", "string"}}, object})}}
                 : object;
    }
    default:
      return NumberOf(field, "integer");
  }
}

Json MapOf(const FieldDescriptor& field, const std::string& path) {
  const FieldDescriptor& value = *field.message_type()->map_value();
  Json out = {{"type", "object"}, {"additionalProperties", ValueOf(value, path + ".NAME")}};
  const std::vector<std::string_view> names = spec::NamesOf(spec::RowOf(field));
  if (!names.empty()) {
    Json keys = Json::array();
    for (const std::string_view name : names) {
      keys.push_back(std::string(name));
    }
    out["propertyNames"] = {{"enum", keys}};
  }
  return out;
}

Json PropertyOf(const FieldDescriptor& field, const std::string& path) {
  Json out;
  if (field.is_map()) {
    out = MapOf(field, path);
  } else if (field.is_repeated()) {
    const Json element = ValueOf(field, path);
    // One element needs no brackets.
    out = {{"anyOf", Json::array({element, {{"type", "array"}, {"items", element}}})}};
  } else {
    out = ValueOf(field, path);
  }
  const FieldFacts* facts = spec::FindFieldFacts(path);
  std::string text = MeaningText(*facts);
  if (!facts->default_text.empty()) {
    absl::StrAppend(&text, " Default: ", facts->default_text, ".");
  }
  out["description"] = text;
  return out;
}

// A section must be given if it has a field that must.
bool MustBeGiven(const FieldDescriptor& field) {
  bool given = spec::RowOf(field).required();
  for (int i = 0; spec::HasRows(field) && i < field.message_type()->field_count(); ++i) {
    given = given || MustBeGiven(*field.message_type()->field(i));
  }
  return given;
}

Json ObjectOf(const Descriptor& type, const std::string& path) {
  Json properties = Json::object();
  Json required = Json::array();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string below = path.empty() ? field.name() : path + '.' + field.name();
    properties[field.name()] = PropertyOf(field, below);
    if (MustBeGiven(field)) {
      required.push_back(field.name());
    }
  }
  Json out = {{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
  if (!required.empty()) {
    out["required"] = required;
  }
  return out;
}

std::string Schema() {
  Json out = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "Job file of Hearth"},
              {"description", "Made by tools/jobfile_doc.cc. docs/jobfile.md explains the keys."}};
  out.update(ObjectOf(*v1::JobSpec::descriptor(), ""));
  return out.dump(1) + "\n";
}

std::string Read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Replaces the text between the marks. False: there are none.
bool Replace(const std::string& tables, std::string& text) {
  const std::string mark = "<!-- fields: made by tools/jobfile_doc.cc -->\n";
  const size_t begin = text.find(mark);
  const size_t end = text.find("<!-- end -->", begin);
  if (begin == std::string::npos || end == std::string::npos) {
    return false;
  }
  text.replace(begin + mark.size(), end - begin - mark.size(), tables);
  return true;
}

int Run(const std::string& document, const std::string& schema, bool write) {
  std::string text = Read(document);
  if (!Replace(Tables(), text)) {
    std::fprintf(stderr, "%s has no place for the fields\n", document.c_str());
    return 1;
  }
  int stale = 0;
  for (const auto& [path, wanted] : {std::pair(document, text), std::pair(schema, Schema())}) {
    if (Read(path) == wanted) {
      continue;
    }
    if (write) {
      std::ofstream out(path);
      out << wanted;
      stale += out.flush() ? 0 : 1;
    } else {
      std::fprintf(stderr, "%s is not what the rows say: run jobfile_doc --write %s %s\n",
                   path.c_str(), document.c_str(), schema.c_str());
      ++stale;
    }
  }
  return stale == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  const bool write = argc == 4 && std::strcmp(argv[1], "--write") == 0;
  if (argc != 3 && !write) {
    std::fprintf(stderr, "usage: jobfile_doc [--write] DOCUMENT SCHEMA\n");
    return 2;
  }
  return hearth::Run(argv[argc - 2], argv[argc - 1], write);
}
