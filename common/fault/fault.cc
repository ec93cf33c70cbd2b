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
#include "common/base/system.h"
#include "common/fault/hold.h"

namespace hearth::fault {
namespace internal {
std::atomic<bool> enabled{false};
}  // namespace internal

namespace {

enum class Action { kCrash, kStop, kError, kFull, kDelay, kHang, kHold };

struct Fault {
  Action action = Action::kError;
  absl::Duration delay;
  std::string file;     // of kHold
  int64_t from = 1;     // acts at this hit, or step
  bool repeats = true;  // and at all later ones
  int64_t to = 0;       // at a step: up to this one
  int attempts = 1;     // acts in the first this many attempts at a step
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

const Point* Find(std::string_view name) {
  for (const Point& point : Points()) {
    if (point.name == name) {
      return &point;
    }
  }
  return nullptr;
}

absl::Status ParseAction(absl::string_view text, Fault& fault) {
  if (text == "crash") {
    fault.action = Action::kCrash;
  } else if (text == "stop") {
    fault.action = Action::kStop;
  } else if (text == "error") {
    fault.action = Action::kError;
  } else if (text == "full") {
    fault.action = Action::kFull;
  } else if (absl::ConsumePrefix(&text, "delay:") && absl::ParseDuration(text, &fault.delay) &&
             fault.delay >= absl::ZeroDuration()) {
    fault.action = Action::kDelay;
  } else if (text == "hang") {
    fault.action = Action::kHang;
  } else if (absl::ConsumePrefix(&text, "hold:") && !text.empty()) {
    fault.action = Action::kHold;
    fault.file = std::string(text);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("HEARTH_FAULTS: unknown action \"", text,
                     "\" (crash, stop, error, full, delay:100ms, hang, hold:FILE)"));
  }
  return absl::OkStatus();
}

// "N", "N+" or, with by_step, "N-L", each followed by "xM" or not.
absl::Status ParseWhen(absl::string_view text, bool by_step, Fault& fault) {
  absl::string_view count = text;
  const size_t x = count.find('x');
  if (by_step && x != absl::string_view::npos) {
    if (!absl::SimpleAtoi(count.substr(x + 1), &fault.attempts) || fault.attempts < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("HEARTH_FAULTS: \"", text, "\": after x comes a number from 1"));
    }
    count = count.substr(0, x);
  }
  fault.repeats = absl::ConsumeSuffix(&count, "+");
  const size_t dash = count.find('-');
  if (by_step && dash != absl::string_view::npos && dash > 0) {
    if (!absl::SimpleAtoi(count.substr(dash + 1), &fault.to) || fault.repeats) {
      return absl::InvalidArgumentError(
          absl::StrCat("HEARTH_FAULTS: \"", text, "\": after @N- comes the last step"));
    }
    count = count.substr(0, dash);
  }
  if (!absl::SimpleAtoi(count, &fault.from) || fault.from < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("HEARTH_FAULTS: \"", text, "\": after @ comes a number from 1"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Fault> ParseFault(absl::string_view text, bool by_step) {
  Fault fault;
  const size_t at = text.find('@');
  if (at != absl::string_view::npos) {
    HEARTH_RETURN_IF_ERROR(ParseWhen(text.substr(at + 1), by_step, fault));
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

// The same at `step`, whose attempt this is.
std::optional<Fault> VisitStep(std::string_view name, int64_t step, int attempt) {
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mu);
  ++registry.hits[std::string(name)];
  const auto found = registry.faults.find(name);
  if (found == registry.faults.end()) {
    return std::nullopt;
  }
  const Fault& fault = found->second;
  const bool due = step == fault.from || (step > fault.from && (fault.repeats || step <= fault.to));
  return due && attempt < fault.attempts ? std::optional<Fault>(fault) : std::nullopt;
}

void Hold(const std::string& file) {
  absl::Duration held;
  while (access(file.c_str(), F_OK) != 0) {
    const absl::Duration pause = HoldPause(held);
    absl::SleepFor(pause);
    held += pause;
  }
}

absl::Status Act(std::string_view name, const Fault& fault) {
  switch (fault.action) {
    case Action::kCrash:
      // As kill -9 does: nothing is flushed, and no destructor runs.
      kill(getpid(), SIGKILL);
      break;
    case Action::kStop:
      kill(getpid(), SIGSTOP);
      break;
    case Action::kDelay:
      absl::SleepFor(fault.delay);
      break;
    case Action::kHang:
      absl::SleepFor(absl::InfiniteDuration());
      break;
    case Action::kHold:
      Hold(fault.file);
      break;
    case Action::kError:
      return absl::InternalError(absl::StrCat("injected fault at ", Sv(name)));
    case Action::kFull:
      return absl::ResourceExhaustedError(
          absl::StrCat("injected fault at ", Sv(name), ": No space left on device"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Configure(std::string_view faults) {
  std::map<std::string, Fault, std::less<>> parsed;
  for (const absl::string_view item : absl::StrSplit(Sv(faults), ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(absl::StripAsciiWhitespace(item), absl::MaxSplits('=', 1));
    const Point* point = Find(std::string_view(pair.first.data(), pair.first.size()));
    if (point == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("HEARTH_FAULTS: no fault point \"", pair.first, "\""));
    }
    HEARTH_ASSIGN_OR_RETURN(parsed[std::string(pair.first)],
                            ParseFault(pair.second, point->by_step));
  }
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mu);
  internal::enabled.store(!parsed.empty(), std::memory_order_relaxed);
  registry.faults = std::move(parsed);
  registry.hits.clear();
  return absl::OkStatus();
}

absl::Status InitFromEnvironment() {
  const char* faults = GetEnv("HEARTH_FAULTS");
  return Configure(faults == nullptr ? "" : faults);
}

absl::Status internal::CheckSlow(std::string_view name) {
  HEARTH_CHECK(Find(name) != nullptr && !Find(name)->by_step, std::string(name).c_str());
  const std::optional<Fault> fault = Visit(name);
  return fault.has_value() ? Act(name, *fault) : absl::OkStatus();
}

absl::Status internal::CheckStepSlow(std::string_view name, int64_t step, int attempt) {
  HEARTH_CHECK(Find(name) != nullptr && Find(name)->by_step, std::string(name).c_str());
  const std::optional<Fault> fault = VisitStep(name, step, attempt);
  return fault.has_value() ? Act(name, *fault) : absl::OkStatus();
}

int Hits(std::string_view name) {
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mu);
  const auto found = registry.hits.find(name);
  return found == registry.hits.end() ? 0 : found->second;
}

}  // namespace hearth::fault
