// `run`: this process is the only rank; `worker`: one rank under the daemon.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/rooted_env.h"
#include "common/io/verified_files.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/exit_codes.h"
#include "worker/trainer/link/link.h"
#include "worker/trainer/pulse/pulse_thread.h"
#include "worker/trainer/pulse/stacks.h"
#include "worker/trainer/rank/rank.h"

namespace hearth::trainer {
namespace {

// Written by signal handlers alone, read by the training loop.
std::atomic<uint64_t> g_signals{0};
// Apart from g_signals, whose bits the loop takes.
std::atomic<bool> g_asked{false};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "signal handlers must not lock");

extern "C" void AskToStop(int signal) {
  g_signals.fetch_or(uint64_t{1} << v1::CONTROL_BIT_STOP);
  // The second Ctrl-C of a person means now.
  if (g_asked.exchange(true) && signal == SIGINT) {
    _exit(128 + SIGINT);
  }
}

void InstallSignalHandlers() {
  struct sigaction action = {};
  action.sa_handler = &AskToStop;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int ReportExit(const v1::TrainerExit& exit) {
  const ExitCode& code = ExitCodeOf(exit.reason());
  if (code.code != 0) {
    std::fprintf(
        stderr, "hearth-trainer: %s at step %lld: %s\n", std::string(code.name).c_str(),
        static_cast<long long>(exit.step()),
        exit.message().empty() ? std::string(code.meaning).c_str() : exit.message().c_str());
  }
  return code.code;
}

// Checkpoints to resume from, newest first: the folder itself, or those inside it.
absl::Status FillResume(const std::string& path, v1::Task& task) {
  Env& env = Env::Real();
  if (env.Exists(path + "/MANIFEST.json")) {
    task.set_resume_path(path);
    return absl::OkStatus();
  }
  std::string dir = path;
  std::vector<int64_t> steps = ListCheckpointSteps(env, dir);
  if (steps.empty()) {
    dir = path + "/checkpoints";
    steps = ListCheckpointSteps(env, dir);
  }
  if (steps.empty()) {
    return absl::NotFoundError(absl::StrCat("--resume ", path, ": no checkpoint there"));
  }
  task.set_resume_path(CheckpointPath(dir, steps.back()));
  task.set_resume_step(steps.back());
  for (auto step = steps.rbegin() + 1; step != steps.rend(); ++step) {
    v1::Checkpoint& earlier = *task.add_earlier_checkpoints();
    earlier.set_step(*step);
    earlier.set_path(CheckpointPath(dir, *step));
  }
  return absl::OkStatus();
}

// The files that a rank under a worker may open. Lives as long as the process.
Env& FilesOf(const WorkerRunOptions& options) {
  FileRoots roots{options.data_roots, {}, absl::StrCat("worker ", options.worker)};
  if (!options.checkpoint_root.empty()) {
    roots.write.push_back(options.checkpoint_root);
    // The record of verified files is this program's own.
    if (std::string verified = VerifiedFilesFolder(); !verified.empty()) {
      roots.write.push_back(std::move(verified));
    }
  }
  static RootedEnv env(Env::Real(), std::move(roots));
  return env;
}

// --no-verify stands for data.verify, and acts where it does.
absl::Status SkipVerifying(v1::JobSpec& job_spec) {
  const v1::FieldRow& row =
      spec::RowOf(*v1::JobSpec::descriptor()->FindFieldByNumber(v1::JobSpec::kDataFieldNumber));
  if (spec::Evaluate(row.applies_when(), job_spec) == spec::Truth::kNo) {
    return absl::InvalidArgumentError(
        absl::StrCat("--no-verify changes nothing: ", spec::WhyNot(row.applies_when(), job_spec)));
  }
  job_spec.mutable_data()->set_verify(false);
  return absl::OkStatus();
}

absl::StatusOr<v1::Task> MakeTask(const RunOptions& options) {
  v1::Task task;
  HEARTH_ASSIGN_OR_RETURN(*task.mutable_spec(), LoadJob(options.job));
  if (!options.verify) {
    HEARTH_RETURN_IF_ERROR(SkipVerifying(*task.mutable_spec()));
  }
  const std::string device =
      options.device.empty() ? task.spec().resources().device() : options.device;
  task.mutable_spec()->mutable_resources()->set_device(absl::StartsWith(device, "cuda") ? "cuda"
                                                                                        : "cpu");
  if (!task.spec().evaluate().job().empty()) {
    return absl::InvalidArgumentError(
        "evaluate.job: only a coordinator knows the checkpoints of a job; name folders in "
        "evaluate.models");
  }
  for (const std::string& path : task.spec().evaluate().models()) {
    task.add_models()->set_path(path);
  }
  task.set_job_id(task.spec().name());
  task.set_epoch(1);
  task.set_world_size(1);
  task.set_device(device);
  task.set_threads(
      ThreadsOrAll(options.threads > 0 ? options.threads : task.spec().resources().threads()));
  task.set_checkpoint_dir(options.out + "/checkpoints");
  if (!options.resume.empty()) {
    HEARTH_RETURN_IF_ERROR(FillResume(options.resume, task));
  }
  return task;
}

}  // namespace

int RunCommand(const RunOptions& options) {
  RunOptions with_out = options;
  absl::StatusOr<v1::Task> task = MakeTask(options);
  if (task.ok() && with_out.out.empty()) {
    with_out.out = absl::StrCat("runs/", task->spec().name());
    task->set_checkpoint_dir(with_out.out + "/checkpoints");
  }
  // An earlier run is continued, or kept: never mixed with another.
  if (task.ok() && options.resume.empty() &&
      !ListCheckpointSteps(Env::Real(), task->checkpoint_dir()).empty()) {
    task = absl::AlreadyExistsError(absl::StrCat(
        "--out ", with_out.out, ": holds the checkpoints of a run; go on with it by --resume ",
        with_out.out, ", or give another folder"));
  }
  if (!task.ok()) {
    Fail(task.status());
    return ExitCodeOf(v1::EXIT_REASON_BAD_SPEC).code;
  }
  absl::StatusOr<std::unique_ptr<StandaloneLink>> link =
      NewStandaloneLink(*std::move(task), with_out.out, options.quiet);
  if (!link.ok()) {
    Fail(link.status());
    return ExitCodeOf(v1::EXIT_REASON_IO).code;
  }
  InstallSignalHandlers();
  RankOptions rank;
  rank.link = link->get();
  rank.signals = &g_signals;
  rank.dump_gradients = options.dump_gradients;
  rank.verified_folder = VerifiedFilesFolder();
  return ReportExit(RunRank(rank));
}

int WorkerCommand(const WorkerRunOptions& options) {
  absl::StatusOr<int> fd = InheritedFd();
  if (!fd.ok() || *fd < 0) {
    return Fail(fd.ok()
                    ? absl::FailedPreconditionError(
                          "worker is started by hearth-worker; without it, use: hearth-trainer run")
                    : fd.status());
  }
  InstallSignalHandlers();
  if (const absl::Status status = DieWithParent(0); !status.ok()) {
    return Fail(status);
  }
  AgentLinkOptions agent;
  agent.fd = *fd;
  absl::StatusOr<std::unique_ptr<Link>> link = NewAgentLink(std::move(agent));
  if (!link.ok()) {
    Fail(link.status());
    return ExitCodeOf(v1::EXIT_REASON_INTERNAL).code;
  }
  ThreadsOrAll((*link)->task().threads());
  RankOptions rank;
  rank.env = &FilesOf(options);
  rank.prune_checkpoints = false;
  rank.verified_folder = VerifiedFilesFolder();
  rank.link = link->get();
  rank.signals = &g_signals;
  // Its watch outlives this function's other objects, not the process.
  static Pulse pulse;
  rank.pulse = &pulse;
  PulseThreadOptions watch;
  watch.limits.least =
      options.hang_seconds > 0 ? absl::Seconds(options.hang_seconds) : absl::InfiniteDuration();
  watch.on_gpu = absl::StartsWith((*link)->task().device(), "cuda");
  watch.link = link->get();
  watch.pulse = &pulse;
  PrepareStacks();
  StartPulseThread(watch);
  // Everything has been sent. Without destructors: after a failure they may wait for the GPU for
  // ever.
  _exit(ExitCodeOf(RunRank(rank).reason()).code);
}

}  // namespace hearth::trainer
