// Settings that come from a flag, else the environment, else the context file.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "jobctl/commands/command_row.h"

namespace hearth::jobctl {

// Coordinator, TLS files, prices and temperature limit. A bad number makes the parse fail with what
// is accepted.
void AddSettings(CLI::App& app, Context& context);

// The value of an environment variable, "" when unset.
using Environment = std::function<std::string(const char* name)>;

// After the parse: what no flag set is taken from the environment, else from the context file at
// `path` with that text ("" = there is none), a JSON object: {"coordinator": "host:port", "tls_ca":
// "...", "price_per_kwh": 0.1}. Keys that are not known are ignored. kInvalidArgument names the
// variable, or the file and key, and says what is accepted.
absl::Status ApplySettings(const CLI::App& app,
                           const Environment& environment,
                           const std::string& path,
                           const std::string& text,
                           Context& context);

}  // namespace hearth::jobctl
