// `compare`: one job in each recipe, setting and seed, one run after another, each in a process of
// its own, so that memory and CUDA's state are the run's alone.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/fd.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/config/config.h"
#include "common/io/env.h"
#include "common/spec/resolve/resolve.h"
#include "common/time/clock.h"
#include "google/protobuf/util/json_util.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/cli/compare/compare.h"
#include "worker/trainer/cli/compare/compare_plan.h"
#include "worker/trainer/cli/verbs.h"
#include "worker/trainer/exit_codes.h"
#include "worker/trainer/guard/recipe_trial.h"
#include "worker/trainer/link/link.h"

namespace hearth::trainer {
namespace {

constexpr absl::Duration kProgressPeriod = absl::Seconds(2);

// The run under way, 0 = none, and whether a signal came. Runs are in a process group of their own:
// a terminal's Ctrl-C comes here alone and is passed on once.
std::atomic<pid_t> g_run{0};
std::atomic<bool> g_stop{false};
static_assert(std::atomic<pid_t>::is_always_lock_free, "signal handlers must not lock");

extern "C" void PassOn(int signal) {
  g_stop = true;
  if (const pid_t run = g_run; run > 0) {
    kill(run, signal);
  }
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

void InstallHandlers() {
  g_stop = false;
  struct sigaction action = {};
  action.sa_handler = &PassOn;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

std::string OneLine(absl::string_view text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    lines.emplace_back(absl::StripAsciiWhitespace(line));
  }
  return absl::StrJoin(lines, "; ");
}

// Writes the recipe's layers into the job, so that a folder of a version with other layers counts
// as another comparison. They are not known while the model is in a folder.
void NameRecipeLayers(const v1::JobSpec& resolved, v1::JobSpec& job) {
  const v1::LayerSet& set = resolved.precision().high_precision_layers();
  if (set.first() > 0 || set.last() > 0 || !set.layers().empty()) {
    *job.mutable_precision()->mutable_high_precision_layers() = set;
  }
}

struct ProcessEnd {
  int status = 0;         // waitpid's
  std::string last_line;  // of its output
};

// Runs the program with the arguments until it ends; each line that it prints goes to `line`.
template <typename OnLine>
absl::StatusOr<ProcessEnd> RunProcess(std::vector<std::string> arguments, const OnLine& line) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  int ends[2];
  if (pipe(ends) != 0) {
    return absl::InternalError(absl::StrCat("pipe: ", ErrnoText(errno)));
  }
  const sigset_t stop = StopSignals();
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &stop, &before);  // none may come while the child is not known yet
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (DieWithParent(parent).ok()) {
      execv(argv[0], argv.data());
    }
    _exit(127);
  }
  std::FILE* const output = child > 0 ? fdopen(ends[0], "r") : nullptr;
  const int error = errno;
  g_run = output == nullptr ? 0 : child;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(ends[1]);
  if (output == nullptr) {
    close(ends[0]);
    if (child > 0) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    return absl::InternalError(absl::StrCat(arguments[0], ": ", ErrnoText(error)));
  }
  ProcessEnd end;
  char* buffer = nullptr;
  size_t capacity = 0;
  for (ssize_t length; (length = getline(&buffer, &capacity, output)) > 0;) {
    end.last_line.assign(buffer, static_cast<size_t>(length));
    while (!end.last_line.empty() && end.last_line.back() == '\n') {
      end.last_line.pop_back();
    }
    line(end.last_line);
  }
  std::free(buffer);
  std::fclose(output);
  // The child's end of the pipe is closed: it is gone, or about to be. From here its id may become
  // another's.
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  while (waitpid(child, &end.status, 0) < 0 && errno == EINTR) {
  }
  g_run = 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return end;
}

// No other process may run in the folder as long as the result is open. Invalid: one does.
absl::StatusOr<Fd> LockRun(const std::string& folder) {
  const std::string path = folder + "/lock";
  Fd fd(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return absl::InternalError(absl::StrCat(path, ": ", ErrnoText(errno)));
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
    return fd;
  }
  return errno == EWOULDBLOCK ? absl::StatusOr<Fd>(Fd())
                              : absl::InternalError(absl::StrCat(path, ": ", ErrnoText(errno)));
}

class Compare {
 public:
  explicit Compare(const CompareOptions& options) : options_(options) {}

  absl::Status Run();
  const Comparison& comparison() const { return comparison_; }
  bool stopped() const { return stopped_; }

 private:
  absl::Status Prepare();
  // Whether the job suits --share.
  absl::Status CheckShare() const;
  bool TimeIsOver() const;
  // --report: the runs as they stand.
  absl::Status Report();
  absl::Status TakeEnded(ComparedRun& run);
  // An earlier comparison of the same job is continued. kAlreadyExists: the files are of another
  // job.
  absl::Status RunRecipe(ComparedRun& run);
  // The run's job as a file; nullopt: it is not valid in its recipe, and the run says so.
  absl::StatusOr<std::optional<std::string>> JobFileOf(ComparedRun& run) const;
  // kAlreadyExists: there is a file, and it is of another job.
  absl::Status CheckJobFile(const std::string& path, const std::string& yaml) const;
  absl::Status StartRun(const std::string& folder, const std::string& job_file, ComparedRun& run);
  // State and problem, by what the process left.
  void Judge(const std::string& folder, const ProcessEnd& end, ComparedRun& run);
  // By its exit.json alone; false: it left none.
  bool JudgeByFile(const std::string& folder, ComparedRun& run) const;
  void ReadNumbers(const std::string& folder, ComparedRun& run);
  // Two runs with other tokens are no comparison; the run fails.
  static void CheckTokens(const ComparedRun& base, ComparedRun& run);
  // What must be the same for all, as the first run resolved it.
  void FixBatch(const ComparedRun& first);
  // How to fit the schedule into the steps, to follow what it was refused with; "" if it was not.
  std::string ScheduleHint(const std::vector<spec::FieldViolation>& violations) const;
  absl::Status Conclude();
  void Say(const std::string& text) const {
    if (!options_.quiet) {
      std::fprintf(stderr, "%s\n", text.c_str());
    }
  }

  const CompareOptions& options_;
  Env& env_ = Env::Real();
  v1::JobSpec job_;  // not resolved: each recipe has defaults of its own
  std::string out_;
  std::string program_;
  Comparison comparison_;
  const absl::Duration began_ = Clock::Real().Monotonic();
  bool stopped_ = false;
};

absl::Status Compare::Prepare() {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env_.ReadFile(options_.job.job_file));
  HEARTH_ASSIGN_OR_RETURN(job_, config::ParseJobSpec(text, options_.job.job_file));
  for (const std::string& assignment : options_.job.overrides) {
    HEARTH_RETURN_IF_ERROR(config::ApplyOverride(job_, assignment));
  }
  if (options_.steps > 0) {
    job_.mutable_train()->set_steps(options_.steps);
  }
  const int64_t steps = job_.train().steps();
  if (steps <= 0) {
    return absl::InvalidArgumentError("the job names no train.steps: give --steps");
  }
  v1::JobSpec resolved = job_;
  std::vector<spec::FieldViolation> ignored;  // each recipe has its own
  spec::Resolve(resolved, ignored);
  comparison_.device = options_.device.empty() ? resolved.resources().device() : options_.device;
  job_.mutable_resources()->set_device(absl::StartsWith(comparison_.device, "cuda") ? "cuda"
                                                                                    : "cpu");
  job_.mutable_checkpoint()->set_every_steps(0);
  job_.mutable_checkpoint()->set_keep_last(1);
  const int64_t every = resolved.train().eval_every();
  if (job_.data().validation_size() > 0 && (every <= 0 || every > steps / 4)) {
    job_.mutable_train()->set_eval_every(std::max<int64_t>(1, steps / 10));
  }
  comparison_.job = resolved.name();
  comparison_.steps = steps;
  comparison_.window = options_.window > 0 ? options_.window : FinalLossWindow(steps);
  comparison_.seeds = options_.seeds;
  HEARTH_ASSIGN_OR_RETURN(comparison_.runs, PlanRuns(job_, options_.recipes, options_.vary,
                                                     options_.each, options_.seeds));
  out_ = options_.out.empty() ? absl::StrCat("runs/", comparison_.job, "-compare") : options_.out;
  HEARTH_RETURN_IF_ERROR(CheckShare());
  program_ = options_.program;
  if (program_.empty()) {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
    if (length <= 0) {
      return absl::InternalError(absl::StrCat("/proc/self/exe: ", ErrnoText(errno)));
    }
    program_.assign(path, static_cast<size_t>(length));
  }
  return env_.CreateDirs(out_);
}

absl::Status Compare::CheckShare() const {
  // What the first run would find out must be the same for all processes.
  if (options_.share &&
      (job_.batch().micro_batch_size() <= 0 || !job_.batch().has_global_batch_tokens())) {
    return absl::InvalidArgumentError(
        "--share: the job must set batch.micro_batch_size and batch.global_batch_tokens");
  }
  return absl::OkStatus();
}

bool Compare::TimeIsOver() const {
  return options_.minutes > 0 &&
         Clock::Real().Monotonic() - began_ >= absl::Minutes(options_.minutes);
}

absl::Status Compare::Run() {
  HEARTH_RETURN_IF_ERROR(Prepare());
  if (options_.report) {
    return Report();
  }
  InstallHandlers();
  for (size_t i = 0; i < comparison_.runs.size(); ++i) {
    ComparedRun& run = comparison_.runs[i];
    if (g_stop || TimeIsOver()) {
      run.problem = g_stop ? "stopped before" : "the time was over; the same command goes on";
      continue;
    }
    const std::optional<size_t> reference = ReferenceOf(comparison_, i);
    // The reference may be another process's.
    const ComparedRun& base = comparison_.runs[options_.share ? i : reference.value_or(0)];
    if (&base != &run && !base.ok()) {
      run.problem =
          absl::StrCat("there is nothing to compare with: ", base.name(), " did not end well");
      continue;
    }
    HEARTH_RETURN_IF_ERROR(RunRecipe(run));
    if (i == 0 && !options_.share) {
      FixBatch(run);
    }
    CheckTokens(base, run);
  }
  stopped_ = g_stop;
  if (options_.share) {
    return absl::OkStatus();  // others may still run: --report compares
  }
  return Conclude();
}

absl::Status Compare::Report() {
  std::vector<ComparedRun>& runs = comparison_.runs;
  for (size_t i = 0; i < runs.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(TakeEnded(runs[i]));
    if (i == 0) {
      FixBatch(runs[i]);
    }
    CheckTokens(runs[ReferenceOf(comparison_, i).value_or(i)], runs[i]);
  }
  if (std::all_of(runs.begin(), runs.end(),
                  [](const ComparedRun& run) { return run.not_ended(); })) {
    return absl::NotFoundError(absl::StrCat("--report: no run in ", out_, " has ended"));
  }
  return Conclude();
}

// A run under way has no exit.json, nor has one that was killed: nobody can tell them apart.
absl::Status Compare::TakeEnded(ComparedRun& run) {
  HEARTH_ASSIGN_OR_RETURN(const std::optional<std::string> yaml, JobFileOf(run));
  if (!yaml.has_value()) {
    return absl::OkStatus();
  }
  const std::string folder = absl::StrCat(out_, "/", FolderOf(run));
  if (!JudgeByFile(folder, run) || run.state == "stopped") {
    run.state = "not ended";
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(CheckJobFile(folder + "/job.yaml", *yaml));
  ReadNumbers(folder, run);
  return absl::OkStatus();
}

void Compare::CheckTokens(const ComparedRun& base, ComparedRun& run) {
  if (run.ok() && base.ok() && run.tokens != base.tokens) {
    run.state = "failed";
    run.problem =
        absl::StrCat("trained on ", run.tokens, " tokens, ", base.name(), " on ", base.tokens);
  }
}

void Compare::FixBatch(const ComparedRun& first) {
  // A recipe that takes less memory would choose a larger batch, which is another experiment.
  if (first.ok()) {
    job_.mutable_batch()->set_micro_batch_size(static_cast<int32_t>(first.micro_batch_size));
    job_.mutable_batch()->set_global_batch_tokens(first.global_batch_tokens);
  }
}

std::string Compare::ScheduleHint(const std::vector<spec::FieldViolation>& violations) const {
  bool warmup = false;
  bool decay = false;
  for (const spec::FieldViolation& violation : violations) {
    warmup |= violation.field == "schedule.warmup_steps";
    decay |= violation.field == "schedule.decay_steps";
  }
  if (!warmup && !decay) {
    return "";
  }
  // A decay that the job names is checked only after the warm-up, and would be refused next.
  decay |= job_.schedule().has_decay_steps();
  return absl::StrCat("; fit the schedule into ", comparison_.steps, " steps with",
                      warmup ? " --set schedule.warmup_steps=N" : "",
                      decay ? " --set schedule.decay_steps=N" : "");
}

absl::StatusOr<std::optional<std::string>> Compare::JobFileOf(ComparedRun& run) const {
  HEARTH_ASSIGN_OR_RETURN(v1::JobSpec job, JobOf(job_, run));
  v1::JobSpec resolved = job;
  std::vector<spec::FieldViolation> violations;
  spec::Resolve(resolved, violations);
  NameRecipeLayers(resolved, job);
  if (const absl::Status valid = spec::ViolationsToStatus(violations); !valid.ok()) {
    run.state = "refused";
    run.problem = absl::StrCat(OneLine(valid.message()), ScheduleHint(violations));
    Say(absl::StrCat("[", FolderOf(run), "] refused: ", run.problem));
    return std::optional<std::string>();
  }
  return std::optional<std::string>(config::ToYaml(job));
}

absl::Status Compare::CheckJobFile(const std::string& path, const std::string& yaml) const {
  if (!env_.Exists(path)) {
    return absl::OkStatus();
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string before, env_.ReadFile(path));
  return before == yaml
             ? absl::OkStatus()
             : absl::AlreadyExistsError(absl::StrCat(
                   "--out ", out_, ": ", path, " is of another comparison; give another folder"));
}

absl::Status Compare::RunRecipe(ComparedRun& run) {
  HEARTH_ASSIGN_OR_RETURN(const std::optional<std::string> yaml, JobFileOf(run));
  if (!yaml.has_value()) {
    return absl::OkStatus();
  }
  const std::string folder = absl::StrCat(out_, "/", FolderOf(run));
  const std::string job_file = folder + "/job.yaml";
  HEARTH_RETURN_IF_ERROR(env_.CreateDirs(folder));
  HEARTH_ASSIGN_OR_RETURN(const Fd lock, LockRun(folder));
  if (!lock.valid()) {
    if (options_.share) {
      run.problem = "another process runs it";
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat("another process runs ", folder, "; wait for it, or give --share to both"));
  }
  HEARTH_RETURN_IF_ERROR(CheckJobFile(job_file, *yaml));
  if (!env_.Exists(job_file)) {
    HEARTH_RETURN_IF_ERROR(env_.WriteFileAtomically(job_file, *yaml));
  }
  return StartRun(folder, job_file, run);
}

absl::Status Compare::StartRun(const std::string& folder,
                               const std::string& job_file,
                               ComparedRun& run) {
  Judge(folder, ProcessEnd{}, run);
  if (run.ok()) {
    Say(absl::StrCat("[", FolderOf(run), "] done before: ", folder));
    ReadNumbers(folder, run);
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(env_.RemoveAll(folder + "/exit.json"));
  std::vector<std::string> arguments = {program_,           "run",   job_file, "--device",
                                        comparison_.device, "--out", folder};
  if (options_.threads > 0) {
    arguments.insert(arguments.end(), {"--threads", absl::StrCat(options_.threads)});
  }
  const bool resumes = !ListCheckpointSteps(env_, folder + "/checkpoints").empty();
  if (resumes) {
    arguments.insert(arguments.end(), {"--resume", folder});
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> log,
                          resumes ? env_.NewAppendableFile(folder + "/run.log")
                                  : env_.NewWritableFile(folder + "/run.log"));
  absl::Status logged;
  const std::string name = FolderOf(run);
  absl::Duration said = -absl::InfiniteDuration();
  HEARTH_ASSIGN_OR_RETURN(const ProcessEnd end, RunProcess(arguments, [&](const std::string& line) {
                            if (logged.ok()) {
                              logged = log->Append(line + "\n");
                            }
                            const bool step = absl::StartsWith(line, "step ");
                            const absl::Duration now = Clock::Real().Monotonic();
                            if (!step || now - said >= kProgressPeriod) {
                              said = step ? now : said;
                              Say(absl::StrCat("[", name, "] ", line));
                            }
                          }));
  HEARTH_RETURN_IF_ERROR(logged);
  Judge(folder, end, run);
  ReadNumbers(folder, run);
  // A stopped run can be continued, so its checkpoints stay; nobody asked for the others' weights.
  return run.state == "stopped" ? absl::OkStatus() : env_.RemoveAll(folder + "/checkpoints");
}

bool Compare::JudgeByFile(const std::string& folder, ComparedRun& run) const {
  v1::TrainerExit exit;
  const absl::StatusOr<std::string> text = env_.ReadFile(folder + "/exit.json");
  if (!text.ok() || !google::protobuf::util::JsonStringToMessage(*text, &exit).ok()) {
    return false;
  }
  if (exit.reason() == v1::EXIT_REASON_FINISHED) {
    run.state = "ok";
    run.problem.clear();
    return true;
  }
  if (exit.reason() == v1::EXIT_REASON_STOPPED) {
    run.state = "stopped";
    run.problem = absl::StrCat("at step ", exit.step(), "; the same command goes on");
    return true;
  }
  const ExitCode& code = ExitCodeOf(exit.reason());
  run.state = "failed";
  run.problem =
      absl::StrCat(std::string(code.name), " at step ", exit.step(), ": ",
                   exit.message().empty() ? std::string(code.meaning) : OneLine(exit.message()));
  return true;
}

void Compare::Judge(const std::string& folder, const ProcessEnd& end, ComparedRun& run) {
  if (JudgeByFile(folder, run)) {
    return;
  }
  run.state = "failed";
  if (WIFSIGNALED(end.status)) {
    run.problem = absl::StrCat("killed by signal ", WTERMSIG(end.status), " (",
                               SignalText(WTERMSIG(end.status)), ")");
    return;
  }
  run.problem = absl::StrCat("exit status ", WEXITSTATUS(end.status), ": ",
                             absl::StripPrefix(end.last_line, "hearth-trainer: "));
}

void Compare::ReadNumbers(const std::string& folder, ComparedRun& run) {
  const absl::Status read = ReadRun(env_, folder, comparison_.window, run);
  if (run.ok() && !read.ok()) {
    run.state = "failed";
    run.problem = OneLine(read.message());
  }
  if (!run.ok()) {  // losses of another step than the others'
    run.training_loss.reset();
    run.held_out_loss.reset();
  }
}

absl::Status Compare::Conclude() {
  Relate(comparison_);
  HEARTH_RETURN_IF_ERROR(
      env_.WriteFileAtomically(out_ + "/compare.txt", CompareTable(comparison_)));
  HEARTH_RETURN_IF_ERROR(
      env_.WriteFileAtomically(out_ + "/compare.json", CompareJson(comparison_)));
  HEARTH_RETURN_IF_ERROR(
      env_.WriteFileAtomically(out_ + "/compare.svg", ComparePicture(comparison_)));
  Say(absl::StrCat("table and picture: ", out_, "/compare.{txt,json,svg}"));
  return absl::OkStatus();
}

}  // namespace

int CompareCommand(const CompareOptions& options) {
  const std::set<std::string> different(options.recipes.begin(), options.recipes.end());
  if (options.recipes.size() < 2 || different.size() != options.recipes.size()) {
    Fail(absl::InvalidArgumentError("--recipes: want two or more, each once"));
    return 2;
  }
  if (options.report && options.share) {
    Fail(absl::InvalidArgumentError(
        "--report: starts no run, so it shares none; leave --share out"));
    return 2;
  }
  Compare compare(options);
  if (const absl::Status status = compare.Run(); !status.ok()) {
    return Fail(status);
  }
  const Comparison& comparison = compare.comparison();
  if (!options.share) {
    std::fputs((options.json ? CompareJson(comparison) : CompareTable(comparison)).c_str(), stdout);
  }
  if (compare.stopped()) {
    return ExitCodeOf(v1::EXIT_REASON_STOPPED).code;
  }
  const bool good = ProblemOf(comparison).empty() &&
                    std::all_of(comparison.runs.begin(), comparison.runs.end(),
                                [](const ComparedRun& run) { return run.ok() || run.not_ended(); });
  return good ? 0 : 1;
}

}  // namespace hearth::trainer
