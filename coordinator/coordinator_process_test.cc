// hearth-coordinator as a process: exit codes, messages, and what a crash leaves behind.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/system.h"
#include "common/rpc/bearer.h"
#include "common/rpc/channel.h"
#include "common/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.grpc.pb.h"
#include "nlohmann/json.hpp"
#include "tests/support/common/point_name.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() {
    const char* bin = GetEnv("HEARTH_BIN_DIR");
    program_ =
        (bin == nullptr ? std::string("build/ctl/bin") : std::string(bin)) + "/hearth-coordinator";
    SetEnv("HEARTH_HOME", root_.c_str());  // of the programs too: there they leave our token
  }
  ~ProcessTest() override {
    for (const pid_t pid : started_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  // `clock`: the file that has the offset of its wall clock, if any.
  pid_t Spawn(std::vector<std::string> args,
              const std::string& faults = "",
              const std::string& clock = "") {
    args.insert(args.begin(), program_);
    std::vector<char*> argv;
    for (std::string& arg : args) {
      argv.push_back(arg.data());
    }
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      SetEnv("HEARTH_FAULTS", faults.c_str());
      if (!clock.empty()) {
        SetEnv("HEARTH_WALL_CLOCK_OFFSET", clock.c_str());
      }
      const int err = open((root_ + "/stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      dup2(err, 2);
      dup2(err, 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
    started_.push_back(pid);
    return pid;
  }

  // Exit code, or -signal.
  int Wait(pid_t pid) {
    int wait_status = 0;
    waitpid(pid, &wait_status, 0);
    std::erase(started_, pid);
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -WTERMSIG(wait_status);
  }

  int Run(const std::vector<std::string>& args) { return Wait(Spawn(args)); }

  std::string Output() {
    std::ifstream file(root_ + "/stderr");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::vector<std::string> Args() {
    return {"--data-dir", root_ + "/data", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"};
  }

  // Whether it has ended; it can still be waited for.
  static bool Ended(pid_t pid) {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == pid;
  }

  // Address of the coordinator that runs as `pid`, once it serves; "" when it does not come up.
  std::string Address(pid_t pid) {
    absl::Mutex mu;
    for (int i = 0; i < 500 && !Ended(pid); ++i) {
      std::ifstream file(root_ + "/data/endpoints.json");
      const nlohmann::json endpoints = nlohmann::json::parse(file, nullptr, false);
      if (!endpoints.is_discarded() && endpoints["pid"] == pid) {
        return endpoints["listen"];
      }
      absl::MutexLock lock(&mu);
      Clock::Real().AwaitWithTimeout(mu, never_, absl::Milliseconds(20));
    }
    return "";
  }

  bool EndsWithin(pid_t pid, absl::Duration bound) {
    absl::Mutex mu;
    absl::MutexLock lock(&mu);
    const absl::Duration over = Clock::Real().Monotonic() + bound;
    while (!Ended(pid) && Clock::Real().Monotonic() < over) {
      Clock::Real().AwaitWithTimeout(mu, never_, absl::Milliseconds(20));
    }
    return Ended(pid);
  }

  // A socket connected to 127.0.0.1:PORT; -1 if it cannot be had.
  static int ConnectTo(const std::string& address) {
    int port = 0;
    if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) {
      return -1;
    }
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_port = htons(static_cast<uint16_t>(port));
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&there), sizeof(there)) != 0) {
      close(fd);
      return -1;
    }
    return fd;
  }

  // A deadline, and the token that the coordinator left for us.
  static void Prepare(grpc::ClientContext& context, const std::string& address) {
    rpc::SetDeadline(context);
    const auto token = rpc::FindToken(address, "", rpc::LocalToken::kAdmin);
    rpc::Authorize(context, {token.ok() ? *token : "", ""});
  }

  static grpc::Status Create(const std::string& address,
                             const std::string& request_id,
                             v1::Job* job) {
    const auto stub =
        v1::JobService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    v1::CreateJobRequest request;
    request.set_request_id(request_id);
    request.mutable_spec()->set_name("x");
    request.mutable_spec()->mutable_model()->set_preset("hearth-112m");
    request.mutable_spec()->mutable_data()->add_train()->set_path("/data");
    request.mutable_spec()->mutable_train()->set_steps(10);
    grpc::ClientContext context;
    Prepare(context, address);
    return stub->CreateJob(&context, request, job);
  }

  static int CountJobs(const std::string& address) {
    const auto stub =
        v1::JobService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    Prepare(context, address);
    v1::ListJobsResponse response;
    return stub->ListJobs(&context, {}, &response).ok() ? response.jobs_size() : -1;
  }

  bool no_ = false;
  const absl::Condition never_{&no_};
  const TempDir temp_;
  const std::string root_ = temp_.path();
  std::string program_;
  std::vector<pid_t> started_;
};

TEST_F(ProcessTest, Version_PrintsAndExits0) {
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_THAT(Output(), HasSubstr("hearth-coordinator 0."));
}

TEST_F(ProcessTest, BadFlags_Exit2) {
  EXPECT_EQ(Run({"--data-dir", root_ + "/data", "--nonsense"}), 2);
  EXPECT_EQ(Run({}), 2);
}

TEST_F(ProcessTest, NonLoopbackWithoutTls_Exit2AndNothingMade) {
  EXPECT_EQ(Run({"--data-dir", root_ + "/data", "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0"}),
            2);
  EXPECT_THAT(Output(), HasSubstr("--insecure"));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/data"));
}

TEST_F(ProcessTest, DataDirIsAFile_Exit1AndNamesIt) {
  std::ofstream(root_ + "/data") << "x";
  EXPECT_EQ(Run(Args()), 1);
  EXPECT_THAT(Output(), HasSubstr(root_ + "/data"));
}

TEST_F(ProcessTest, DataDirInUse_Exit3AndNamesThePid) {
  const pid_t first = Spawn(Args());
  ASSERT_NE(Address(first), "") << Output();
  EXPECT_EQ(Run(Args()), 3);
  EXPECT_THAT(Output(), HasSubstr(absl::StrCat("pid ", first)));
}

TEST_F(ProcessTest, Sigterm_Exit0) {
  const pid_t pid = Spawn(Args());
  ASSERT_NE(Address(pid), "") << Output();
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 0) << Output();
}

// A connection that says nothing holds up the end for the grace period. That is measured by a clock
// that does not jump; else gRPC's keepalive would end the connection, after 15 s.
TEST_F(ProcessTest, Sigterm_ClockJumpedAndAPeerIsSilent_EndsAfterTheGracePeriod) {
  std::ofstream(root_ + "/clock") << "86400\n";
  const pid_t pid = Spawn(Args(), "", root_ + "/clock");
  const std::string address = Address(pid);
  ASSERT_NE(address, "") << Output();
  const int silent = ConnectTo(address);
  ASSERT_GE(silent, 0);
  v1::Job job;
  EXPECT_TRUE(Create(address, "", &job).ok());  // so the silent one has been accepted, too
  kill(pid, SIGTERM);
  EXPECT_TRUE(EndsWithin(pid, absl::Seconds(10)));
  close(silent);
  EXPECT_EQ(Wait(pid), 0) << Output();
}

TEST_F(ProcessTest, CommitFails_AnswersAndExit4) {
  const pid_t pid = Spawn(Args(), "store.before_commit=error");
  const std::string address = Address(pid);
  ASSERT_NE(address, "") << Output();
  v1::Job job;
  EXPECT_EQ(Create(address, "", &job).error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(Wait(pid), 4);
  const pid_t next = Spawn(Args());
  EXPECT_EQ(CountJobs(Address(next)), 0);
}

// The coordinator dies while it handles a CreateJob; the client tries again with the same request
// id. Whatever the moment, there is exactly one job afterwards.
class CrashTest : public ProcessTest, public testing::WithParamInterface<const char*> {};

TEST_P(CrashTest, CreateJob_RetriedAfterACrash_MakesOneJob) {
  const pid_t first = Spawn(Args(), absl::StrCat(GetParam(), "=crash"));
  const std::string address = Address(first);
  ASSERT_NE(address, "") << Output();
  const std::string request_id = RandomUuid();
  v1::Job job;
  EXPECT_FALSE(Create(address, request_id, &job).ok());
  EXPECT_EQ(Wait(first), -SIGKILL);

  const pid_t second = Spawn(Args());
  const std::string second_address = Address(second);
  const grpc::Status status = Create(second_address, request_id, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(CountJobs(second_address), 1);
  kill(second, SIGKILL);  // acknowledged: survives this too
  Wait(second);
  const pid_t third = Spawn(Args());
  EXPECT_EQ(CountJobs(Address(third)), 1);
}

INSTANTIATE_TEST_SUITE_P(AllPoints,
                         CrashTest,
                         testing::Values("store.before_commit",
                                         "store.after_commit",
                                         "coordinator.before_reply"),
                         PointName);

// The same at writes, syncs and renames, wherever they are: the coordinator dies while it starts or
// while it serves.
class CrashAtTheDiskTest : public ProcessTest, public testing::WithParamInterface<const char*> {};

TEST_P(CrashAtTheDiskTest, AtAnyVisit_TheNextStartServesAndTheRequestMakesOneJob) {
  bool before_serving = false;
  bool serving = false;
  for (const int visit : {1, 3, 7, 15}) {
    SCOPED_TRACE(absl::StrCat(GetParam(), " ", visit));
    std::filesystem::remove_all(root_ + "/data");
    const std::string request_id = RandomUuid();
    v1::Job job;
    const pid_t first = Spawn(Args(), absl::StrCat(GetParam(), "=crash@", visit));
    const std::string address = Address(first);
    const bool made = !address.empty() && Create(address, request_id, &job).ok();
    before_serving = before_serving || address.empty();
    serving = serving || (!address.empty() && Ended(first));
    kill(first, SIGKILL);
    Wait(first);

    const pid_t second = Spawn(Args());
    const std::string second_address = Address(second);
    ASSERT_NE(second_address, "") << Output();
    EXPECT_EQ(CountJobs(second_address), made ? 1 : CountJobs(second_address));
    EXPECT_TRUE(Create(second_address, request_id, &job).ok());
    EXPECT_EQ(CountJobs(second_address), 1);
    kill(second, SIGKILL);
    Wait(second);
  }
  EXPECT_TRUE(before_serving || serving) << "the point was never reached";
}

INSTANTIATE_TEST_SUITE_P(AllPoints,
                         CrashAtTheDiskTest,
                         testing::Values("io.open",
                                         "io.write",
                                         "io.sync",
                                         "io.rename",
                                         "io.sync_folder",
                                         "store.db_write",
                                         "store.db_sync"),
                         [](const auto& param) {
                           std::string name = param.param;
                           name[name.find('.')] = '_';
                           return name;
                         });

// A full disk at any write of the store: the change is refused, and what was acknowledged stays.
TEST_F(ProcessTest, FullDiskAtAWriteOfTheStore_AnswersAndExit4) {
  const pid_t pid = Spawn(Args(), "store.db_write=full@60+");
  const std::string address = Address(pid);
  ASSERT_NE(address, "") << Output();
  int made = 0;
  grpc::Status status;
  v1::Job job;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    status = Create(address, "", &job);
    made += status.ok() ? 1 : 0;
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(Wait(pid), 4);
  const pid_t next = Spawn(Args());
  EXPECT_EQ(CountJobs(Address(next)), made);
}

TEST_F(ProcessTest, ListFaultPoints_PrintsThemAndExits0) {
  EXPECT_EQ(Run({"--list-fault-points"}), 0);
  EXPECT_THAT(Output(), HasSubstr("store.db_sync"));
}

}  // namespace
}  // namespace hearth::coordinator
