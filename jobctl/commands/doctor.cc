// doctor: is this machine, the coordinator and its workers in order, and why is a job slow.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/base/version.h"
#include "common/io/disk.h"
#include "common/nvml/nvml.h"
#include "common/time/clock.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/doctor/doctor_checks.h"
#include "jobctl/doctor/doctor_job.h"

namespace hearth::jobctl {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(5);
// The trainer's probe loads every library and tries small products on the GPU.
constexpr absl::Duration kProbeTimeout = absl::Seconds(60);
constexpr size_t kProbeBytesMax = 1 << 20;

struct Options {
  std::string job_id;
  std::string trainer;  // "" = hearth-trainer beside this program
  bool no_probe = false;
};

std::string HearthHome() {
  const char* home = GetEnv("HEARTH_HOME");
  if (home != nullptr && *home != '\0') {
    return home;
  }
  const char* user = GetEnv("HOME");
  return absl::StrCat(user == nullptr ? "" : user, "/.hearth");
}

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Whether there is a display or compute controller (class 0x03....) from NVIDIA, with or without a
// driver.
bool HasNvidiaGpu() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", error)) {
    if (FirstLine(entry.path() / "vendor") == "0x10de" &&
        absl::StartsWith(FirstLine(entry.path() / "class"), "0x03")) {
      return true;
    }
  }
  return false;
}

// Returns how many GPUs the driver shows.
int CheckGpus(Findings& out) {
  const auto nvml = nvml::Nvml::Open(nvml::DefaultLibrary());
  if (!nvml.ok()) {
    CheckNoDriver(nvml.status(), HasNvidiaGpu(), out);
    return 0;
  }
  const int count = (*nvml)->Count().value_or(0);
  CheckDriver((*nvml)->driver_version(), (*nvml)->cuda_version(), count, out);
  for (int i = 0; i < count; ++i) {
    const auto gpu = (*nvml)->ByIndex(i);
    if (gpu.ok()) {
      CheckGpu((*gpu)->info(), (*gpu)->Sample(), out);
    } else {
      nvml::GpuInfo unknown;
      unknown.index = i;
      CheckGpu(unknown, gpu.status(), out);
    }
  }
  return count;
}

// What a program writes to stdout; its stderr goes nowhere. kDeadlineExceeded: it was killed.
absl::StatusOr<std::string> Capture(std::vector<std::string> arguments, absl::Duration timeout) {
  // Closed at the exec, except for the copy that becomes stdout.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  // While this process holds the end for writing, a read would never see the end of the text.
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return absl::ErrnoToStatus(error, arguments[0]);
  }
  std::string text;
  const absl::Time deadline = Clock::Real().Now() + timeout;
  bool ended = false;
  while (!ended && text.size() < kProbeBytesMax && Clock::Real().Now() < deadline) {
    pollfd fd = {ends[0], POLLIN, 0};
    if (poll(&fd, 1, 100) <= 0) {
      continue;
    }
    std::array<char, 4096> buffer;
    const ssize_t got = read(ends[0], buffer.data(), buffer.size());
    ended = got <= 0;
    text.append(buffer.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
  }
  close(ends[0]);
  if (!ended) {
    kill(pid, SIGKILL);
  }
  waitpid(pid, nullptr, 0);
  if (!ended) {
    return text.size() < kProbeBytesMax
               ? absl::DeadlineExceededError(absl::StrCat(arguments[0], " did not end within ",
                                                          absl::FormatDuration(timeout)))
               : absl::ResourceExhaustedError(
                     absl::StrCat(arguments[0], " wrote more than ", kProbeBytesMax, " bytes"));
  }
  return text;
}

void CheckTrainer(const Options& options, int gpus, Findings& out) {
  std::string program = options.trainer;
  if (program.empty()) {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    program = (self.parent_path() / "hearth-trainer").string();
  }
  if (access(program.c_str(), X_OK) != 0) {
    out.push_back({Verdict::kNote, "trainer",
                   absl::StrCat("no ", program, ": cuDNN, NCCL and cuBLASLt are not checked"),
                   "run jobctl doctor where hearth-worker is installed, or give --trainer"});
    return;
  }
  const auto text = Capture({program, "doctor", "--json"}, kProbeTimeout);
  if (text.ok()) {
    return MergeTrainerChecks(*text, gpus, out);
  }
  out.push_back({Verdict::kFailed, "trainer", std::string(text.status().message()),
                 absl::StrCat("run ", program, " doctor by hand; a GPU that hangs needs a reset")});
}

absl::StatusOr<std::vector<v1::Worker>> AllWorkers(Client& client) {
  std::vector<v1::Worker> all;
  v1::ListWorkersRequest request;
  do {
    HEARTH_ASSIGN_OR_RETURN(v1::ListWorkersResponse page,
                            client.Call<v1::ListWorkersResponse>(request));
    request.set_page_token(page.next_page_token());
    all.insert(all.end(), page.workers().begin(), page.workers().end());
  } while (!request.page_token().empty());
  return all;
}

void CheckService(Context& context, Findings& out) {
  CoordinatorFacts facts;
  facts.address = context.connect.coordinators;
  facts.asked = Clock::Real().Now();
  const absl::StatusOr<Client*> client = context.client();
  absl::Status status = client.status();
  std::vector<v1::Worker> workers;
  if (status.ok()) {
    // Connecting is not part of the round trip by which the clocks are compared.
    status = (*client)->Call<v1::GetVersionResponse>(v1::GetVersionRequest()).status();
  }
  if (status.ok()) {
    facts.asked = Clock::Real().Now();
    absl::StatusOr<v1::GetVersionResponse> version =
        (*client)->Call<v1::GetVersionResponse>(v1::GetVersionRequest());
    facts.answered = Clock::Real().Now();
    status = version.status();
    facts.version = version.ok() ? *std::move(version) : v1::GetVersionResponse();
  }
  if (status.ok()) {
    auto all = AllWorkers(**client);
    status = all.status();
    workers = all.ok() ? *std::move(all) : std::vector<v1::Worker>();
  }
  if (!status.ok()) {
    out.push_back({Verdict::kFailed, "coordinator", std::string(status.message()),
                   IsRefusedCaller(status)
                       ? "it runs, but refused your token: see docs/security.md, tokens"
                       : "start hearth-coordinator there, or name the right one; TLS needs "
                         "--tls-ca on both sides"});
    return;
  }
  CheckCoordinator(facts, VersionString(), out);
  CheckWorkers(workers, facts.version, out);
}

absl::StatusOr<Findings> DoctorJob(Context& context, const std::string& job_id) {
  HEARTH_ASSIGN_OR_RETURN(Client * client, context.client());
  JobFacts facts;
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  HEARTH_ASSIGN_OR_RETURN(facts.job, client->Call<v1::Job>(request));
  HEARTH_ASSIGN_OR_RETURN(facts.workers, AllWorkers(*client));
  v1::GetJobPlanRequest planned;
  planned.set_job_id(request.job_id());
  // None: it runs on CPUs, or the coordinator is older than plans.
  if (absl::StatusOr<v1::JobPlan> plan = client->Call<v1::JobPlan>(planned); plan.ok()) {
    facts.plan = *std::move(plan);
  }
  v1::StreamMetricsRequest metrics;
  metrics.set_job_id(job_id);
  metrics.set_from_step(std::max<int64_t>(1, facts.job.step() - kDoctorSteps + 1));
  HEARTH_RETURN_IF_ERROR(
      client->StreamMetrics(metrics, [&facts](const v1::StreamMetricsResponse& response) {
        for (const v1::MetricRecord& record : response.records()) {
          if (record.has_step()) {
            facts.steps.push_back(record.step());
          }
        }
        return true;
      }));
  return DiagnoseJob(facts);
}

absl::StatusOr<int> Run(Context& context, const Options& options) {
  context.connect.unary_deadline = kDeadline;
  Findings findings;
  if (!options.job_id.empty()) {
    HEARTH_ASSIGN_OR_RETURN(findings, DoctorJob(context, options.job_id));
  } else {
    findings.push_back({Verdict::kOk, "jobctl", absl::StrCat("version ", VersionString()), ""});
    CheckService(context, findings);
    const std::string home = HearthHome();
    CheckDisk("disk", home, ReadDiskSpace(home), findings);
    const int gpus = CheckGpus(findings);
    if (!options.no_probe) {
      CheckTrainer(options, gpus, findings);
    }
  }
  WriteOut(
      Render(findings, context.format, context.format == OutputFormat::kWide ? 0 : FitColumns()));
  return AnyFailed(findings) ? kExitError : kExitOk;
}

}  // namespace

Action SetupDoctor(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("job", options->job_id,
                 "Say why this job is slow; without a job, check this machine, the coordinator and "
                 "the workers");
  app.add_option("--trainer", options->trainer,
                 "hearth-trainer program (default: in the folder of jobctl)");
  app.add_flag("--no-probe", options->no_probe,
               "Skip the trainer's checks, which use GPU 0 for some seconds");
  return [options](Context& context) { return Run(context, *options); };
}

}  // namespace hearth::jobctl
