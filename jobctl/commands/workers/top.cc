#include "jobctl/commands/workers/top.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/live.h"
#include "jobctl/views/output/table.h"
#include "jobctl/views/text/terminal.h"

namespace hearth::jobctl {
namespace {

constexpr absl::Duration kRefresh = absl::Seconds(1);

bool Heard(const v1::Worker& worker) {
  return worker.state() == v1::WORKER_STATE_IDLE || worker.state() == v1::WORKER_STATE_BUSY ||
         worker.state() == v1::WORKER_STATE_UNHEALTHY;
}

// The worker's share of its job's speed, 0 when it trains nothing.
double SpeedOf(const v1::Worker& worker, const std::map<std::string, v1::Job>& jobs) {
  const auto job = jobs.find(worker.job_id());
  if (job == jobs.end() || job->second.state() != v1::JOB_STATE_RUNNING ||
      job->second.workers_size() == 0) {
    return 0.0;
  }
  return job->second.last_report().tokens_per_second() / job->second.workers_size();
}

std::string MemoryText(const v1::Worker& worker) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  const double total = static_cast<double>(worker.device().memory_bytes()) / kGiB;
  const double used = static_cast<double>(worker.device_status().memory_used_bytes()) / kGiB;
  return used > 0.0 && Heard(worker) ? absl::StrFormat("%.1f/%.1fGiB", used, total)
                                     : absl::StrFormat("-/%.1fGiB", total);
}

// "-" when nothing is measured.
std::string Measured(bool heard, double value, const char* unit) {
  return heard && value > 0.0 ? absl::StrFormat("%.0f%s", value, unit) : "-";
}

struct Facts {
  std::vector<v1::Worker> workers;
  std::map<std::string, v1::Job> jobs;
};

absl::StatusOr<Facts> Ask(Client& client) {
  Facts facts;
  v1::ListWorkersRequest request;
  do {
    HEARTH_ASSIGN_OR_RETURN(const v1::ListWorkersResponse page,
                            client.Call<v1::ListWorkersResponse>(request));
    request.set_page_token(page.next_page_token());
    facts.workers.insert(facts.workers.end(), page.workers().begin(), page.workers().end());
  } while (!request.page_token().empty());
  for (const v1::Worker& worker : facts.workers) {
    if (worker.job_id().empty() || facts.jobs.count(worker.job_id()) > 0) {
      continue;
    }
    v1::GetJobRequest get;
    get.set_job_id(worker.job_id());
    absl::StatusOr<v1::Job> job = client.Call<v1::Job>(get);
    if (job.ok()) {
      facts.jobs[worker.job_id()] = *std::move(job);
    } else if (!absl::IsNotFound(job.status())) {  // it may have been deleted meanwhile
      return job.status();
    }
  }
  return facts;
}

}  // namespace

std::string RenderTop(const std::vector<v1::Worker>& workers,
                      const std::map<std::string, v1::Job>& jobs) {
  Table table({"NAME", "STATE", "JOB", "TOK/S", "POWER", "TEMP", "MEMORY", "UTIL"});
  int busy = 0;
  double speed = 0.0;
  double power = 0.0;
  for (const v1::Worker& worker : workers) {
    const v1::DeviceStatus& status = worker.device_status();
    const bool heard = Heard(worker);
    const double share = SpeedOf(worker, jobs);
    busy += worker.state() == v1::WORKER_STATE_BUSY ? 1 : 0;
    speed += share;
    power += heard ? status.power_watts() : 0.0;
    const bool used = heard && (worker.device().kind() == "cuda" || !worker.job_id().empty());
    table.Add({worker.worker_id(), StateName(worker.state()),
               worker.job_id().empty() ? "-" : worker.job_id(),
               share > 0.0 ? FormatCount(share) : "-", Measured(heard, status.power_watts(), "W"),
               Measured(heard, status.temperature_celsius(), "C"), MemoryText(worker),
               used ? absl::StrFormat("%.0f%%", status.utilization_ratio() * 100.0) : "-"});
  }
  return absl::StrCat(workers.size(), " workers, ", busy, " busy, ", FormatCount(speed), " tok/s",
                      power > 0.0 ? absl::StrFormat(", %.0f W", power) : "", "\n", table.Render());
}

std::string FitScreen(const std::string& text, int columns, int rows) {
  std::string out;
  int count = 0;
  for (const auto& line : absl::StrSplit(text, '\n')) {
    if (line.empty() || count == rows) {
      continue;
    }
    absl::StrAppend(&out, line.substr(0, static_cast<size_t>(std::max(columns, 1))), "\n");
    ++count;
  }
  return out;
}

Action SetupTop(CLI::App& app) {
  auto once = std::make_shared<bool>(false);
  app.footer("It prints a table only; jobctl workers -o json has what it shows, for programs.");
  app.add_flag("--once", *once, "Print the table once (as when piped)");
  return [once](Context& context) -> absl::StatusOr<int> {
    HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
    HEARTH_ASSIGN_OR_RETURN(const Facts facts, Ask(*client));
    if (*once || !IsTerminal()) {
      WriteOut(RenderTop(facts.workers, facts.jobs));
      return kExitOk;
    }
    return ShowLive(kRefresh, [client]() -> absl::StatusOr<std::string> {
      HEARTH_ASSIGN_OR_RETURN(const Facts now, Ask(*client));
      return RenderTop(now.workers, now.jobs);
    });
  };
}

}  // namespace hearth::jobctl
