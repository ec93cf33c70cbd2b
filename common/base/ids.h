// Identifiers: random ones and those that people choose.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hearth {

// `bytes` bytes of getrandom(2), as lower-case hex. Aborts when the kernel gives no randomness.
std::string RandomHex(size_t bytes);

// A random (version 4) UUID: "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx".
std::string RandomUuid();

// True for a UUID in the 8-4-4-4-12 form, either case, any version.
bool IsUuid(std::string_view text);

// Job ids and worker names appear in paths, labels and resource names: 1 to 63 of [a-z0-9-],
// starting with a letter or digit, not ending in '-'. kInvalidArgument says what is wrong.
absl::Status ValidateJobId(std::string_view id);

// Worker names: 1 to 63 of [A-Za-z0-9._-], starting and ending with a letter or digit.
absl::Status ValidateWorkerId(std::string_view id);

// Users: the same alphabet as worker names.
absl::Status ValidateUserName(std::string_view name);

// A valid job id made of `name`: lower case, other characters become '-', runs are joined, cut to
// `max_length` (<= 63). "job" when nothing is left.
std::string Slug(std::string_view name, size_t max_length = 63);

// Slug(name) + '-' + 6 random hex digits; a valid job id.
std::string NewJobId(std::string_view name);

}  // namespace hearth
