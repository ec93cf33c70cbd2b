#include "common/config/reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/config/scalars.h"
#include "common/spec/fields/facts.h"
#include "common/spec/fields/rows.h"
#include "common/spec/violations/names.h"
#include "hearth/v1/job.pb.h"

namespace hearth::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Bound on keys and list elements, counted as often as an alias repeats them. No job file comes
// near it, and a hostile one must stay cheap.
constexpr int kMaxEntries = 10000;
// Reading stops after this many errors; more would not help.
constexpr size_t kMaxErrors = 100;

int LineOf(const YAML::Node& node) {
  return node.Mark().line + 1;
}

std::string Join(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + '.' + std::string(key);
}

const char* KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map:
      return "a map";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Scalar:
      return "a single value";
    default:
      return "nothing";
  }
}

bool IsType(const Descriptor* descriptor, const Descriptor* type) {
  return descriptor != nullptr && descriptor->full_name() == type->full_name();
}

bool IsDuration(const FieldDescriptor& field) {
  return IsType(field.message_type(), google::protobuf::Duration::descriptor());
}

bool IsTimestamp(const FieldDescriptor& field) {
  return IsType(field.message_type(), google::protobuf::Timestamp::descriptor());
}

bool IsAutoInteger(const FieldDescriptor& field) {
  return field.number() == v1::BatchSpec::kMicroBatchSizeFieldNumber &&
         IsType(field.containing_type(), v1::BatchSpec::descriptor());
}

// Into `target`, the value of a field that is a time or a duration.
absl::Status ReadTime(const Scalar& scalar, const FieldDescriptor& field, Message& target) {
  if (IsTimestamp(field)) {
    HEARTH_ASSIGN_OR_RETURN(const google::protobuf::Timestamp time, ParseTimestamp(scalar));
    target.CopyFrom(time);
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const google::protobuf::Duration duration, ParseDuration(scalar));
  target.CopyFrom(duration);
  return absl::OkStatus();
}

// `or_auto`: "auto" stands for 0.
absl::StatusOr<int32_t> ParseInt32(const Scalar& scalar, bool or_auto) {
  if (or_auto && scalar.text == "auto") {
    return 0;
  }
  const absl::StatusOr<int64_t> value = ParseInteger(scalar);
  if (!value.ok()) {
    return absl::InvalidArgumentError(std::string(value.status().message()) +
                                      (or_auto ? " (or auto)" : ""));
  }
  if (*value < std::numeric_limits<int32_t>::min() ||
      *value > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(std::to_string(*value) + " does not fit into 32 bits");
  }
  return static_cast<int32_t>(*value);
}

// More fields than this are no suggestion.
constexpr size_t kMaxSuggestions = 3;

// The paths of all fields under `descriptor` that `matches` takes, outside of lists and maps.
template <typename Matches>
void FindPaths(const Descriptor& descriptor,
               const std::string& prefix,
               const Matches& matches,
               std::vector<std::string>& found) {
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (matches(field)) {
      found.push_back(prefix + field.name());
    }
    if (spec::HasRows(field)) {
      FindPaths(*field.message_type(), prefix + field.name() + '.', matches, found);
    }
  }
}

// The fields of the job file that `matches` takes with the fewest sections above them, as
// "schedule.warmup_steps or precision.warmup_steps"; "" when there are none or too many.
template <typename Matches>
std::string FindElsewhere(const Matches& matches) {
  std::vector<std::string> found;
  FindPaths(*v1::JobSpec::descriptor(), "", matches, found);
  const auto depth = [](const std::string& path) {
    return std::count(path.begin(), path.end(), '.');
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const std::string& a, const std::string& b) { return depth(a) < depth(b); });
  while (!found.empty() && depth(found.back()) > depth(found.front())) {
    found.pop_back();
  }
  return found.size() > kMaxSuggestions ? "" : absl::StrJoin(found, " or ");
}

// Words that YAML 1.1 readers such as PyYAML take for true and for false.
constexpr std::array<std::string_view, 3> kTrueWords = {"on", "yes", "y"};
constexpr std::array<std::string_view, 3> kFalseWords = {"off", "no", "n"};

// Where a file says `on`, a YAML 1.1 reader sees true, and what it writes of the file has "true" or
// True. The word that this stands for: the first that `known` takes. "": `text` is no truth value,
// is known itself, or stands for no known word.
template <typename Known>
std::string_view WordOfTruth(const std::string& text, const Known& known) {
  const std::string word = absl::AsciiStrToLower(text);
  if ((word != "true" && word != "false") || known(text)) {
    return "";
  }
  for (const std::string_view name : word == "true" ? kTrueWords : kFalseWords) {
    if (known(name)) {
      return name;
    }
  }
  return "";
}

// The field that `key` names; keys of no field stay as they are.
std::string FieldName(const std::string& key, const Descriptor& descriptor) {
  const std::string_view word = WordOfTruth(
      key, [&](std::string_view name) { return spec::FindField(descriptor, name) != nullptr; });
  return word.empty() ? key : std::string(word);
}

// The text that stands for a value of the field: one of its names, if it has any.
std::string NameOfValue(const std::string& text, const FieldDescriptor& field) {
  const v1::FieldRow& row = spec::RowOf(field);
  const std::vector<std::string_view> names = spec::NamesOf(row);
  const std::string_view word = WordOfTruth(text, [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end() ||
           spec::ModernValue(row, name) != name;
  });
  return word.empty() ? text : std::string(word);
}

bool IsKnownTag(const std::string& tag) {
  return tag.empty() || tag == "?" || tag == "!" || tag == "tag:yaml.org,2002:str";
}

}  // namespace

std::string UnknownKeyText(std::string_view key, const Descriptor& descriptor) {
  const std::string lower = absl::AsciiStrToLower(absl::string_view(key.data(), key.size()));
  std::vector<std::string_view> names;
  names.reserve(static_cast<size_t>(descriptor.field_count()));
  for (int i = 0; i < descriptor.field_count(); ++i) {
    names.push_back(descriptor.field(i)->name());
  }
  const FieldDescriptor* synonym = spec::FindSynonym(lower, descriptor);
  std::string suggestion = synonym == nullptr ? "" : synonym->name();
  if (suggestion.empty()) {
    // Another case, singular or plural: before synonyms of other sections.
    const auto other = std::find_if(names.begin(), names.end(), [&lower](std::string_view name) {
      return name == lower || name == lower + "s" || lower == std::string(name) + "s";
    });
    suggestion = other == names.end() ? "" : std::string(*other);
  }
  if (suggestion.empty()) {
    suggestion = FindElsewhere([&](const FieldDescriptor& field) {
      return spec::FindSynonym(lower, *field.containing_type()) == &field;
    });
  }
  if (suggestion.empty()) {
    suggestion = std::string(spec::NearestName(key, names));
  }
  if (suggestion.empty()) {
    suggestion = FindElsewhere([&](const FieldDescriptor& field) { return field.name() == key; });
  }
  return suggestion.empty() ? "unknown key" : "unknown key; did you mean " + suggestion + "?";
}

void Reader::Fail(const YAML::Node& node, const std::string& path, std::string text) {
  errors_.push_back({LineOf(node), path, std::move(text)});
}

bool Reader::Exhausted() const {
  return entries_ > kMaxEntries || errors_.size() >= kMaxErrors;
}

bool Reader::Budget(const YAML::Node& node, const std::string& path) {
  if (++entries_ == kMaxEntries + 1) {
    Fail(node, path, "more than " + std::to_string(kMaxEntries) + " keys and list elements");
  }
  return !Exhausted();
}

bool Reader::ReadKey(const YAML::Node& key,
                     const std::string& path,
                     const Descriptor* fields,
                     std::unordered_map<std::string, int>& seen,
                     std::string& text) {
  if (!Budget(key, path)) {
    return false;
  }
  if (!key.IsScalar()) {
    Fail(key, path, std::string("expected a key, got ") + KindOf(key));
    return false;
  }
  text = fields == nullptr ? key.Scalar() : FieldName(key.Scalar(), *fields);
  const auto [first, inserted] = seen.emplace(text, LineOf(key));
  // yaml-cpp takes both without a word, and one of the values would count for nothing.
  if (!inserted) {
    Fail(key, Join(path, text),
         "duplicate key; first given on line " + std::to_string(first->second));
  }
  return inserted;
}

template <typename Read>
void Reader::ReadEntries(const YAML::Node& node,
                         const std::string& path,
                         const Descriptor* fields,
                         const Read& read) {
  std::unordered_map<std::string, int> seen;
  for (const auto& entry : node) {
    std::string key;
    if (ReadKey(entry.first, path, fields, seen, key)) {
      read(entry.first, entry.second, key);
    } else if (Exhausted()) {
      return;
    }
  }
}

bool Reader::HasValue(const YAML::Node& key, const YAML::Node& value, const std::string& path) {
  if (value.IsNull()) {
    Fail(key, path, "has no value; give one or remove the key");
  }
  return !value.IsNull();
}

void Reader::ReadMessage(const YAML::Node& node, const std::string& path, Message& message) {
  // A source of data may be its path alone.
  if (node.IsScalar() && IsType(message.GetDescriptor(), v1::DataSource::descriptor())) {
    ReadScalar(node, path, message,
               *message.GetDescriptor()->FindFieldByNumber(v1::DataSource::kPathFieldNumber));
    return;
  }
  if (!node.IsMap()) {
    Fail(node, path, std::string("expected a map of fields, got ") + KindOf(node));
    return;
  }
  std::unordered_map<const FieldDescriptor*, std::string> read;
  ReadEntries(node, path, message.GetDescriptor(),
              [&](const YAML::Node& key_node, const YAML::Node& value, const std::string& key) {
                const FieldDescriptor* field = spec::FindField(*message.GetDescriptor(), key);
                if (field == nullptr) {
                  Fail(key_node, Join(path, key), UnknownKeyText(key, *message.GetDescriptor()));
                } else if (const auto [first, once] = read.emplace(field, key); !once) {
                  Fail(key_node, Join(path, key), "is the same field as " + first->second);
                } else if (HasValue(key_node, value, Join(path, key))) {
                  ReadField(value, Join(path, key), message, *field);
                }
              });
}

void Reader::ReadField(const YAML::Node& node,
                       const std::string& path,
                       Message& message,
                       const FieldDescriptor& field) {
  // An override is read into a spec that has a value: it replaces the value and adds nothing to it.
  message.GetReflection()->ClearField(&message, &field);
  if (field.is_map()) {
    ReadMap(node, path, message, field);
  } else if (field.is_repeated()) {
    ReadList(node, path, message, field);
  } else {
    ReadElement(node, path, message, field);
  }
}

void Reader::ReadMap(const YAML::Node& node,
                     const std::string& path,
                     Message& message,
                     const FieldDescriptor& field) {
  if (!node.IsMap()) {
    Fail(node, path, std::string("expected a map of key: value, got ") + KindOf(node));
    return;
  }
  ReadEntries(node, path, /*fields=*/nullptr,
              [&](const YAML::Node& key_node, const YAML::Node& value, const std::string& key) {
                if (HasValue(key_node, value, Join(path, key))) {
                  AddMapEntry(value, Join(path, key), message, field, key);
                }
              });
}

void Reader::ReadMapEntry(const YAML::Node& node,
                          const std::string& path,
                          Message& message,
                          const FieldDescriptor& field,
                          const std::string& key) {
  const auto* reflection = message.GetReflection();
  const Descriptor& entry_type = *field.message_type();
  // Reflection sees a map as a list of entries; an entry of the same key is replaced in place.
  for (int i = 0; i < reflection->FieldSize(message, &field); ++i) {
    Message* entry = reflection->MutableRepeatedMessage(&message, &field, i);
    if (entry->GetReflection()->GetString(*entry, entry_type.map_key()) == key) {
      ReadField(node, path, *entry, *entry_type.map_value());
      return;
    }
  }
  AddMapEntry(node, path, message, field, key);
}

void Reader::AddMapEntry(const YAML::Node& node,
                         const std::string& path,
                         Message& message,
                         const FieldDescriptor& field,
                         const std::string& key) {
  const Descriptor& entry_type = *field.message_type();
  Message* entry = message.GetReflection()->AddMessage(&message, &field);
  entry->GetReflection()->SetString(entry, entry_type.map_key(), key);
  ReadField(node, path, *entry, *entry_type.map_value());
}

void Reader::ReadList(const YAML::Node& node,
                      const std::string& path,
                      Message& message,
                      const FieldDescriptor& field) {
  if (!node.IsSequence()) {
    ReadElement(node, path, message, field);  // one element needs no brackets
    return;
  }
  int index = 0;
  for (const YAML::Node& element : node) {
    const std::string element_path = path + '[' + std::to_string(index++) + ']';
    if (!Budget(element, element_path)) {
      return;
    }
    if (element.IsNull()) {
      Fail(element, element_path, "has no value; give one or remove the element");
    } else {
      ReadElement(element, element_path, message, field);
    }
  }
}

void Reader::ReadElement(const YAML::Node& node,
                         const std::string& path,
                         Message& message,
                         const FieldDescriptor& field) {
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || IsDuration(field) ||
      IsTimestamp(field)) {
    ReadScalar(node, path, message, field);
    return;
  }
  const auto* reflection = message.GetReflection();
  Message& target = field.is_repeated() ? *reflection->AddMessage(&message, &field)
                                        : *reflection->MutableMessage(&message, &field);
  ReadMessage(node, path, target);
}

void Reader::ReadScalar(const YAML::Node& node,
                        const std::string& path,
                        Message& message,
                        const FieldDescriptor& field) {
  if (!node.IsScalar()) {
    Fail(node, path, std::string("expected a single value, got ") + KindOf(node));
    return;
  }
  if (!IsKnownTag(node.Tag())) {
    Fail(node, path, "YAML tags are not supported");
    return;
  }
  const auto* reflection = message.GetReflection();
  // yaml-cpp tags plain scalars "?" and quoted ones "!".
  const Scalar scalar = {node.Scalar(), node.Tag() != "?" && !node.Tag().empty()};
  absl::Status status;
  // Stores the parsed value, or keeps the error.
  const auto store = [&status](const auto& value, const auto& set) {
    if (value.ok()) {
      set(*value);
    } else {
      status = value.status();
    }
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      if (field.is_repeated()) {
        reflection->AddString(&message, &field, NameOfValue(scalar.text, field));
      } else {
        reflection->SetString(&message, &field, NameOfValue(scalar.text, field));
      }
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      store(ParseBool(scalar), [&](bool v) { reflection->SetBool(&message, &field, v); });
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      store(ParseNumber(scalar), [&](double v) { reflection->SetDouble(&message, &field, v); });
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      store(ParseInteger(scalar), [&](int64_t v) {
        if (field.is_repeated()) {
          reflection->AddInt64(&message, &field, v);
        } else {
          reflection->SetInt64(&message, &field, v);
        }
      });
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      store(ParseInt32(scalar, IsAutoInteger(field)), [&](int32_t v) {
        if (field.is_repeated()) {
          reflection->AddInt32(&message, &field, v);
        } else {
          reflection->SetInt32(&message, &field, v);
        }
      });
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      status = ReadTime(scalar, field, *reflection->MutableMessage(&message, &field));
      break;
    default:
      status = absl::InvalidArgumentError("this field cannot be given in a job file");
      break;
  }
  if (!status.ok()) {
    Fail(node, path, std::string(status.message()));
  }
}

}  // namespace hearth::config
