#include "worker/trainer/link/link.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/system.h"
#include "worker/trainer/exit_codes.h"

namespace hearth::trainer {

absl::StatusOr<int> InheritedFd() {
  const char* text = GetEnv("HEARTH_TRAINER_FD");
  if (text == nullptr || *text == '\0') {
    return -1;
  }
  int fd = -1;
  if (!absl::SimpleAtoi(text, &fd) || fd < 0 || fcntl(fd, F_GETFD) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("HEARTH_TRAINER_FD=", text, " is not an open descriptor"));
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  UnsetEnv("HEARTH_TRAINER_FD");
  return fd;
}

absl::Status DieWithParent(int64_t expected_parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return absl::InternalError(absl::StrCat("prctl(PR_SET_PDEATHSIG): ", ErrnoText(errno)));
  }
  // The signal is for a later end only; the parent may have ended before the call.
  if (expected_parent > 0 && getppid() != expected_parent) {
    _exit(ExitCodeOf(v1::EXIT_REASON_ABORTED).code);
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
