#include "common/rpc/field_rules.h"

#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace hearth::rpc {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr absl::string_view kPackage = "hearth.v1.";

// One value of a field: the field itself, or an entry of a repeated one.
struct Value {
  const Message& message;
  const FieldDescriptor* field;
  int index;  // -1 = not repeated

  template <typename One, typename Many>
  auto Get(One one, Many many) const {
    const Reflection& reflection = *message.GetReflection();
    return index < 0 ? (reflection.*one)(message, field)
                     : (reflection.*many)(message, field, index);
  }
};

bool IsAllowed(char c, TextKind kind) {
  const bool control = absl::ascii_iscntrl(static_cast<unsigned char>(c));
  return !control || kind == TextKind::kAny ||
         (kind == TextKind::kText && (c == '\n' || c == '\r' || c == '\t'));
}

absl::Status CheckNumber(const FieldRule& rule,
                         const std::string& path,
                         double number,
                         absl::string_view printed) {
  if (number >= rule.min && number <= rule.max) {
    return absl::OkStatus();
  }
  return FieldError(
      path, absl::StrFormat("is %s; it must be within %.15g..%.15g", printed, rule.min, rule.max));
}

absl::Status CheckDouble(const FieldRule& rule, const std::string& path, double number) {
  if (rule.any_number) {
    return absl::OkStatus();
  }
  return std::isfinite(number) ? CheckNumber(rule, path, number, absl::StrCat(number))
                               : FieldError(path, "is no finite number");
}

absl::Status CheckString(const FieldRule& rule,
                         const std::string& path,
                         const std::string& text,
                         bool is_bytes) {
  if (static_cast<int64_t>(text.size()) > rule.max_bytes) {
    return FieldError(path,
                      absl::StrCat("has ", text.size(), " bytes; the limit is ", rule.max_bytes));
  }
  for (const char c : text) {
    if (!is_bytes && !IsAllowed(c, rule.text)) {
      return FieldError(path,
                        absl::StrCat("has the control character 0x",
                                     absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckScalar(const FieldRule& rule, const std::string& path, const Value& value) {
  const FieldDescriptor* const field = value.field;
  const auto integer = [&](auto number) {
    return CheckNumber(rule, path, static_cast<double>(number), absl::StrCat(number));
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return integer(value.Get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return integer(value.Get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return integer(value.Get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return integer(value.Get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CheckDouble(rule, path,
                         value.Get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return CheckDouble(
          rule, path,
          static_cast<double>(value.Get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat)));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = value.Get(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue);
      return field->enum_type()->FindValueByNumber(number) != nullptr
                 ? absl::OkStatus()
                 : FieldError(path, absl::StrCat("has the unknown value ", number));
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const Reflection& reflection = *value.message.GetReflection();
      std::string scratch;
      const std::string& text =
          value.index < 0
              ? reflection.GetStringReference(value.message, field, &scratch)
              : reflection.GetRepeatedStringReference(value.message, field, value.index, &scratch);
      return CheckString(rule, path, text, field->type() == FieldDescriptor::TYPE_BYTES);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return absl::OkStatus();
}

const FieldDescriptor* FindField(std::string_view name) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const std::string full = absl::StrCat(kPackage, absl::string_view(name.data(), name.size()));
  const FieldDescriptor* const field = pool.FindFieldByName(full);
  return field != nullptr ? field : pool.FindFieldByName(std::string(name));
}

}  // namespace

absl::Status FieldError(std::string_view field, std::string_view problem) {
  const std::string name(field);
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat(name, " ", std::string(problem)), "FIELD_OUT_OF_BOUNDS",
                   {{"field", name}});
}

FieldRules::FieldRules(const FieldRule& fallback, absl::Span<const FieldRule> rows)
    : fallback_(fallback) {
  for (const FieldRule& row : rows) {
    if (row.field.starts_with("*.")) {
      of_any_message_[std::string(row.field.substr(2))] = row;
      continue;
    }
    const FieldDescriptor* const field = FindField(row.field);
    HEARTH_CHECK(field != nullptr, std::string(row.field).c_str());
    rows_[field] = row;
  }
}

const FieldRule& FieldRules::RuleOf(const FieldDescriptor* field) const {
  const auto found = rows_.find(field);
  if (found != rows_.end()) {
    return found->second;
  }
  const auto named = of_any_message_.find(field->name());
  return named == of_any_message_.end() ? fallback_ : named->second;
}

absl::Status FieldRules::Check(const Message& message) const {
  return CheckMessage(message, "");
}

absl::Status FieldRules::CheckMessage(const Message& message, const std::string& path) const {
  const Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  // A newer peer may send fields that are not known here; they must not be a way around the bounds.
  if (!unknown.empty() &&
      static_cast<int64_t>(unknown.SpaceUsedExcludingSelfLong()) > fallback_.max_bytes) {
    return FieldError(
        path.empty() ? message.GetTypeName() : path,
        absl::StrCat("has unknown fields of more than ", fallback_.max_bytes, " bytes"));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    const FieldRule& rule = RuleOf(field);
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    const int entries = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    if (field->is_repeated() && entries > rule.max_entries) {
      return FieldError(name,
                        absl::StrCat("has ", entries, " entries; the limit is ", rule.max_entries));
    }
    for (int i = 0; i < entries; ++i) {
      const Value value{message, field, field->is_repeated() ? i : -1};
      const std::string place = field->is_repeated() ? absl::StrCat(name, "[", i, "]") : name;
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        HEARTH_RETURN_IF_ERROR(CheckScalar(rule, place, value));
        continue;
      }
      const Message& inner = field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                  : reflection.GetMessage(message, field);
      HEARTH_RETURN_IF_ERROR(CheckMessage(inner, place));
      if (rule.max_message_bytes > 0 &&
          static_cast<int64_t>(inner.ByteSizeLong()) > rule.max_message_bytes) {
        return FieldError(place, absl::StrCat("has ", inner.ByteSizeLong(), " bytes; the limit is ",
                                              rule.max_message_bytes));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace hearth::rpc
