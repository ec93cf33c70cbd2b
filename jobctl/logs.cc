#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "jobctl/command.h"

namespace hearth::jobctl {
namespace {

struct Options {
  std::string job_id;
  bool follow = false;
  bool timestamps = false;
  int tail = 0;
  int rank = -1;
};

std::string Render(const v1::LogLine& line, bool timestamps) {
  return absl::StrFormat("%s[e%d r%d %s] %s\n",
                         timestamps ? absl::StrCat(TimeText(line.time()), " ") : "", line.epoch(),
                         line.rank(), line.level(), line.text());
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  OnInterrupt([client] { client->CancelStreams(); });
  v1::StreamLogsRequest request;
  request.set_job_id(options.job_id);
  request.set_follow(options.follow);
  request.set_tail(options.tail);
  if (options.rank >= 0) {
    request.set_rank(options.rank);
  }
  const auto once = [&](bool& progressed) {
    return client->StreamLogs(request, [&](const v1::StreamLogsResponse& response) {
      progressed = true;
      if (response.lines_size() > 0) {  // from there, should the stream break
        request.set_cursor(response.lines(response.lines_size() - 1).cursor());
        request.set_tail(0);
      }
      if (response.dropped() > 0) {
        WriteErr(absl::StrCat("... ", response.dropped(), " lines dropped by the log bound\n"));
      }
      if (context.format == OutputFormat::kJson) {
        const auto json = ToJson(response);
        WriteOut(json.ok() ? *json : "");
        return true;
      }
      std::string out;
      for (const v1::LogLine& line : response.lines()) {
        out += Render(line, options.timestamps);
      }
      WriteOut(out);
      return true;
    });
  };
  if (options.follow) {  // says at once that there is no such job, or no coordinator
    v1::GetJobRequest get;
    get.set_job_id(options.job_id);
    HEARTH_RETURN_IF_ERROR(client->GetJob(get).status());
  }
  bool progressed = false;
  const absl::Status status = options.follow ? RetryStream(once) : once(progressed);
  if (Interrupted()) {
    return kExitOk;
  }
  HEARTH_RETURN_IF_ERROR(status);
  return kExitOk;
}

}  // namespace

Action SetupLogs(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("job", options->job_id, "Job id")->required();
  app.add_flag("-f,--follow", options->follow, "Go on with new lines until the job ends");
  app.add_flag("--timestamps", options->timestamps, "Put the time before each line");
  app.add_option("--tail", options->tail, "Start with the last N lines")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--rank", options->rank, "Only this rank")->check(CLI::NonNegativeNumber);
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
