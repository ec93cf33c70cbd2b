#include "worker/daemon/confine/confinement.h"

#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/env.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "worker/daemon/supervise/child_process.h"

namespace hearth::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Every Debian has it.
constexpr char kUser[] = "nobody";

class ConfinementTest : public ::testing::Test {
 protected:
  ConfinementTest() {
    fs::create_directories(home_ / "checkpoints/job-1/e1");
    fs::permissions(home_, fs::perms(0755));
    options_.name = "w1";
    options_.home = home_.string();
    options_.checkpoint_root = (home_ / "checkpoints").string();
  }

  absl::StatusOr<Confinement> Prepare() const {
    return Confinement::Prepare(options_, {"/bin/sh"});
  }
  std::string Refused() const {
    const auto made = Prepare();
    EXPECT_FALSE(made.ok());
    return std::string(made.status().message());
  }
  // What a shell prints that was started so; it has ended with 0.
  std::string Shell(const std::string& script) const {
    auto made = Prepare();
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) {
      return "";
    }
    SpawnOptions spawn;
    spawn.program = "/bin/sh";
    spawn.arguments = {"-c", script};
    spawn.confinement = std::make_shared<const Confinement>(*std::move(made));
    auto child = Spawn(spawn);
    EXPECT_TRUE(child.ok()) << child.status();
    if (!child.ok()) {
      return "";
    }
    int status = 0;
    EXPECT_EQ(waitpid(child->pid, &status, 0), child->pid);
    std::string text(65536, '\0');
    const ssize_t bytes = read(child->out.get(), text.data(), text.size());
    text.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
    std::string errors(65536, '\0');
    const ssize_t error_bytes = read(child->err.get(), errors.data(), errors.size());
    errors.resize(error_bytes < 0 ? 0 : static_cast<size_t>(error_bytes));
    EXPECT_EQ(status, 0) << errors;
    return text;
  }
  static uid_t OwnerOf(const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
    return found.st_uid;
  }

  const TempDir temp_;
  const fs::path home_ = temp_.path();
  ConfinementOptions options_;
};

TEST_F(ConfinementTest, Default_IsNoNewPrivilegesAlone) {
  EXPECT_THAT(Confinement().InForce(), ElementsAre("no new privileges"));
}

TEST_F(ConfinementTest, Prepare_Defaults_DropsCapabilitiesAndFilters) {
  EXPECT_THAT(Prepare()->InForce(),
              ElementsAre("no capabilities", "no new privileges", "system calls filtered"));
  const std::string status = Shell("cat /proc/self/status");
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) {
    EXPECT_THAT(status, HasSubstr(absl::StrCat(set, ":\t0000000000000000")));
  }
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(status, HasSubstr("Seccomp:\t2"));
}

TEST_F(ConfinementTest, Prepare_NoFilter_LeavesSystemCallsAlone) {
  options_.filter_calls = false;
  EXPECT_THAT(Prepare()->InForce(), Not(Contains("system calls filtered")));
  EXPECT_THAT(Shell("cat /proc/self/status"), HasSubstr("Seccomp:\t0"));
}

TEST_F(ConfinementTest, Prepare_LimitsWithoutDelegation_AreRefusedOrKept) {
  options_.limits.processes = 400;
  const auto made = Prepare();
  if (made.ok()) {
    EXPECT_THAT(made->InForce(), Contains("at most 400 processes and threads"));
    GTEST_SKIP() << "this machine delegates a cgroup v2 with the controller pids";
  }
  EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("--trainer-pids"));
}

TEST_F(ConfinementTest, Prepare_ProgramThatIsNotThere_IsNamed) {
  const auto made = Confinement::Prepare(options_, {"/nonexistent/trainer"});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("cannot run /nonexistent/trainer"));
}

TEST_F(ConfinementTest, Prepare_UserWithoutRoot_IsRefused) {
  if (geteuid() == 0) {
    GTEST_SKIP() << "runs as root: shows nothing about other accounts";
  }
  options_.user = kUser;
  EXPECT_THAT(Refused(), HasSubstr("only a worker that root runs"));
}

class RootConfinementTest : public ConfinementTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) {
      GTEST_SKIP() << "needs root: another account, and capabilities to drop";
    }
    std::string buffer(16 << 10, '\0');
    passwd entry{};
    passwd* found = nullptr;
    ASSERT_EQ(getpwnam_r(kUser, &entry, buffer.data(), buffer.size(), &found), 0);
    ASSERT_NE(found, nullptr);
    uid_ = found->pw_uid;
  }

  uid_t uid_ = 0;
};

TEST_F(RootConfinementTest, Capabilities_BoundingSet_IsEmpty) {
  EXPECT_THAT(Shell("cat /proc/self/status"), HasSubstr("CapBnd:\t0000000000000000"));
}

TEST_F(RootConfinementTest, User_Trainer_HasItsAccountGroupsAndHome) {
  options_.user = kUser;
  EXPECT_THAT(Prepare()->InForce(), Contains("account nobody"));
  const std::string said =
      Shell("id -un; id -Gn; echo \"$HEARTH_HOME $USER\"; cat /proc/self/status");
  EXPECT_THAT(said, ::testing::StartsWith(absl::StrCat(
                        "nobody\nnogroup\n", (home_ / "trainers/nobody").string(), " nobody\n")));
  EXPECT_THAT(said, HasSubstr("CapPrm:\t0000000000000000"));
  EXPECT_THAT(said, HasSubstr("CapBnd:\t0000000000000000"));
}

TEST_F(RootConfinementTest, User_FoldersOfRoot_AreHandedOver) {
  options_.user = kUser;
  fs::create_directories(home_ / "checkpoints/Not a job");
  Shell(absl::StrCat("mkdir -p ", options_.checkpoint_root, "/job-1/e2 ", options_.checkpoint_root,
                     "/job-2/e1"));
  EXPECT_EQ(OwnerOf(home_ / "checkpoints"), uid_);
  EXPECT_EQ(OwnerOf(home_ / "checkpoints/job-1"), uid_);
  EXPECT_EQ(OwnerOf(home_ / "checkpoints/job-1/e1"), 0u) << "what is there is only read";
  EXPECT_EQ(OwnerOf(home_ / "checkpoints/Not a job"), 0u);
}

TEST_F(RootConfinementTest, User_LinkInsteadOfAJob_IsNotFollowed) {
  options_.user = kUser;
  fs::create_directories(home_ / "precious");
  fs::create_directory_symlink(home_ / "precious", home_ / "checkpoints/job-9");
  EXPECT_TRUE(Prepare().ok());
  EXPECT_EQ(OwnerOf(home_ / "precious"), 0u);
}

TEST_F(RootConfinementTest, User_FolderThatItCannotReach_IsRefusedWithThePath) {
  options_.user = kUser;
  fs::permissions(home_, fs::perms(0700));
  EXPECT_THAT(Refused(), HasSubstr(absl::StrCat("account nobody cannot write checkpoints to ",
                                                options_.checkpoint_root)));
}

TEST_F(RootConfinementTest, User_Unknown_IsRefused) {
  options_.user = "no-such-account";
  EXPECT_THAT(Refused(), HasSubstr("--trainer-user no-such-account: no such account"));
  options_.user = "root";
  EXPECT_THAT(Refused(), HasSubstr("root's account"));
}

TEST_F(RootConfinementTest, User_EndOfTheDaemonsThread_StillKillsTheTrainer) {
  options_.user = kUser;
  // Spawn() asks for the signal after the account has changed, which takes it away.
  EXPECT_THAT(Shell("exec python3 -c 'import ctypes; n = ctypes.c_int(); "
                    "ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value)'"),
              HasSubstr(absl::StrCat(SIGKILL)));
}

}  // namespace
}  // namespace hearth::worker
