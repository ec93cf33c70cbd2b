// Fields of the job file whose values checkpoints record (FieldRow.recorded), so that a program can
// run the model without its job.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "hearth/v1/job.pb.h"

namespace hearth::spec {

using RecordedValue = std::variant<std::string, int64_t>;

// The keys under which they are recorded, in the order of the proto.
std::vector<std::string_view> RecordedKeys();

// By key, those that the job sets; in the same order.
std::vector<std::pair<std::string_view, RecordedValue>> RecordedValues(const v1::JobSpec& job);

// Sets the field that is recorded under `key`. False, and the job as it was: there is no such key,
// or the field holds no value of this type.
bool SetRecorded(std::string_view key, const RecordedValue& value, v1::JobSpec& job);

// The job's values of these fields and nothing else.
v1::JobSpec RecordedOf(const v1::JobSpec& job);

}  // namespace hearth::spec
