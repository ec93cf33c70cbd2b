// The rows that fields of the job file state in their protos (hearth/v1/options.proto), read by
// reflection: defaults, ranges and names. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/spec/violations/checker.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/options.pb.h"

namespace hearth::spec {

// The field's row; an empty one where the field states none.
const v1::FieldRow& RowOf(const google::protobuf::FieldDescriptor& field);

// Whether the field is a single message of the job file, whose fields have rows of their own.
bool HasRows(const google::protobuf::FieldDescriptor& field);

// What the field's row allows a number to be: "1..1024", "> 0 and < 1", "auto or 1..65536".
std::string RangeText(const google::protobuf::FieldDescriptor& field);

// The field of `type` that has this name, or had it in older versions (FieldRow.old_names); null:
// there is none.
const google::protobuf::FieldDescriptor* FindField(const google::protobuf::Descriptor& type,
                                                   std::string_view name);

// What a text of the field is called now (FieldRow.old_values): `value` itself, or a part of `row`.
std::string_view ModernValue(const v1::FieldRow& row, std::string_view value);

// The values that the row allows, or the keys of a map; empty: anything.
std::vector<std::string_view> NamesOf(const v1::FieldRow& row);

// Calls `visit` with the path and descriptor of every field of a JobSpec, sections before what lies
// in them. Elements of lists and maps are not entered.
void ForEachField(
    const std::function<void(const std::string&, const google::protobuf::FieldDescriptor&)>& visit);

// Whether `message` sets the field to the default of its row; false where the row has none.
bool IsRowDefault(const google::protobuf::Message& message,
                  const google::protobuf::FieldDescriptor& field);

// Puts today's values in the place of those of older versions (FieldRow.old_values).
void ModerniseValues(v1::JobSpec& job_spec);

// Fills in each field that is not set and whose row has a default, in the order of the proto.
void FillRowDefaults(v1::JobSpec& job_spec);

// The value of an integer field, or its row's default where it is not set: of specs that nobody has
// filled.
int64_t IntOrDefault(const google::protobuf::Message& message, int field_number);

// Checks every field of `message` and of what lies in it: required, range, names. `prefix` is the
// message's path and a dot; empty for a JobSpec.
void CheckRows(const google::protobuf::Message& message, const std::string& prefix, Checker& check);

// Whether the field's value, 0 if it is not set, lies in the range of its row.
bool InRange(const google::protobuf::Message& message, int field_number);

}  // namespace hearth::spec
