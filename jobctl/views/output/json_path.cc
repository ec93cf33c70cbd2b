#include "jobctl/views/output/json_path.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/spec/violations/names.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Json = nlohmann::ordered_json;

absl::Status Wrong(std::string_view path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("-o jsonpath: ", std::string(path), ": ", what));
}

// Where a path has come to: a value of `type` (null: no message), or a list or map of such.
struct Place {
  enum Shape { kOne, kList, kMap } shape = kOne;
  const Descriptor* type = nullptr;
};

// The type of a message that JSON shows as an object; times and durations are texts there.
const Descriptor* ObjectType(const FieldDescriptor& field) {
  const Descriptor* type = field.message_type();
  return type == nullptr || absl::StartsWith(type->full_name(), "google.protobuf.") ? nullptr
                                                                                    : type;
}

Place PlaceOf(const FieldDescriptor& field) {
  if (field.is_map()) {
    return {Place::kMap, ObjectType(*field.message_type()->map_value())};
  }
  return {field.is_repeated() ? Place::kList : Place::kOne, ObjectType(field)};
}

const FieldDescriptor* FindField(const Descriptor& type, const std::string& name) {
  const FieldDescriptor* field = type.FindFieldByName(name);
  return field != nullptr ? field : type.FindFieldByCamelcaseName(name);
}

// What was probably meant by a name that `type` does not have; "" = unknown.
std::string Meant(const Descriptor& type, const std::string& name) {
  std::vector<std::string_view> names;
  const FieldDescriptor* only_list = nullptr;
  int lists = 0;
  std::string below;  // a field of a section has the name
  std::string id;     // job_id for id
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    names.emplace_back(field.name());
    const Descriptor* section = field.is_map() ? nullptr : ObjectType(field);
    if (field.is_repeated() && section != nullptr) {
      only_list = &field;
      ++lists;
    }
    if (below.empty() && section != nullptr && FindField(*section, name) != nullptr) {
      below = absl::StrCat(field.name(), field.is_repeated() ? "[*]." : ".", name);
    }
    if (id.empty() && absl::EndsWith(field.name(), "_" + name)) {
      id = field.name();
    }
  }
  // From the surest guess to the vaguest.
  if (name == "items" && lists == 1) {  // kubectl's name of every list
    return only_list->name();
  }
  if (!id.empty() || !below.empty()) {
    return id.empty() ? below : id;
  }
  return std::string(spec::NearestName(name, names));
}

absl::Status NoField(const std::string& path, const std::string& name, const Descriptor& type) {
  const std::string meant = Meant(type, name);
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    names.push_back(type.field(i)->name());
  }
  return Wrong(path, absl::StrCat("no field ", name, "; ",
                                  meant.empty() ? "there are " + absl::StrJoin(names, ", ")
                                                : "did you mean " + meant + "?"));
}

// A text of JSON without its quotes.
std::string Plain(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The end of the name that begins at `at`.
size_t NameEnd(std::string_view text, size_t at) {
  while (at < text.size() && text[at] != '.' && text[at] != '[') {
    at += text[at] == '\\' && at + 1 < text.size() ? 2 : 1;
  }
  return at;
}

// The name that stands in a path as `text`: "a\\.b" is the key "a.b".
std::string WithoutBackslashes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    i += text[i] == '\\' && i + 1 < text.size() ? 1 : 0;
    out += text[i];
  }
  return out;
}

// The end of an expression in braces that begins at `at`: its closing brace; npos: it has none.
size_t BraceEnd(std::string_view text, size_t at) {
  char quote = 0;
  for (; at < text.size(); ++at) {
    if (quote != 0 && text[at] == '\\') {
      ++at;
    } else if (quote != 0) {
      quote = text[at] == quote ? '\0' : quote;
    } else if (text[at] == '"' || text[at] == '\'') {
      quote = text[at];
    } else if (text[at] == '}') {
      return at;
    }
  }
  return std::string_view::npos;
}

std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    ++i;
    out += text[i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i];
  }
  return out;
}

}  // namespace

absl::StatusOr<JsonPath::Part> JsonPath::ParsePath(std::string_view text) {
  Part part{true, std::string(text), {}};
  size_t at = !text.empty() && (text[0] == '$' || text[0] == '@') ? 1 : 0;
  if (text == ".") {
    return part;
  }
  while (at < text.size()) {
    if (text[at] != '[') {
      at += text[at] == '.' ? 1 : 0;
      const size_t end = NameEnd(text, at);
      if (end == at) {
        return Wrong(text, "expected the name of a field at character " + std::to_string(at + 1));
      }
      const std::string name = WithoutBackslashes(text.substr(at, end - at));
      part.steps.push_back(name == "*" ? Step{Step::kAll, "", 0} : Step{Step::kField, name, 0});
      at = end;
      continue;
    }
    const size_t end = text.find(']', at);
    if (end == std::string_view::npos) {
      return Wrong(text, "a [ has no ]");
    }
    const std::string_view inside = text.substr(at + 1, end - at - 1);
    int index = 0;
    const bool quoted =
        inside.size() > 1 && (inside[0] == '\'' || inside[0] == '"') && inside.back() == inside[0];
    if (inside == "*") {
      part.steps.push_back({Step::kAll, "", 0});
    } else if (quoted) {
      part.steps.push_back({Step::kField, std::string(inside.substr(1, inside.size() - 2)), 0});
    } else if (absl::SimpleAtoi(absl::string_view(inside.data(), inside.size()), &index)) {
      part.steps.push_back({Step::kIndex, "", index});
    } else {
      return Wrong(text, absl::StrCat("[", std::string(inside),
                                      "]: there are [N], [*] and ['key']; to select jobs use the "
                                      "options of list, or -o json with jq"));
    }
    at = end + 1;
  }
  return part;
}

absl::StatusOr<JsonPath::Part> JsonPath::ParseExpression(std::string_view text) {
  if (text.size() > 1 && text.front() == '"' && text.back() == '"') {
    return Part{false, Unescaped(text.substr(1, text.size() - 2)), {}};
  }
  const std::string word(text.substr(0, text.find(' ')));
  if (word == "range" || word == "end") {
    return Wrong(text,
                 "there are no loops; for rows use list --columns job_id,state, for more "
                 "-o json with jq");
  }
  return ParsePath(text);
}

absl::StatusOr<JsonPath> JsonPath::Parse(std::string_view text) {
  JsonPath path;
  if (text.empty()) {
    return Wrong("''", "give a path, e.g. -o jsonpath='{.jobs[*].job_id}'");
  }
  if (text.find('{') == std::string_view::npos) {
    HEARTH_ASSIGN_OR_RETURN(Part part, ParsePath(text));
    path.parts_.push_back(std::move(part));
    return path;
  }
  size_t at = 0;
  while (at < text.size()) {
    const size_t brace = text.find('{', at);
    if (brace != at) {
      path.parts_.push_back({false, std::string(text.substr(at, brace - at)), {}});
      at = brace == std::string_view::npos ? text.size() : brace;
      continue;
    }
    const size_t end = BraceEnd(text, at + 1);
    if (end == std::string_view::npos) {
      return Wrong(text, "a { has no }");
    }
    HEARTH_ASSIGN_OR_RETURN(Part part, ParseExpression(text.substr(at + 1, end - at - 1)));
    path.parts_.push_back(std::move(part));
    at = end + 1;
  }
  return path;
}

absl::StatusOr<std::vector<JsonPath::Step>> JsonPath::Resolve(const Part& part,
                                                              const Descriptor& type) {
  std::vector<Step> steps = part.steps;
  Place place{Place::kOne, &type};
  std::string so_far;  // for errors
  for (Step& step : steps) {
    if (step.kind != Step::kField) {
      if (place.shape == Place::kOne || (place.shape == Place::kMap && step.kind == Step::kIndex)) {
        return Wrong(part.text, absl::StrCat(so_far.empty() ? "this" : so_far, " is no list"));
      }
      place.shape = Place::kOne;
      continue;
    }
    if (place.shape == Place::kList) {
      return Wrong(part.text, absl::StrCat(so_far, " is a list; write ", so_far, "[*].", step.name,
                                           " or ", so_far, "[0].", step.name));
    }
    if (place.shape == Place::kMap) {
      place.shape = Place::kOne;
      so_far = step.name;
      continue;
    }
    if (place.type == nullptr) {
      return Wrong(part.text, so_far + " has no fields");
    }
    const FieldDescriptor* field = FindField(*place.type, step.name);
    if (field == nullptr) {
      return NoField(part.text, step.name, *place.type);
    }
    step.name = field->name();
    so_far = step.name;
    place = PlaceOf(*field);
  }
  return steps;
}

absl::StatusOr<std::string> JsonPath::Print(const google::protobuf::Message& message) const {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) {
    return absl::InternalError("cannot print as JSON");
  }
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::string out;
  for (const Part& part : parts_) {
    if (!part.is_path) {
      out += part.text;
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const std::vector<Step> steps, Resolve(part, *message.GetDescriptor()));
    std::vector<const Json*> values = {&root};
    for (const Step& step : steps) {
      std::vector<const Json*> next;
      for (const Json* value : values) {
        const auto size = static_cast<int>(value->size());
        const int index = step.index < 0 ? size + step.index : step.index;
        if (step.kind == Step::kIndex && (index < 0 || index >= size)) {
          return Wrong(part.text, absl::StrCat("there is no element ", step.index, " of ", size));
        }
        if (step.kind == Step::kIndex) {
          next.push_back(&(*value)[static_cast<size_t>(index)]);
        } else if (step.kind == Step::kAll) {
          for (const Json& one : *value) {
            next.push_back(&one);
          }
        } else if (value->contains(step.name)) {
          next.push_back(&(*value)[step.name]);
        }
      }
      values = std::move(next);
    }
    std::vector<std::string> texts;
    texts.reserve(values.size());
    for (const Json* value : values) {
      texts.push_back(Plain(*value));
    }
    absl::StrAppend(&out, absl::StrJoin(texts, " "));
  }
  return out;
}

}  // namespace hearth::jobctl
