#include "common/log/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/system.h"
#include "common/log/task_scope.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace hearth::log {
namespace {

constexpr char kPlainPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %L %n[%P] %v";

std::atomic<spdlog::logger*> g_logger{nullptr};

std::shared_ptr<spdlog::logger> NewLogger(std::string name) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>(std::move(name), std::move(sink));
  logger->set_formatter(
      std::make_unique<spdlog::pattern_formatter>(kPlainPattern, spdlog::pattern_time_type::utc));
  // Each line at once: the last ones before a crash are those that are needed.
  logger->flush_on(spdlog::level::trace);
  return logger;
}

// Loggers are never freed: threads may log while the process ends. Init is called from one thread.
void Install(std::shared_ptr<spdlog::logger> logger) {
  static auto* const kept = new std::vector<std::shared_ptr<spdlog::logger>>;
  kept->push_back(std::move(logger));
  g_logger.store(kept->back().get(), std::memory_order_release);
}

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char buffer[8];
          std::snprintf(buffer, sizeof(buffer), "\\u%04x", static_cast<unsigned>(c));
          out += buffer;
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

std::string_view View(spdlog::string_view_t text) {
  return {text.data(), text.size()};
}

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& dest) override {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(msg.time);
    const auto since = msg.time.time_since_epoch();
    const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char stamp[64];
    const size_t used = std::strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
    std::snprintf(stamp + used, sizeof(stamp) - used, ".%03dZ", static_cast<int>(millis));

    std::string out = "{\"ts\":";
    AppendJsonString(stamp, out);
    out += ",\"level\":";
    AppendJsonString(View(spdlog::level::to_string_view(msg.level)), out);
    out += ",\"program\":";
    AppendJsonString(View(msg.logger_name), out);
    absl::StrAppend(&out, ",\"pid\":", getpid());
    // Sinks write in the thread that logs.
    if (const TaskScope* task = TaskScope::Current()) {
      out += ",\"job_id\":";
      AppendJsonString(task->job_id(), out);
      if (task->epoch() >= 0) {
        absl::StrAppend(&out, ",\"epoch\":", task->epoch());
      }
      if (task->rank() >= 0) {
        absl::StrAppend(&out, ",\"rank\":", task->rank());
      }
    }
    out += ",\"msg\":";
    AppendJsonString(View(msg.payload), out);
    out += "}\n";
    dest.append(out.data(), out.data() + out.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

std::optional<spdlog::level::level_enum> ParseLevel(std::string_view level) {
  struct Row {
    std::string_view name;
    spdlog::level::level_enum level;
  };
  static constexpr Row kRows[] = {
      {"trace", spdlog::level::trace}, {"debug", spdlog::level::debug},
      {"info", spdlog::level::info},   {"warning", spdlog::level::warn},
      {"warn", spdlog::level::warn},   {"error", spdlog::level::err},
      {"off", spdlog::level::off},
  };
  for (const Row& row : kRows) {
    if (row.name == level) {
      return row.level;
    }
  }
  return std::nullopt;
}

absl::Status UnknownLevel(std::string_view level) {
  return absl::InvalidArgumentError(absl::StrCat("unknown log level \"", std::string(level),
                                                 "\" (trace, debug, info, warning, error, off)"));
}

}  // namespace

absl::Status Init(std::string_view program, std::string_view level, bool json) {
  if (level.empty()) {
    const char* from_env = GetEnv("HEARTH_LOG_LEVEL");
    level = from_env == nullptr || *from_env == '\0' ? "info" : from_env;
  }
  const auto parsed = ParseLevel(level);
  if (!parsed.has_value()) {
    return UnknownLevel(level);
  }
  std::shared_ptr<spdlog::logger> logger = NewLogger(std::string(program));
  logger->set_level(*parsed);
  if (json) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  }
  Install(std::move(logger));
  return absl::OkStatus();
}

absl::Status SetLevel(std::string_view level) {
  const auto parsed = ParseLevel(level);
  if (!parsed.has_value()) {
    return UnknownLevel(level);
  }
  Logger().set_level(*parsed);
  return absl::OkStatus();
}

spdlog::logger& Logger() {
  spdlog::logger* const logger = g_logger.load(std::memory_order_acquire);
  if (logger != nullptr) [[likely]] {
    return *logger;
  }
  static auto* const fallback = new std::shared_ptr<spdlog::logger>(NewLogger("hearth"));
  return **fallback;
}

}  // namespace hearth::log
