#include "common/spec/fields/rows.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/tables.h"
#include "common/spec/violations/text.h"
#include "google/protobuf/util/message_differencer.h"

namespace hearth::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr char kDuration[] = "google.protobuf.Duration";

bool IsInteger(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;
}

// A bound as text. Integers up to 2^53 are exact in a double.
std::string BoundText(const FieldDescriptor& field, double bound) {
  return IsInteger(field) ? Text(static_cast<int64_t>(bound)) : Text(bound);
}

// NaN lies in no range.
bool Within(const v1::FieldRow& row, double value) {
  if (!row.zero().empty() && value == 0.0) {
    return true;
  }
  const bool above = !row.has_min() || (row.above_min() ? value > row.min() : value >= row.min());
  const bool below = !row.has_max() || (row.below_max() ? value < row.max() : value <= row.max());
  return std::isfinite(value) && above && below;
}

double Seconds(const Message& duration) {
  const auto& value = dynamic_cast<const google::protobuf::Duration&>(duration);
  return static_cast<double>(value.seconds()) + 1e-9 * value.nanos();
}

// What CheckNumber compares, and how it is shown.
struct Number {
  double value = 0.0;
  std::string text;
};

bool IsNumber(const FieldDescriptor& field) {
  return IsInteger(field) || field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
         (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
          field.message_type()->full_name() == kDuration);
}

Number NumberOf(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const int32_t value = reflection.GetInt32(message, &field);
      return {static_cast<double>(value), Text(value)};
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value = reflection.GetInt64(message, &field);
      return {static_cast<double>(value), Text(value)};
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = reflection.GetDouble(message, &field);
      return {value, Text(value)};
    }
    default: {
      const double seconds = Seconds(reflection.GetMessage(message, &field));
      return {seconds, Text(seconds, " s")};
    }
  }
}

// What `name` stands for in a list of "name=value"; "": nothing.
template <typename Pairs>
std::string_view FindPair(const Pairs& pairs, std::string_view name) {
  for (const std::string& text : pairs) {
    const std::string_view pair = text;
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == name) {
      return pair.substr(equals + 1);
    }
  }
  return {};
}

// What people mean by `value`: the row's value that they also call so, or "field: value" if another
// field has it; "": nothing is known.
std::string MeantBy(const v1::FieldRow& row, const std::string& value) {
  const std::string name = absl::AsciiStrToLower(value);
  const std::string_view field = FindPair(row.value_elsewhere(), name);
  return field.empty() ? std::string(FindPair(row.value_synonyms(), name))
                       : Text(field, ": ", name);
}

void CheckName(const std::string& path,
               const v1::FieldRow& row,
               const std::string& value,
               Checker& check) {
  const std::vector<std::string_view> names = NamesOf(row);
  if (names.empty() || std::find(names.begin(), names.end(), value) != names.end()) {
    return;
  }
  check.Add(path, UnknownNameText(value, row.what().empty() ? "value" : row.what(), names,
                                  MeantBy(row, value)));
}

void CheckSingle(const Message& message,
                 const FieldDescriptor& field,
                 const std::string& path,
                 Checker& check) {
  const v1::FieldRow& row = RowOf(field);
  const auto& reflection = *message.GetReflection();
  if (IsNumber(field)) {
    const Number number = NumberOf(message, field);
    if (!Within(row, number.value)) {
      check.Add(path, Text(number.text, " is out of range; must be ", RangeText(field)));
    }
  } else if (HasRows(field)) {
    CheckRows(reflection.GetMessage(message, &field), path + '.', check);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    const std::string value = reflection.GetString(message, &field);
    // An empty text says no more than a missing one.
    if (row.required() && value.empty()) {
      check.Add(path, "required");
    } else {
      CheckName(path, row, value, check);
    }
  }
}

void CheckMap(const Message& message,
              const FieldDescriptor& field,
              const std::string& path,
              Checker& check) {
  const FieldDescriptor& value = *field.message_type()->map_value();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    const Message& entry = message.GetReflection()->GetRepeatedMessage(message, &field, i);
    const std::string key =
        entry.GetReflection()->GetString(entry, field.message_type()->map_key());
    const std::string entry_path = Text(path, '.', key);
    CheckName(entry_path, RowOf(field), key, check);
    if (value.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      CheckRows(entry.GetReflection()->GetMessage(entry, &value), entry_path + '.', check);
    }
  }
}

void CheckList(const Message& message,
               const FieldDescriptor& field,
               const std::string& path,
               Checker& check) {
  const int size = message.GetReflection()->FieldSize(message, &field);
  if (RowOf(field).required() && size == 0) {
    check.Add(path, "required: at least one");
  }
  for (int i = 0; field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && i < size; ++i) {
    CheckName(Text(path, '[', i, ']'), RowOf(field),
              message.GetReflection()->GetRepeatedString(message, &field, i), check);
  }
  for (int i = 0; field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && i < size; ++i) {
    CheckRows(message.GetReflection()->GetRepeatedMessage(message, &field, i),
              Text(path, '[', i, "]."), check);
  }
}

void SetFromText(Message& message, const FieldDescriptor& field, const std::string& text) {
  const auto& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, &field, std::atoi(text.c_str()));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&message, &field, std::atoll(text.c_str()));
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      // Not strtod, which reads by the locale.
      double value = 0.0;
      (void)absl::SimpleAtod(text, &value);
      return reflection.SetDouble(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, text == "true");
    default:
      return reflection.SetString(&message, &field, text);
  }
}

// `job_spec` is what conditions are about; `message` is it or lies in it.
void Fill(const v1::JobSpec& job_spec, Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const v1::FieldRow& row = RowOf(field);
    // `message` lies in `job_spec`, so the condition sees the defaults of the fields before this
    // one. A condition that cannot be judged gives no default.
    if (!row.default_when().empty() && Evaluate(row.default_when(), job_spec) != Truth::kYes) {
      continue;
    }
    if (HasRows(field)) {
      if (row.present() || reflection.HasField(message, &field)) {
        Fill(job_spec, *reflection.MutableMessage(&message, &field));
      }
    } else if (field.is_repeated()) {
      const bool elements = !field.is_map() && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
      for (int k = 0; elements && k < reflection.FieldSize(message, &field); ++k) {
        Fill(job_spec, *reflection.MutableRepeatedMessage(&message, &field, k));
      }
    } else if (!row.default_value().empty() && !reflection.HasField(message, &field)) {
      SetFromText(message, field, row.default_value());
    }
  }
}

void Modernise(Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated() || !reflection.HasField(message, &field)) {
      continue;
    }
    if (HasRows(field)) {
      Modernise(*reflection.MutableMessage(&message, &field));
    } else if (!RowOf(field).old_values().empty()) {
      const std::string value = reflection.GetString(message, &field);
      reflection.SetString(&message, &field, std::string(ModernValue(RowOf(field), value)));
    }
  }
}

void Visit(const Descriptor& type,
           const std::string& prefix,
           const std::function<void(const std::string&, const FieldDescriptor&)>& visit) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    visit(prefix + field.name(), field);
    if (HasRows(field)) {
      Visit(*field.message_type(), prefix + field.name() + '.', visit);
    }
  }
}

}  // namespace

const v1::FieldRow& RowOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::field);
}

bool HasRows(const FieldDescriptor& field) {
  // Messages of other packages, such as Duration, are single values.
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated() &&
         field.message_type()->file()->package() == v1::JobSpec::descriptor()->file()->package();
}

std::string RangeText(const FieldDescriptor& field) {
  const v1::FieldRow& row = RowOf(field);
  const std::string zero = row.zero().empty() ? "" : row.zero() + " or ";
  const std::string min = BoundText(field, row.min());
  const std::string max = BoundText(field, row.max());
  if (row.has_min() && row.has_max() && !row.above_min() && !row.below_max()) {
    return Text(zero, min, "..", max);
  }
  std::string text = zero;
  if (row.has_min()) {
    text += Text(row.above_min() ? "> " : ">= ", min);
  }
  if (row.has_max()) {
    text += Text(row.has_min() ? " and " : "", row.below_max() ? "< " : "<= ", max);
  }
  return text.empty() ? "finite" : text;
}

const FieldDescriptor* FindField(const Descriptor& type, std::string_view name) {
  const FieldDescriptor* const field = type.FindFieldByName(std::string(name));
  for (int i = 0; field == nullptr && i < type.field_count(); ++i) {
    const auto& old = RowOf(*type.field(i)).old_names();
    if (std::find(old.begin(), old.end(), name) != old.end()) {
      return type.field(i);
    }
  }
  return field;
}

std::string_view ModernValue(const v1::FieldRow& row, std::string_view value) {
  const std::string_view now = FindPair(row.old_values(), value);
  return now.empty() ? value : now;
}

std::vector<std::string_view> NamesOf(const v1::FieldRow& row) {
  return row.table().empty()
             ? std::vector<std::string_view>(row.one_of().begin(), row.one_of().end())
             : TableNames(row.table());
}

void ForEachField(const std::function<void(const std::string&, const FieldDescriptor&)>& visit) {
  Visit(*v1::JobSpec::descriptor(), "", visit);
}

bool IsRowDefault(const Message& message, const FieldDescriptor& field) {
  const std::string& text = RowOf(field).default_value();
  if (text.empty() || field.is_repeated() || !message.GetReflection()->HasField(message, &field)) {
    return false;
  }
  const std::unique_ptr<Message> row(message.New());
  SetFromText(*row, field, text);
  google::protobuf::util::MessageDifferencer differencer;
  return differencer.CompareWithFields(message, *row, {&field}, {&field});
}

void ModerniseValues(v1::JobSpec& job_spec) {
  Modernise(job_spec);
}

void FillRowDefaults(v1::JobSpec& job_spec) {
  Fill(job_spec, job_spec);
}

int64_t IntOrDefault(const Message& message, int field_number) {
  const FieldDescriptor& field = *message.GetDescriptor()->FindFieldByNumber(field_number);
  if (message.GetReflection()->HasField(message, &field)) {
    return static_cast<int64_t>(NumberOf(message, field).value);
  }
  const std::unique_ptr<Message> row(message.New());
  SetFromText(*row, field, RowOf(field).default_value());
  return static_cast<int64_t>(NumberOf(*row, field).value);
}

void CheckRows(const Message& message, const std::string& prefix, Checker& check) {
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string path = prefix + field.name();
    if (field.is_map()) {
      CheckMap(message, field, path, check);
    } else if (field.is_repeated()) {
      CheckList(message, field, path, check);
    } else if (message.GetReflection()->HasField(message, &field)) {
      CheckSingle(message, field, path, check);
    } else if (RowOf(field).required()) {
      check.Add(path, "required");
    }
  }
}

bool InRange(const Message& message, int field_number) {
  const FieldDescriptor& field = *message.GetDescriptor()->FindFieldByNumber(field_number);
  return Within(RowOf(field), NumberOf(message, field).value);
}

}  // namespace hearth::spec
