#include "common/fault/fault.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace hearth::fault {
namespace internal {
std::atomic<bool> enabled{false};
}  // namespace internal

namespace {

enum class Action { kCrash, kStop, kError, kDelay };

struct Fault {
  Action action = Action::kError;
  absl::Duration delay;
  int from = 1;         // acts at this hit
  bool repeats = true;  // and at all later ones
};

struct Registry {
  absl::Mutex mu;
  std::map<std::string, Fault, std::less<>> faults ABSL_GUARDED_BY(mu);
  std::map<std::string, int, std::less<>> hits ABSL_GUARDED_BY(mu);
};

Registry& Global() {
  static Registry* const registry = new Registry;
  return *registry;
}

absl::string_view Sv(std::string_view s) {
  return {s.data(), s.size()};
}

bool IsKnown(std::string_view name) {
  for (const Point& point : Points()) {
    if (point.name == name) {
      return true;
    }
  }
  return false;
}

absl::Status ParseAction(absl::string_view text, Fault& fault) {
  if (text == "crash") {
    fault.action = Action::kCrash;
  } else if (text == "stop") {
    fault.action = Action::kStop;
  } else if (text == "error") {
    fault.action = Action::kError;
  } else if (absl::ConsumePrefix(&text, "delay:") && absl::ParseDuration(text, &fault.delay) &&
             fault.delay >= absl::ZeroDuration()) {
    fault.action = Action::kDelay;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("HEARTH_FAULTS: unknown action \"", text,
                                                   "\" (crash, stop, error, delay:100ms)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Fault> ParseFault(absl::string_view text) {
  Fault fault;
  const size_t at = text.find('@');
  if (at != absl::string_view::npos) {
    absl::string_view count = text.substr(at + 1);
    fault.repeats = absl::ConsumeSuffix(&count, "+");
    if (!absl::SimpleAtoi(count, &fault.from) || fault.from < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("HEARTH_FAULTS: \"", text, "\": after @ comes a number from 1"));
    }
    text = text.substr(0, at);
  }
  HEARTH_RETURN_IF_ERROR(ParseAction(text, fault));
  return fault;
}

// The fault due at this visit of `name`, if any.
std::optional<Fault> Visit(std::string_view name) {
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mu);
  const int hit = ++registry.hits[std::string(name)];
  const auto found = registry.faults.find(name);
  if (found == registry.faults.end()) {
    return std::nullopt;
  }
  const Fault& fault = found->second;
  if (hit == fault.from || (fault.repeats && hit > fault.from)) {
    return fault;
  }
  return std::nullopt;
}

}  // namespace

absl::Status Configure(std::string_view faults) {
  std::map<std::string, Fault, std::less<>> parsed;
  for (const absl::string_view item : absl::StrSplit(Sv(faults), ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(absl::StripAsciiWhitespace(item), absl::MaxSplits('=', 1));
    if (!IsKnown(std::string_view(pair.first.data(), pair.first.size()))) {
      return absl::InvalidArgumentError(
          absl::StrCat("HEARTH_FAULTS: no fault point \"", pair.first, "\""));
    }
    HEARTH_ASSIGN_OR_RETURN(parsed[std::string(pair.first)], ParseFault(pair.second));
  }
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mu);
  internal::enabled.store(!parsed.empty(), std::memory_order_relaxed);
  registry.faults = std::move(parsed);
  registry.hits.clear();
  return absl::OkStatus();
}

absl::Status InitFromEnvironment() {
  const char* faults =
      std::getenv("HEARTH_FAULTS");  // NOLINT(concurrency-mt-unsafe): before threads
  return Configure(faults == nullptr ? "" : faults);
}

absl::Status internal::CheckSlow(std::string_view name) {
  HEARTH_CHECK(IsKnown(name), std::string(name).c_str());
  const std::optional<Fault> fault = Visit(name);
  if (!fault.has_value()) {
    return absl::OkStatus();
  }
  switch (fault->action) {
    case Action::kCrash:
      kill(getpid(), SIGKILL);
      break;
    case Action::kStop:
      kill(getpid(), SIGSTOP);
      break;
    case Action::kDelay:
      absl::SleepFor(fault->delay);
      break;
    case Action::kError:
      return absl::InternalError(absl::StrCat("injected fault at ", Sv(name)));
  }
  return absl::OkStatus();
}

int Hits(std::string_view name) {
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mu);
  const auto found = registry.hits.find(name);
  return found == registry.hits.end() ? 0 : found->second;
}

}  // namespace hearth::fault
