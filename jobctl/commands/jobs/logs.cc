#include "jobctl/commands/jobs/logs.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/time/clock.h"
#include "jobctl/client/interrupt.h"
#include "jobctl/client/retry.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/jobs/job_actions.h"
#include "jobctl/views/text/display_text.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

struct Options {
  JobChoice choice;
  bool follow = false;
  bool timestamps = false;
  int tail = 0;
  int rank = -1;
  int64_t epoch = 0;  // 0 = all
  std::string since;
  std::string grep;
};

std::string Render(const Context& context,
                   const std::string& job_id,
                   bool timestamps,
                   const v1::LogLine& line) {
  return context.format == OutputFormat::kJson ? LogLineJson(job_id, line)
                                               : LogLineText(job_id, line, timestamps);
}

// The stream of one job's lines, which goes on where it broke.
class LogStream {
 public:
  LogStream(Context& context,
            Client& client,
            const Options& options,
            const LogFilter& filter,
            const std::string& job_id)
      : context_(context), client_(client), options_(options), filter_(filter) {
    request_.set_job_id(job_id);
    request_.set_follow(options.follow);
    request_.set_tail(options.tail);
    if (options.rank >= 0) {
      request_.set_rank(options.rank);
    }
  }

  absl::Status Once(const std::function<void()>& progressed) {
    return client_.StreamLogs(request_, [&](const v1::StreamLogsResponse& response) {
      progressed();
      Print(response);
      return true;
    });
  }

 private:
  void Print(const v1::StreamLogsResponse& response) {
    if (response.lines_size() > 0) {  // from there, should the stream break
      request_.set_cursor(response.lines(response.lines_size() - 1).cursor());
      request_.set_tail(0);
    }
    if (response.dropped() > 0) {
      WriteErr(absl::StrCat("... ", response.dropped(), " lines dropped by the log bound\n"));
    }
    std::string out;
    for (const v1::LogLine& line : response.lines()) {
      out +=
          filter_.Wants(line) ? Render(context_, request_.job_id(), options_.timestamps, line) : "";
    }
    WriteOut(out);  // in one piece, between the lines of other jobs
  }

  const Context& context_;
  Client& client_;
  const Options& options_;
  const LogFilter& filter_;
  v1::StreamLogsRequest request_;
};

// Reads of a stream block, so each job has a thread. Returns how each job's stream ended.
std::map<std::string, absl::Status> FollowAll(Context& context,
                                              Client& client,
                                              const Options& options,
                                              const std::vector<std::string>& job_ids,
                                              const LogFilter& filter) {
  OutageNotice notice([](const std::string& line) { WriteErr(absl::StrCat(line, "\n")); });
  std::map<std::string, absl::Status> ended;
  for (const std::string& job_id : job_ids) {
    ended[job_id] = absl::OkStatus();
  }
  std::vector<std::thread> threads;
  threads.reserve(ended.size());
  for (auto& entry : ended) {
    threads.emplace_back([&, job = &entry] {
      LogStream stream(context, client, options, filter, job->first);
      job->second = RetryStream(
          [&stream](const auto& progressed) { return stream.Once(progressed); }, notice);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ended;
}

absl::StatusOr<int> Run(Context& context,
                        const Options& options,
                        const std::vector<std::string>& job_ids) {
  HEARTH_ASSIGN_OR_RETURN(
      const LogFilter filter,
      LogFilter::Make(options.since, options.grep, Clock::Real().Now(), options.epoch));
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  std::map<std::string, absl::Status> ended;
  if (options.follow) {
    // Says at once that there is no such job, or no coordinator.
    HEARTH_RETURN_IF_ERROR(GetJobs(*client, job_ids).status());
    ended = FollowAll(context, *client, options, job_ids, filter);
    if (Interrupted()) {
      SayDetached("logs -f", job_ids);
      return kExitOk;
    }
  }
  return ForEach("job", job_ids, [&](const std::string& job_id) {
    if (options.follow) {
      return ended[job_id];
    }
    const absl::Status status = LogStream(context, *client, options, filter, job_id).Once([] {});
    return Interrupted() ? absl::OkStatus() : status;
  });
}

}  // namespace

absl::StatusOr<LogFilter> LogFilter::Make(const std::string& since,
                                          const std::string& grep,
                                          absl::Time now,
                                          int64_t epoch) {
  LogFilter filter;
  filter.epoch_ = epoch;
  if (!since.empty()) {
    HEARTH_ASSIGN_OR_RETURN(filter.since_,
                            ParseSince(since, now, absl::LocalTimeZone(), "--since"));
  }
  if (!grep.empty()) {
    RE2::Options quiet;
    quiet.set_log_errors(false);
    filter.grep_ = std::make_unique<RE2>(grep, quiet);
    if (!filter.grep_->ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--grep ", grep, ": ", filter.grep_->error()));
    }
  }
  return filter;
}

bool LogFilter::Wants(const v1::LogLine& line) const {
  return TimeOf(line.time()) >= since_ && (epoch_ == 0 || line.epoch() == epoch_) &&
         (grep_ == nullptr || RE2::PartialMatch(line.text(), *grep_));
}

std::string LogLineText(const std::string& job_id, const v1::LogLine& line, bool timestamps) {
  const std::string text = absl::StrFormat(
      "%s[%s e%d r%d %s] %s", timestamps ? absl::StrCat(TimeText(line.time()), " ") : "", job_id,
      line.epoch(), line.rank(), line.level(), line.text());
  return EscapeControl(text, /*keep_lines=*/false) + "\n";
}

std::string LogLineJson(const std::string& job_id, const v1::LogLine& line) {
  const nlohmann::ordered_json json = {
      {"time", absl::FormatTime(absl::RFC3339_full, TimeOf(line.time()), absl::UTCTimeZone())},
      {"job_id", job_id},
      {"epoch", line.epoch()},
      {"rank", line.rank()},
      {"level", line.level()},
      {"text", line.text()},
      {"cursor", line.cursor()}};
  // Bytes that are not UTF-8 must not end the command.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Action SetupLogs(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddJobChoice(app, options->choice, Labelled::kAll)
      ->description(
          "Job ids, or unambiguous beginnings of ids; the logs follow one another, with -f all are "
          "followed at once");
  app.add_flag("-f,--follow", options->follow, "Continue with new lines until the jobs end");
  app.add_flag("--timestamps", options->timestamps, "Put the time before each line");
  app.add_option("--tail", options->tail, "Start with the last N lines of each job")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--epoch", options->epoch,
                 "Only this gang start, from 1; with --tail, only those among the last N lines")
      ->check(CLI::PositiveNumber);
  app.add_option("--rank", options->rank, "Only this rank")->check(CLI::NonNegativeNumber);
  // Checked while the command line is parsed, so that an invalid value is wrong usage (exit code
  // 2).
  app.add_option("--since", options->since,
                 "Only lines written since: how long ago (10m), a date, or \"2026-01-31 17:05\"")
      ->check([](const std::string& since) {
        const absl::Status status = LogFilter::Make(since, "", Clock::Real().Now()).status();
        return std::string(absl::StripPrefix(status.message(), "--since "));
      });
  app.add_option("--grep", options->grep,
                 "Only lines whose text matches this regular expression (RE2); with --tail, only "
                 "those among the last N")
      ->check([](const std::string& grep) {
        const absl::Status status = LogFilter::Make("", grep, Clock::Real().Now()).status();
        return std::string(absl::StripPrefix(status.message(), "--grep "));
      });
  return [options](Context& context) {
    return ForChosenJobs(context, options->choice, [&](const std::vector<std::string>& job_ids) {
      return Run(context, *options, job_ids);
    });
  };
}

}  // namespace hearth::jobctl
