// The job file: YAML to JobSpec, with errors that name file, line, field path and the nearest valid
// name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "hearth/v1/job.pb.h"

namespace hearth::config {

// Parses `text` (named `file_name` in errors). Refuses unknown and duplicate keys, wrong types,
// out-of-range integers, YAML 1.1 traps (010, no, yes as bool). kInvalidArgument: all errors, one a
// line "job.yaml:12: batch.micro_batch_sizes: unknown key; did you mean micro_batch_size?".
absl::StatusOr<v1::JobSpec> ParseJobSpec(std::string_view text, std::string_view file_name);

// The same for another message of hearth.v1, whose fields are the keys: sets those that are given.
absl::Status ParseInto(std::string_view text,
                       std::string_view file_name,
                       google::protobuf::Message& message);

// Applies "path=value" (value in YAML syntax) as --set does. The field path of errors is the path
// given.
absl::Status ApplyOverride(v1::JobSpec& job_spec, std::string_view assignment);

// YAML of the set fields, in the order of the proto; ParseJobSpec(ToYaml(s)) == s.
std::string ToYaml(const v1::JobSpec& job_spec);

// ApplyOverride, but kInvalidArgument for a field that a resume may not change
// (FieldRow.resume). Appends "path: old -> new" to `changes`.
absl::Status ApplyResumeOverride(v1::JobSpec& job_spec,
                                 std::string_view assignment,
                                 std::vector<std::string>& changes);

// The same for several, in order. kInvalidArgument: all that is wrong with any of them, as
// spec::ViolationsToStatus, with the values that are out of range, or, if nothing else is wrong,
// the overrides that change nothing in this job; nothing is changed then. A text of more than 2,000
// bytes ends with how many mistakes are left out.
absl::Status ApplyResumeOverrides(v1::JobSpec& job_spec,
                                  absl::Span<const std::string> assignments,
                                  std::vector<std::string>& changes);

// "unknown key; did you mean micro_batch_size?": the field that people also call `key`, here or
// elsewhere in the file, else the nearest name here, else the path of a field of that name. `type`
// is the section that was meant to have it.
std::string UnknownKeyText(std::string_view key, const google::protobuf::Descriptor& type);

}  // namespace hearth::config
