#include "worker/daemon/confine/call_filter.h"

#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/daemon/supervise/child_process.h"

namespace hearth::worker {
namespace {

constexpr std::string_view kFileSystems = "changes what file systems a process sees";
constexpr std::string_view kKernel = "changes the kernel that runs";
constexpr std::string_view kOthers = "reads or changes other processes";
constexpr std::string_view kNamespaces = "makes namespaces, in which it would be root";
constexpr std::string_view kKeys = "reads keys that the kernel keeps for others";
constexpr std::string_view kMachine = "changes settings of the whole machine";
constexpr std::string_view kSurface = "is little used and has let attackers into kernels";

// What CUDA, NCCL and their transports use stays allowed: memory policies (mbind, move_pages),
// mlock, memfd_create, process_vm_readv (single copies between ranks of a host), pidfd_getfd.
constexpr DeniedCall kDenied[] = {
    {"mount", kFileSystems},
    {"umount", kFileSystems},
    {"umount2", kFileSystems},
    {"pivot_root", kFileSystems},
    {"chroot", kFileSystems},
    {"open_tree", kFileSystems},
    {"move_mount", kFileSystems},
    {"fsopen", kFileSystems},
    {"fsconfig", kFileSystems},
    {"fsmount", kFileSystems},
    {"fspick", kFileSystems},
    {"mount_setattr", kFileSystems},
    {"open_by_handle_at", kFileSystems},
    {"quotactl", kFileSystems},
    {"quotactl_fd", kFileSystems},
    {"fanotify_init", kFileSystems},
    {"kexec_load", kKernel},
    {"kexec_file_load", kKernel},
    {"init_module", kKernel},
    {"finit_module", kKernel},
    {"create_module", kKernel},
    {"delete_module", kKernel},
    {"reboot", kKernel},
    {"bpf", kKernel},
    {"syslog", kKernel},
// The leak checker of a build with AddressSanitizer attaches to its own process.
#ifndef HEARTH_SANITIZED
    {"ptrace", kOthers},
#endif
    {"process_vm_writev", kOthers},
    {"perf_event_open", kOthers},
    {"unshare", kNamespaces},
    {"setns", kNamespaces},
    {"keyctl", kKeys},
    {"add_key", kKeys},
    {"request_key", kKeys},
    {"swapon", kMachine},
    {"swapoff", kMachine},
    {"acct", kMachine},
    {"settimeofday", kMachine},
    {"stime", kMachine},
    {"clock_settime", kMachine},
    {"clock_settime64", kMachine},
    {"clock_adjtime", kMachine},
    {"clock_adjtime64", kMachine},
    {"adjtimex", kMachine},
    {"sethostname", kMachine},
    {"setdomainname", kMachine},
    {"iopl", kMachine},
    {"ioperm", kMachine},
    {"vhangup", kMachine},
    {"_sysctl", kMachine},
    {"userfaultfd", kSurface},
    {"io_uring_setup", kSurface},
    {"io_uring_enter", kSurface},
    {"io_uring_register", kSurface},
    {"lookup_dcookie", kSurface},
    {"nfsservctl", kSurface},
    {"uselib", kSurface},
    {"modify_ldt", kSurface},
};

// Bits of clone's first argument.
constexpr uint64_t kNamespaceFlags[] = {CLONE_NEWNS,  CLONE_NEWUTS, CLONE_NEWIPC,   CLONE_NEWUSER,
                                        CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP};

absl::Status Fail(const char* what, int error) {
  return absl::ErrnoToStatus(-error, absl::StrCat("filter of system calls: ", what));
}

// Calls that this architecture does not have are passed over.
absl::Status Deny(scmp_filter_ctx filter) {
  for (const DeniedCall& call : kDenied) {
    const int number = seccomp_syscall_resolve_name(std::string(call.name).c_str());
    if (number < 0) {
      continue;
    }
    if (const int error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0); error != 0) {
      return Fail(call.name.data(), error);
    }
  }
  for (const uint64_t flag : kNamespaceFlags) {
    const scmp_arg_cmp has_flag = {0, SCMP_CMP_MASKED_EQ, flag, flag};
    if (const int error =
            seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, &has_flag);
        error != 0) {
      return Fail("clone", error);
    }
  }
  // clone3's flags lie in memory, where a filter cannot look. At ENOSYS the C library takes clone
  // instead.
  const int error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
  return error == 0 ? absl::OkStatus() : Fail("clone3", error);
}

absl::StatusOr<std::vector<sock_filter>> Export(scmp_filter_ctx filter) {
  // libseccomp writes its program to a descriptor alone, and a child installs it from memory.
  const Fd file(memfd_create("filter", MFD_CLOEXEC));
  if (!file.valid()) {
    return Fail("memfd_create", -errno);
  }
  if (const int error = seccomp_export_bpf(filter, file.get()); error != 0) {
    return Fail("export", error);
  }
  const off_t bytes = lseek(file.get(), 0, SEEK_END);
  std::vector<sock_filter> program(bytes < 0 ? 0
                                             : static_cast<size_t>(bytes) / sizeof(sock_filter));
  if (program.empty() ||
      pread(file.get(), program.data(), static_cast<size_t>(bytes), 0) != bytes) {
    return absl::InternalError("filter of system calls: its program cannot be read back");
  }
  return program;
}

}  // namespace

absl::Span<const DeniedCall> DeniedCalls() {
  return kDenied;
}

absl::StatusOr<std::vector<sock_filter>> MakeCallFilter() {
  const std::unique_ptr<void, decltype(&seccomp_release)> filter(seccomp_init(SCMP_ACT_ALLOW),
                                                                 &seccomp_release);
  if (filter == nullptr) {
    return absl::InternalError("filter of system calls: seccomp_init failed");
  }
  // Calls of another architecture, 32-bit ones for example, have numbers that the rules do not
  // cover.
  if (const int error =
          seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
      error != 0) {
    return Fail("architectures", error);
  }
  HEARTH_RETURN_IF_ERROR(Deny(filter.get()));
  return Export(filter.get());
}

}  // namespace hearth::worker
