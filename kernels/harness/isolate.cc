#include "kernels/harness/isolate.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace hearth::kernels::harness {
namespace {

// How a process ended and the last case that it began; -1: none.
struct Ending {
  int status = 0;  // of waitpid
  bool timed_out = false;
  int last = -1;
};

[[noreturn]] void Become(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  std::perror("execv");
  _exit(127);
}

Ending RunChild(std::vector<std::string> arguments, int limit_s) {
  Ending ending;
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    std::perror("pipe");
    ending.status = 127 << 8;
    return ending;
  }
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    // A copy without the close-on-exec flag.
    arguments.push_back("--progress");
    arguments.push_back(absl::StrCat(dup(pipe_ends[1])));
    Become(arguments);
  }
  close(pipe_ends[1]);
  if (child < 0) {
    std::perror("fork");
    close(pipe_ends[0]);
    ending.status = 127 << 8;
    return ending;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(limit_s);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd wait_for = {pipe_ends[0], POLLIN, 0};
    if (left.count() <= 0 || poll(&wait_for, 1, static_cast<int>(left.count())) == 0) {
      ending.timed_out = true;
      kill(child, SIGKILL);
      break;
    }
    int32_t index = 0;
    if (read(pipe_ends[0], &index, sizeof(index)) != static_cast<ssize_t>(sizeof(index))) {
      break;  // the child has ended, or is about to
    }
    ending.last = index;
  }
  close(pipe_ends[0]);
  waitpid(child, &ending.status, 0);
  return ending;
}

// Empty if the process ended by itself after all of its cases.
std::string Death(const Ending& ending, int limit_s) {
  if (ending.timed_out) {
    return absl::StrCat("not done after ", limit_s, " s");
  }
  if (WIFSIGNALED(ending.status)) {
    return absl::StrCat("died of signal ", WTERMSIG(ending.status));
  }
  const int code = WEXITSTATUS(ending.status);
  return code == 0 || code == 1 || code == kExitNoGpu ? "" : absl::StrCat("exit code ", code);
}

}  // namespace

int RunIsolated(const std::vector<OpCase>& cases,
                const std::vector<std::string>& arguments,
                int limit_s) {
  std::vector<std::string> ops;
  for (const OpCase& op_case : cases) {
    if (ops.empty() || ops.back() != op_case.op) {
      ops.push_back(op_case.op);
    }
  }
  if (ops.empty()) {
    std::printf("no case has such a name\n");
    return 1;
  }
  std::string bad;
  for (const std::string& op : ops) {
    int from = 0;
    bool failed = false;
    for (bool again = true; again;) {
      std::vector<std::string> call = arguments;
      call.insert(call.end(), {"--op", op, "--from", absl::StrCat(from)});
      const Ending ending = RunChild(call, limit_s);
      const std::string death = Death(ending, limit_s);
      if (death.empty() && WEXITSTATUS(ending.status) == kExitNoGpu) {
        return kExitNoGpu;
      }
      failed |= !death.empty() || WEXITSTATUS(ending.status) != 0;
      // If no case had begun, no case can be left out.
      again = !death.empty() && ending.last >= from;
      if (!death.empty()) {
        std::printf("FAIL  %s: process: %s%s\n", op.c_str(), death.c_str(),
                    again ? "; on with the case after it" : "");
      }
      from = ending.last + 1;
    }
    if (failed) {
      absl::StrAppend(&bad, " ", op);
    }
  }
  std::printf("%zu ops%s%s\n", ops.size(), bad.empty() ? ", all good" : "; failed:", bad.c_str());
  return bad.empty() && !ops.empty() ? 0 : 1;
}

}  // namespace hearth::kernels::harness
