#include "common/spec/fields/recorded.h"

#include <limits>

#include "common/base/status_macros.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "common/spec/violations/text.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace hearth::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct RecordedField {
  std::string_view key;
  std::string path;
  const FieldDescriptor* field = nullptr;
};

const std::vector<RecordedField>& Fields() {
  static const auto& fields = *[] {
    auto* found = new std::vector<RecordedField>();
    ForEachField([found](const std::string& path, const FieldDescriptor& field) {
      const std::string& key = RowOf(field).recorded();
      if (key.empty()) {
        return;
      }
      const bool fits = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
                        field.cpp_type() == FieldDescriptor::CPPTYPE_INT32 ||
                        field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;
      HEARTH_CHECK(fits && !field.is_repeated(),
                   Text("checkpoints cannot record ", path, ": no text or whole number").c_str());
      found->push_back({key, path, &field});
    });
    return found;
  }();
  return fields;
}

}  // namespace

std::vector<std::string_view> RecordedKeys() {
  std::vector<std::string_view> keys;
  for (const RecordedField& row : Fields()) {
    keys.push_back(row.key);
  }
  return keys;
}

std::vector<std::pair<std::string_view, RecordedValue>> RecordedValues(const v1::JobSpec& job) {
  std::vector<std::pair<std::string_view, RecordedValue>> values;
  for (const RecordedField& row : Fields()) {
    const Message* message = FindPlace(job, row.path).message;
    if (message == nullptr || !message->GetReflection()->HasField(*message, row.field)) {
      continue;
    }
    const auto& reflection = *message->GetReflection();
    switch (row.field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        values.emplace_back(row.key, reflection.GetString(*message, row.field));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        values.emplace_back(row.key, int64_t{reflection.GetInt32(*message, row.field)});
        break;
      default:
        values.emplace_back(row.key, reflection.GetInt64(*message, row.field));
    }
  }
  return values;
}

bool SetRecorded(std::string_view key, const RecordedValue& value, v1::JobSpec& job) {
  for (const RecordedField& row : Fields()) {
    if (row.key != key) {
      continue;
    }
    const bool is_text = row.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    const bool is_small = row.field->cpp_type() == FieldDescriptor::CPPTYPE_INT32;
    if (is_text != std::holds_alternative<std::string>(value)) {
      return false;
    }
    const int64_t number = is_text ? 0 : std::get<int64_t>(value);
    if (is_small && (number < std::numeric_limits<int32_t>::min() ||
                     number > std::numeric_limits<int32_t>::max())) {
      return false;
    }
    Message* message = MutablePlace(job, row.path);
    const auto& reflection = *message->GetReflection();
    if (is_text) {
      reflection.SetString(message, row.field, std::get<std::string>(value));
    } else if (is_small) {
      reflection.SetInt32(message, row.field, static_cast<int32_t>(number));
    } else {
      reflection.SetInt64(message, row.field, number);
    }
    return true;
  }
  return false;
}

v1::JobSpec RecordedOf(const v1::JobSpec& job) {
  v1::JobSpec recorded;
  for (const auto& [key, value] : RecordedValues(job)) {
    SetRecorded(key, value, recorded);
  }
  return recorded;
}

}  // namespace hearth::spec
