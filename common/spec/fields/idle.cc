#include "common/spec/fields/idle.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "common/base/status_macros.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/idle_values.h"
#include "common/spec/fields/rows.h"
#include "common/spec/violations/checker.h"
#include "common/spec/violations/text.h"
#include "google/protobuf/util/message_differencer.h"

namespace hearth::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

v1::JobSpec Resolved(v1::JobSpec job_spec) {
  std::vector<FieldViolation> ignored;  // found by whoever resolves the spec itself
  Resolve(job_spec, ignored);
  return job_spec;
}

// Whether all that a section gives are the defaults of its rows.
bool HasOnlyDefaults(const Message& section) {
  std::vector<const FieldDescriptor*> given;
  section.GetReflection()->ListFields(section, &given);
  return std::all_of(given.begin(), given.end(), [&section](const FieldDescriptor* field) {
    return HasRows(*field) ? HasOnlyDefaults(section.GetReflection()->GetMessage(section, field))
                           : IsRowDefault(section, *field);
  });
}

// Whether it is the default of the row, or the job would have the same value without the key: by
// default, or from its preset.
bool IsDefault(const v1::JobSpec& given, const v1::JobSpec& resolved, const std::string& path) {
  const Place place = FindPlace(given, path);
  const FieldDescriptor& row = *place.field;
  if (HasRows(row)
          ? HasOnlyDefaults(place.message->GetReflection()->GetMessage(*place.message, &row))
          : IsRowDefault(*place.message, row)) {
    return true;
  }
  v1::JobSpec without = given;
  Message* message = MutablePlace(without, path);
  const FieldDescriptor* field = place.field;
  message->GetReflection()->ClearField(message, field);
  without = Resolved(std::move(without));
  const Place a = FindPlace(resolved, path);
  const Place b = FindPlace(without, path);
  if (a.message == nullptr || b.message == nullptr) {
    return a.message == b.message;
  }
  // CompareWithFields takes a field that is not set for one of value 0.
  const auto set = [field](const Message& at) {
    return field->is_repeated() || at.GetReflection()->HasField(at, field);
  };
  if (set(*a.message) != set(*b.message)) {
    return false;
  }
  google::protobuf::util::MessageDifferencer differencer;
  return differencer.CompareWithFields(*a.message, *b.message, {field}, {field});
}

bool IsGiven(const Message& message, const FieldDescriptor& field) {
  return field.is_repeated() ? message.GetReflection()->FieldSize(message, &field) > 0
                             : message.GetReflection()->HasField(message, &field);
}

void CheckRow(const v1::JobSpec& given,
              const v1::JobSpec& resolved,
              const std::string& path,
              const FieldDescriptor& field,
              Checker& check) {
  const std::string& condition = RowOf(field).applies_when();
  const std::string& neutral = RowOf(field).neutral();
  const Place place = FindPlace(given, path);
  if (condition.empty() || place.message == nullptr || !IsGiven(*place.message, field) ||
      Evaluate(condition, resolved) != Truth::kNo ||
      (!neutral.empty() && ValueText(given, path) == neutral) || IsDefault(given, resolved, path)) {
    return;
  }
  check.Add(path, Text("changes nothing: ", WhyNot(condition, resolved)));
}

// The fields of the entries of a list, `path`.
void CheckEntries(const v1::JobSpec& given,
                  const v1::JobSpec& resolved,
                  const std::string& path,
                  const FieldDescriptor& list,
                  Checker& check) {
  const Place place = FindPlace(given, path);
  const Place in_resolved = FindPlace(resolved, path);
  if (!list.is_repeated() || list.is_map() || list.message_type() == nullptr ||
      place.message == nullptr || in_resolved.message == nullptr) {
    return;
  }
  const int entries = place.message->GetReflection()->FieldSize(*place.message, &list);
  HEARTH_CHECK(
      in_resolved.message->GetReflection()->FieldSize(*in_resolved.message, &list) == entries,
      "resolving a spec keeps the lists as long as they are");
  for (int i = 0; i < entries; ++i) {
    const Message& entry =
        place.message->GetReflection()->GetRepeatedMessage(*place.message, &list, i);
    const ListEntry about{
        path, entries,
        &in_resolved.message->GetReflection()->GetRepeatedMessage(*in_resolved.message, &list, i)};
    for (int k = 0; k < list.message_type()->field_count(); ++k) {
      const FieldDescriptor& field = *list.message_type()->field(k);
      const std::string& condition = RowOf(field).applies_when();
      if (!condition.empty() && IsGiven(entry, field) && !IsRowDefault(entry, field) &&
          Evaluate(condition, resolved, &about) == Truth::kNo) {
        check.Add(Text(path, '[', i, "].", field.name()),
                  Text("changes nothing: ", WhyNot(condition, resolved, &about)));
      }
    }
  }
}

}  // namespace

void ResolveSubmitted(v1::JobSpec& job_spec, std::vector<FieldViolation>& violations) {
  CheckIdleKeys(job_spec, violations);
  Resolve(job_spec, violations);
}

absl::Status ResolveSubmitted(v1::JobSpec& job_spec) {
  std::vector<FieldViolation> violations;
  ResolveSubmitted(job_spec, violations);
  return ViolationsToStatus(violations);
}

void ClearIdlePrecision(v1::JobSpec& given) {
  const v1::JobSpec resolved = Resolved(given);
  ForEachField([&](const std::string& path, const FieldDescriptor& field) {
    const std::string& condition = RowOf(field).applies_when();
    const Place place = FindPlace(given, path);
    if (!absl::StartsWith(path, "precision.") || condition.empty() || place.message == nullptr ||
        Evaluate(condition, resolved) != Truth::kNo) {
      return;
    }
    Message* message = MutablePlace(given, path);
    message->GetReflection()->ClearField(message, &field);
  });
  if (given.precision().techniques().ByteSizeLong() == 0) {
    given.mutable_precision()->clear_techniques();
  }
}

void CheckIdleKeys(const v1::JobSpec& given, std::vector<FieldViolation>& violations) {
  Checker check(violations);
  const v1::JobSpec resolved = Resolved(given);
  ForEachField([&](const std::string& path, const FieldDescriptor& field) {
    CheckRow(given, resolved, path, field, check);
    CheckEntries(given, resolved, path, field, check);
  });
  CheckIdleValues(
      given, resolved, [&](const std::string& path) { return IsDefault(given, resolved, path); },
      check);
}

}  // namespace hearth::spec
