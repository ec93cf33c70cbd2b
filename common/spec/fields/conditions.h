// Conditions of field rows (FieldRow.default_when and applies_when; the grammar stands in
// hearth/v1/options.proto). Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "google/protobuf/message.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

enum class Truth { kNo, kYes, kUnknown };

// An entry of a list of messages in the job file: what conditions of its fields' rows are about,
// beside the JobSpec.
struct ListEntry {
  std::string list;                                    // path of the list, for errors
  int entries = 0;                                     // that the list has
  const google::protobuf::Message* message = nullptr;  // the entry; outlives this
};

// kUnknown where a path is not set and has no default, or a predicate cannot tell. A term that
// cannot be read ends the program; so does one about an entry without `entry`.
Truth Evaluate(std::string_view condition,
               const v1::JobSpec& job_spec,
               const ListEntry* entry = nullptr);

// What a condition asks for: "with schedule.name wsd and with schedule.decay_steps > 0".
std::string Needs(std::string_view condition);

// Why a condition is kNo, for an error: "it acts only with schedule.name wsd; here schedule.name is
// cosine".
std::string WhyNot(std::string_view condition,
                   const v1::JobSpec& job_spec,
                   const ListEntry* entry = nullptr);

// Where a path of single messages ends.
struct Place {
  const google::protobuf::Message* message = nullptr;  // null: a message on the way is not set
  const google::protobuf::FieldDescriptor* field = nullptr;  // null: there is no such field
};
Place FindPlace(const v1::JobSpec& job_spec, std::string_view path);

// The message in which the path's field lies, to be changed; messages on the way are made. The path
// leads somewhere.
google::protobuf::Message* MutablePlace(v1::JobSpec& job_spec, const std::string& path);

// Sets the field of the path, a text or a boolean, as the job file writes it.
void SetPlace(v1::JobSpec& job_spec, const std::string& path, std::string_view value);

// The value of a path as text, or of its row's default if it is not set; nullopt: neither. A path
// that names no field ends the program.
std::optional<std::string> ValueText(const v1::JobSpec& job_spec, std::string_view path);

}  // namespace hearth::spec
