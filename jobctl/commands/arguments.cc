#include "jobctl/commands/arguments.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/io/env.h"
#include "common/spec/violations/names.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/views/output/output.h"

namespace hearth::jobctl {

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text, std::string_view option) {
  if (text.empty()) {
    return absl::ZeroDuration();
  }
  absl::StatusOr<absl::Duration> duration = ParseDuration(text);
  if (!duration.ok()) {
    return Annotate(duration.status(), option);
  }
  return duration;
}

absl::StatusOr<absl::Time> ParseSince(const std::string& text,
                                      absl::Time now,
                                      absl::TimeZone zone,
                                      std::string_view option) {
  if (const absl::StatusOr<absl::Duration> ago = ParseDuration(text); ago.ok()) {
    return now - *ago;
  }
  absl::Time time;
  std::string error;
  // Local time, as commands print it or shorter.
  for (const char* format :
       {"%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M"}) {
    if (absl::ParseTime(format, text, zone, &time, &error)) {
      return time;
    }
  }
  if (absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return time;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(option), " ", text,
                   ": expected how long ago (10m), a date (2026-01-31), or a date and a time "
                   "(\"2026-01-31 17:05\")"));
}

namespace {

// The moment of a local time. kInvalidArgument: no such moment exists, or two do.
absl::StatusOr<absl::Time> MomentOfLocal(absl::CivilSecond local, absl::TimeZone zone) {
  const absl::TimeZone::TimeInfo info = zone.At(local);
  if (info.kind == absl::TimeZone::TimeInfo::UNIQUE) {
    return info.pre;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      absl::FormatCivilTime(local),
      info.kind == absl::TimeZone::TimeInfo::SKIPPED ? " does not exist" : " comes twice", " in ",
      zone.name(), ", where the clocks change; give the time with its offset, such as ",
      absl::FormatTime(absl::RFC3339_sec, info.post, zone)));
}

// Reads "22:00" and the like into the next such second after `now`.
bool ReadClockTime(const std::string& text,
                   absl::Time now,
                   absl::TimeZone zone,
                   absl::CivilSecond& local) {
  absl::Time clock;
  std::string error;
  if (!absl::ParseTime("%H:%M", text, absl::UTCTimeZone(), &clock, &error) &&
      !absl::ParseTime("%H:%M:%S", text, absl::UTCTimeZone(), &clock, &error)) {
    return false;
  }
  const absl::CivilSecond of_day = absl::ToCivilSecond(clock, absl::UTCTimeZone());
  const absl::CivilSecond here = absl::ToCivilSecond(now, zone);
  local = absl::CivilSecond(here.year(), here.month(), here.day(), of_day.hour(), of_day.minute(),
                            of_day.second());
  if (local <= here) {
    const absl::CivilDay tomorrow = absl::CivilDay(here) + 1;
    local = absl::CivilSecond(tomorrow.year(), tomorrow.month(), tomorrow.day(), of_day.hour(),
                              of_day.minute(), of_day.second());
  }
  return true;
}

bool ReadLocalTime(const std::string& text, absl::CivilSecond& local) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime("%Y-%m-%d %H:%M", text, absl::UTCTimeZone(), &time, &error) &&
      !absl::ParseTime("%Y-%m-%d %H:%M:%S", text, absl::UTCTimeZone(), &time, &error)) {
    return false;
  }
  local = absl::ToCivilSecond(time, absl::UTCTimeZone());
  return true;
}

}  // namespace

absl::StatusOr<absl::Time> ParseStartTime(const std::string& text,
                                          absl::Time now,
                                          absl::TimeZone zone,
                                          std::string_view option) {
  const std::string name(option);
  absl::Time time;
  std::string error;
  absl::CivilSecond local;
  const absl::StatusOr<absl::Duration> ahead =
      ParseDuration(absl::StartsWith(text, "+") ? text.substr(1) : "");
  if (ahead.ok()) {
    time = now + *ahead;
  } else if (ReadClockTime(text, now, zone, local) || ReadLocalTime(text, local)) {
    const absl::StatusOr<absl::Time> moment = MomentOfLocal(local, zone);
    if (!moment.ok()) {
      return Annotate(moment.status(), name);
    }
    time = *moment;
  } else if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " ", text,
                     ": expected a time of day (22:00), a time from now (+2h), a local time "
                     "(\"2026-01-31 17:05\") or one with its offset (2026-01-31T17:05:00+01:00)"));
  }
  if (time <= now) {
    return absl::InvalidArgumentError(absl::StrCat(name, " ", text, " is over: it is ",
                                                   absl::FormatTime(absl::RFC3339_sec, now, zone)));
  }
  return time;
}

absl::Status Confirm(const std::string& question, const std::string& needs) {
  if (isatty(STDIN_FILENO) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(needs, "; without a terminal it needs --yes"));
  }
  WriteErr(absl::StrCat(question, " [y/N] "));
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "y" && answer != "yes") {
    return absl::CancelledError("nothing was changed");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(
    const std::vector<std::string>& texts, std::string_view option) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& text : texts) {
    std::pair<std::string, std::string> pair = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (pair.first.empty() || text.find('=') == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(option), ": '", text, "' is not key=value"));
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (path != "-") {
    return Env::Real().ReadFile(path);
  }
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

std::string WrongState(const std::string& states) {
  // Words of other programs.
  static constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
      {"active", "running"},    {"canceled", "cancelled"}, {"completed", "succeeded"},
      {"done", "succeeded"},    {"error", "failed"},       {"finished", "succeeded"},
      {"pending", "queued"},    {"stopped", "paused"},     {"suspended", "paused"},
      {"success", "succeeded"}, {"waiting", "queued"},
  };
  std::vector<std::string> names;
  const google::protobuf::EnumDescriptor& type = *v1::JobState_descriptor();
  for (int i = 1; i < type.value_count(); ++i) {  // the first is UNSPECIFIED
    names.push_back(
        absl::AsciiStrToLower(StateName(static_cast<v1::JobState>(type.value(i)->number()))));
  }
  const std::vector<std::string> words = absl::StrSplit(states, ',', absl::SkipEmpty());
  for (const std::string& word : words) {
    const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(word));
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      continue;
    }
    std::string_view meant;
    for (const auto& [typed, state] : kSynonyms) {
      meant = name == typed ? state : meant;
    }
    return spec::UnknownNameText(name, "state of a job", {names.begin(), names.end()}, meant);
  }
  return "";
}

absl::Status SafeToRetry(const absl::Status& status, const std::string& request_id) {
  if (status.code() != absl::StatusCode::kUnavailable &&
      status.code() != absl::StatusCode::kDeadlineExceeded) {
    return status;
  }
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   "\nIt is not known whether the coordinator took "
                                   "the request; it is safe to retry with --request-id ",
                                   request_id));
}

}  // namespace hearth::jobctl
