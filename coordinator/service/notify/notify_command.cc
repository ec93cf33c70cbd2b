#include "coordinator/service/notify/notify_command.h"

#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/fd.h"
#include "common/base/status_macros.h"

namespace hearth::coordinator {
namespace {

constexpr int kFirstFreeFd = 3;
constexpr absl::Duration kLook = absl::Milliseconds(100);

absl::Status Failed(const std::string& what, int error) {
  return absl::UnavailableError(
      absl::StrCat(what, ": ", std::strerror(error)));  // NOLINT(concurrency-mt-unsafe)
}

// A file in memory, read from its begin: no reader can keep the writer waiting.
absl::StatusOr<Fd> BodyFile(const std::string& body) {
  Fd file(memfd_create("hearth-notification", MFD_CLOEXEC));
  if (file.get() < 0) {
    return Failed("memfd_create", errno);
  }
  for (size_t done = 0; done < body.size();) {
    const ssize_t count = write(file.get(), body.data() + done, body.size() - done);
    if (count < 0 && errno != EINTR) {
      return Failed("write", errno);
    }
    done += count > 0 ? static_cast<size_t>(count) : 0;
  }
  if (lseek(file.get(), 0, SEEK_SET) != 0) {
    return Failed("lseek", errno);
  }
  return file;
}

std::vector<std::string> Environment() {
  std::vector<std::string> lines;
  for (const char* name : {"PATH", "HOME", "LANG"}) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets it
    if (value != nullptr) {
      lines.push_back(absl::StrCat(name, "=", value));
    }
  }
  return lines;
}

absl::StatusOr<pid_t> Spawn(const std::string& path, int input) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  // Nothing of the coordinator's: neither its sockets nor its store.
  posix_spawn_file_actions_addclosefrom_np(&actions, kFirstFreeFd);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> lines = Environment();
  std::vector<char*> environment;
  for (std::string& line : lines) {
    environment.push_back(line.data());
  }
  environment.push_back(nullptr);
  std::string name = path;
  char* arguments[] = {name.data(), nullptr};
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, path.c_str(), &actions, &attributes, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return Failed(path, error);
  }
  return pid;
}

// Waits until it ends, for at most `timeout`; false: it has not.
bool Ends(pid_t pid, absl::Duration timeout, const std::atomic<bool>& stop) {
  // By its number: the C library's declaration of pidfd_open is not for C++.
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  for (absl::Duration waited; waited < timeout && !stop.load(); waited += kLook) {
    pollfd ready = {process.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(kLook))) > 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::Status RunNotifyCommand(const std::string& path,
                              const std::string& body,
                              absl::Duration timeout,
                              const std::atomic<bool>& stop) {
  HEARTH_ASSIGN_OR_RETURN(const Fd input, BodyFile(body));
  HEARTH_ASSIGN_OR_RETURN(const pid_t pid, Spawn(path, input.get()));
  const bool ended = Ends(pid, timeout, stop);
  if (!ended) {
    kill(-pid, SIGKILL);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return stop.load() ? absl::AbortedError("stopped")
                       : absl::UnavailableError(absl::StrCat(path, " did not end within ",
                                                             absl::FormatDuration(timeout)));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      WIFEXITED(status) ? absl::StrCat(path, " ended with code ", WEXITSTATUS(status))
                        : absl::StrCat(path, " was ended by signal ", WTERMSIG(status)));
}

}  // namespace hearth::coordinator
