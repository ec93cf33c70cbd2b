#include "worker/daemon/confine/call_filter.h"

#include <linux/bpf_common.h>

#include <set>
#include <string_view>

#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

TEST(CallFilter, DeniedCalls_EachRow_IsThereOnceWithItsReason) {
  std::set<std::string_view> names;
  for (const DeniedCall& call : DeniedCalls()) {
    EXPECT_TRUE(names.insert(call.name).second) << call.name;
    EXPECT_FALSE(call.why.empty()) << call.name;
  }
  for (const std::string_view name : {"mount", "kexec_load", "bpf", "init_module", "keyctl",
                                      "reboot", "swapon", "setns", "unshare", "io_uring_setup"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  // What CUDA and NCCL use.
  for (const std::string_view name :
       {"mbind", "mlock", "move_pages", "memfd_create", "process_vm_readv", "pidfd_getfd", "ioctl",
        "sched_setaffinity", "set_mempolicy", "socket"}) {
    EXPECT_FALSE(names.contains(name)) << name;
  }
}

TEST(CallFilter, MakeCallFilter_Program_IsOneThatTheKernelTakes) {
  const auto program = MakeCallFilter();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_GT(program->size(), DeniedCalls().size());
  EXPECT_LE(program->size(), static_cast<size_t>(BPF_MAXINSNS));
  EXPECT_EQ(BPF_CLASS(program->back().code), BPF_RET);
}

}  // namespace
}  // namespace hearth::worker
