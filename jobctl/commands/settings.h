// Settings that come from a flag, else the environment, else the context file.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "jobctl/commands/command_context.h"
#include "nlohmann/json.hpp"

namespace CLI {
class App;
}

namespace hearth::jobctl {

// Coordinator, TLS files, token, prices and temperature limit. A bad number makes the parse fail
// with what is accepted.
void AddSettings(CLI::App& app, Context& context);

// The value of an environment variable, "" when unset.
using Environment = std::function<std::string(const char* name)>;

// After the parse: a setting without a flag is taken from the environment, else from the context
// file at `path` with that text ("" = there is no file): from the context that --context,
// HEARTH_CONTEXT or the file itself names, else from the top (context_file.h). Unknown keys are
// ignored. A context named by --context takes precedence over the environment. The token file of a
// context is only for the coordinator of that context: it is not used if a flag or the environment
// names another coordinator. kInvalidArgument names the variable, or the file and key, and says
// what is accepted; kNotFound: there is no such context.
absl::Status ApplySettings(const CLI::App& app,
                           const Environment& environment,
                           const std::string& path,
                           const std::string& text,
                           Context& context);

// Whether a flag on the command line says which coordinator is meant. `app` has parsed.
bool NamesCoordinator(const CLI::App& app);

// What the flags on the command line set, for a context: an object with the keys of the context
// file. Paths become absolute, from `folder`. `app` has parsed.
nlohmann::json SettingsGiven(const CLI::App& app, const std::string& folder);

}  // namespace hearth::jobctl
