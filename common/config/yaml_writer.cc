#include "common/config/yaml_writer.h"

#include <algorithm>
#include <vector>

#include "common/config/scalars.h"
#include "hearth/v1/job.pb.h"

namespace hearth::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

template <typename Type>
bool IsOf(const FieldDescriptor& field) {
  return field.message_type() != nullptr &&
         field.message_type()->full_name() == Type::descriptor()->full_name();
}

bool IsStructured(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         !IsOf<google::protobuf::Duration>(field) && !IsOf<google::protobuf::Timestamp>(field);
}

std::string NumberOrAuto(const Message& message, const FieldDescriptor& field) {
  const int32_t value = message.GetReflection()->GetInt32(message, &field);
  const bool may_be_auto =
      message.GetDescriptor()->full_name() == v1::BatchSpec::descriptor()->full_name() &&
      field.number() == v1::BatchSpec::kMicroBatchSizeFieldNumber;
  return may_be_auto && value == 0 ? "auto" : std::to_string(value);
}

// A singular field that is neither a map nor a message with fields of its own.
std::string ScalarText(const Message& message, const FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return FormatString(reflection->GetString(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return FormatNumber(reflection->GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return std::to_string(reflection->GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_INT32:
      return NumberOrAuto(message, field);
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      if (IsOf<google::protobuf::Timestamp>(field)) {
        google::protobuf::Timestamp time;
        time.CopyFrom(reflection->GetMessage(message, &field));
        return FormatString(FormatTimestamp(time));
      }
      google::protobuf::Duration duration;
      duration.CopyFrom(reflection->GetMessage(message, &field));
      return FormatDuration(duration);
    }
    default:
      return "null";
  }
}

// Set fields in the order in which the proto declares them.
std::vector<const FieldDescriptor*> SetFields(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const auto* reflection = message.GetReflection();
    if (field->is_repeated() ? reflection->FieldSize(message, field) > 0
                             : reflection->HasField(message, field)) {
      fields.push_back(field);
    }
  }
  return fields;
}

// Entries of a map field, sorted by key: the order of the map itself differs from run to run.
std::vector<const Message*> SortedEntries(const Message& message, const FieldDescriptor& field) {
  std::vector<const Message*> entries;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    entries.push_back(&message.GetReflection()->GetRepeatedMessage(message, &field, i));
  }
  const FieldDescriptor* key = field.message_type()->map_key();
  std::sort(entries.begin(), entries.end(), [key](const Message* a, const Message* b) {
    return a->GetReflection()->GetString(*a, key) < b->GetReflection()->GetString(*b, key);
  });
  return entries;
}

// Quoted where a YAML 1.1 reader would take the plain word for something else, as `on` for true.
std::string FieldKey(const FieldDescriptor& field) {
  return FormatString(field.name());
}

std::string KeyText(const Message& entry, const FieldDescriptor& map_field) {
  return FormatString(entry.GetReflection()->GetString(entry, map_field.message_type()->map_key()));
}

std::string FlowValue(const Message& message, const FieldDescriptor& field);

std::string FlowMessage(const Message& message) {
  // As people write it: a source that is only a path is the path.
  if (message.GetDescriptor()->full_name() == v1::DataSource::descriptor()->full_name()) {
    v1::DataSource source;
    source.CopyFrom(message);
    if (source.has_path() && !source.has_weight()) {
      return FormatString(source.path());
    }
  }
  std::string text;
  for (const FieldDescriptor* field : SetFields(message)) {
    text += (text.empty() ? "" : ", ") + FieldKey(*field) + ": " + FlowValue(message, *field);
  }
  return '{' + text + '}';
}

std::string FlowMap(const Message& message, const FieldDescriptor& field) {
  std::string text;
  for (const Message* entry : SortedEntries(message, field)) {
    text += (text.empty() ? "" : ", ") + KeyText(*entry, field) + ": " +
            FlowValue(*entry, *field.message_type()->map_value());
  }
  return '{' + text + '}';
}

std::string FlowValue(const Message& message, const FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  if (field.is_map()) {
    return FlowMap(message, field);
  }
  if (field.is_repeated()) {
    std::string text;
    for (int i = 0; i < reflection->FieldSize(message, &field); ++i) {
      text += i == 0 ? "" : ", ";
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
        text += std::to_string(reflection->GetRepeatedInt32(message, &field, i));
      } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        text += std::to_string(reflection->GetRepeatedInt64(message, &field, i));
      } else {
        text += IsStructured(field)
                    ? FlowMessage(reflection->GetRepeatedMessage(message, &field, i))
                    : FormatString(reflection->GetRepeatedString(message, &field, i));
      }
    }
    return '[' + text + ']';
  }
  return IsStructured(field) ? FlowMessage(reflection->GetMessage(message, &field))
                             : ScalarText(message, field);
}

void AppendBlock(const Message& message, const std::string& indent, std::string& out) {
  for (const FieldDescriptor* field : SetFields(message)) {
    const bool section = IsStructured(*field) && !field->is_repeated();
    const Message* below = section ? &message.GetReflection()->GetMessage(message, field) : nullptr;
    out += indent + FieldKey(*field) + ':';
    if (below != nullptr && !SetFields(*below).empty()) {
      out += '\n';
      AppendBlock(*below, indent + "  ", out);
    } else {
      out += ' ' + FlowValue(message, *field) + '\n';
    }
  }
}

}  // namespace

std::string WriteBlock(const Message& message) {
  std::string out;
  AppendBlock(message, "", out);
  return out.empty() ? "{}\n" : out;
}

std::string WriteFlow(const Message& message, const FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  const bool set = field.is_repeated() ? reflection->FieldSize(message, &field) > 0
                                       : reflection->HasField(message, &field);
  return set ? FlowValue(message, field) : "unset";
}

std::string WriteFlowEntry(const Message& message,
                           const FieldDescriptor& field,
                           const std::string& key) {
  for (const Message* entry : SortedEntries(message, field)) {
    if (entry->GetReflection()->GetString(*entry, field.message_type()->map_key()) == key) {
      return FlowValue(*entry, *field.message_type()->map_value());
    }
  }
  return "unset";
}

}  // namespace hearth::config
