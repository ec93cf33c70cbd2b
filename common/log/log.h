// Log lines to stderr. The programs' only way to log; messages are for operators, data goes to
// stdout or RPCs.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "spdlog/spdlog.h"

namespace hearth::log {

// Sets up the process-wide logger. `level`: trace | debug | info | warning | error | off; empty =
// HEARTH_LOG_LEVEL, or info. `json`: one object a line {ts, level, program, pid, msg}.
// kInvalidArgument: unknown level. Call once from main(). Before the call lines go to stderr at
// level info.
absl::Status Init(std::string_view program, std::string_view level = "", bool json = false);

// Changes the level of a running program. kInvalidArgument: unknown level.
absl::Status SetLevel(std::string_view level);

// The process-wide logger; thread-safe.
spdlog::logger& Logger();

}  // namespace hearth::log

// HEARTH_LOG_INFO("job {} started on {} workers", id, n): fmt syntax, checked when compiling;
// arguments are not evaluated when the level is off. Pass std::string, not absl::string_view or
// absl::Status (use status.ToString()).
#define HEARTH_LOG_AT(level_value, ...)                       \
  do {                                                        \
    spdlog::logger& hearth_logger_ = ::hearth::log::Logger(); \
    if (hearth_logger_.should_log(level_value)) {             \
      hearth_logger_.log(level_value, __VA_ARGS__);           \
    }                                                         \
  } while (false)
#define HEARTH_LOG_DEBUG(...) HEARTH_LOG_AT(spdlog::level::debug, __VA_ARGS__)
#define HEARTH_LOG_INFO(...) HEARTH_LOG_AT(spdlog::level::info, __VA_ARGS__)
#define HEARTH_LOG_WARNING(...) HEARTH_LOG_AT(spdlog::level::warn, __VA_ARGS__)
#define HEARTH_LOG_ERROR(...) HEARTH_LOG_AT(spdlog::level::err, __VA_ARGS__)
