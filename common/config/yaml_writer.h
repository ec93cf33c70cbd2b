// From protobuf messages to the YAML of the job file.
#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace hearth::config {

// The set fields in the order of the proto, in block style; "{}\n" when nothing is set.
std::string WriteBlock(const google::protobuf::Message& message);

// One field in flow style, e.g. "[bf16]", "{path: /a, weight: 2}"; "unset" when it is not set.
std::string WriteFlow(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

// One entry of a map field in flow style; "unset" when there is none.
std::string WriteFlowEntry(const google::protobuf::Message& message,
                           const google::protobuf::FieldDescriptor& field,
                           const std::string& key);

}  // namespace hearth::config
