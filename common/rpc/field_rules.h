// Bounds on what comes over the wire: one default for every field of every message, and a table of
// the fields that differ. Messages are walked by reflection, so a field that is added later has
// bounds from the start.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"

namespace hearth::rpc {

// Which characters a string may have.
enum class TextKind {
  kLine,  // no control characters
  kText,  // line ends and tabs as well
  kAny,
};

// Bounds of one field. Which of them matter follows from the field's type.
struct FieldRule {
  // "Hello.labels" of hearth.v1, or a full name ("google.protobuf.Timestamp.seconds"). Keys and
  // values of a map: "Hello.LabelsEntry.key". "*.job_id": the field of that name of every message,
  // unless a row names it with its message. "" for the default.
  std::string_view field = {};
  // Strings and bytes.
  int64_t max_bytes = 4096;
  // Messages: the serialized size, all that is in them included; 0 = what is in them is bound
  // enough.
  int64_t max_message_bytes = 0;
  // Repeated fields and maps.
  int max_entries = 1024;
  TextKind text = TextKind::kLine;
  // Integers and floating-point numbers.
  double min = 0;
  double max = static_cast<double>(std::numeric_limits<int64_t>::max());
  // Floating-point numbers of any value, infinities and NaN included.
  bool any_number = false;
};

// Immutable once made; thread-safe.
class FieldRules {
 public:
  // Aborts when a row with a message names no field that is linked in. Rows are copied; their names
  // must outlive this.
  FieldRules(const FieldRule& fallback, absl::Span<const FieldRule> rows);

  // kInvalidArgument naming the first field outside its bounds, what it is and what is allowed:
  // "report.logs.dropped is 9223372036854775807; it must be within 0..1099511627776". ErrorInfo
  // has the reason FIELD_OUT_OF_BOUNDS and {"field": ...}. Enums must have a known value; unknown
  // fields may have as many bytes as a string.
  absl::Status Check(const google::protobuf::Message& message) const;

 private:
  absl::Status CheckMessage(const google::protobuf::Message& message,
                            const std::string& path) const;
  const FieldRule& RuleOf(const google::protobuf::FieldDescriptor* field) const;

  const FieldRule fallback_;
  absl::flat_hash_map<const google::protobuf::FieldDescriptor*, FieldRule> rows_;
  absl::flat_hash_map<std::string, FieldRule> of_any_message_;  // by the field's name
};

// The error of FieldRules::Check, for checks that are not bounds of one field.
absl::Status FieldError(std::string_view field, std::string_view problem);

}  // namespace hearth::rpc
