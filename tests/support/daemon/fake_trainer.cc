// A trainer for the daemon's tests: speaks trainer.proto and does what the job's name says, a list
// of "verb[:argument]" separated by ';'. Being told to hang, it lives until it is killed. With the
// argument write-text it is asked for a text, whose prompt is the list.
#include <linux/keyctl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/io/message_frame.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/trainer.pb.h"

namespace hearth::worker {
namespace {

class FakeTrainer {
 public:
  explicit FakeTrainer(int fd) : fd_(fd) {}

  int Run() {
    task_ = Receive<v1::ToTrainer>().task();
    return Do(task_.spec().name());
  }

  int WriteText() { return Do(Receive<v1::WriteText>().text().prompt()); }

 private:
  int Do(const std::string& script) {
    for (const absl::string_view command : absl::StrSplit(script, ';', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(command, absl::MaxSplits(':', 1));
      const auto verb = verbs_.find(parts.first);
      HEARTH_CHECK(verb != verbs_.end(), "the script has only known verbs");
      verb->second(parts.second);
    }
    return exit_code_;
  }

  void SendBytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) {
        _exit(90);  // the agent is gone
      }
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }

  void Send(const google::protobuf::MessageLite& message) {
    std::string frame;
    HEARTH_CHECK(AppendFrame(message, frame).ok(), "what it says is short");
    SendBytes(frame);
  }

  template <typename Message>
  Message Receive() {
    Message message;
    std::array<char, 65536> buffer;
    while (true) {
      const auto next = reader_.Next(message);
      HEARTH_CHECK(next.ok(), "the agent sends whole frames");
      if (*next) {
        return message;
      }
      const ssize_t got = read(fd_, buffer.data(), buffer.size());
      if (got == 0 || (got < 0 && errno != EINTR)) {
        _exit(91);  // the agent is gone
      }
      if (got > 0) {
        reader_.Append(std::string_view(buffer.data(), static_cast<size_t>(got)));
      }
    }
  }

  void Log(const std::string& text) {
    v1::FromTrainer message;
    message.mutable_log()->set_level("info");
    message.mutable_log()->set_text(text);
    Send(message);
  }

  void Steps(const std::string& count) {
    int steps = 0;
    HEARTH_CHECK(absl::SimpleAtoi(count, &steps), "steps:N");
    for (int i = 0; i < steps; ++i) {
      v1::FromTrainer message;
      v1::StepReport& report = *message.mutable_step();
      report.set_epoch(task_.epoch());
      report.set_step(++step_);
      report.set_loss(1.0 / static_cast<double>(step_));
      report.set_tokens_per_second(1000.0);
      Send(message);
    }
  }

  void Exit(v1::ExitReason reason) {
    v1::FromTrainer message;
    message.mutable_exit()->set_reason(reason);
    message.mutable_exit()->set_step(step_);
    Send(message);
  }

  void WaitControl() {
    while (true) {
      const auto message = Receive<v1::ToTrainer>();
      if (message.has_control()) {
        Log(absl::StrCat("control ", v1::ControlBit_Name(message.control().bit())));
        return Exit(message.control().bit() == v1::CONTROL_BIT_PAUSE ? v1::EXIT_REASON_PAUSED
                                                                     : v1::EXIT_REASON_STOPPED);
      }
    }
  }

  void KvWait(const std::string& key) {
    v1::FromTrainer message;
    message.mutable_kv_wait()->set_key(key);
    Send(message);
    Log(absl::StrCat("kv ", Receive<v1::ToTrainer>().kv_value().value()));
  }

  // What comes of system calls that no trainer needs, though no capability is needed for them
  // either.
  void Calls() {
    const auto tell = [this](const char* name, int64_t result) {
      Log(absl::StrCat("call ", name, ": ", result >= 0 ? "done" : ErrnoText(errno)));
    };
    tell("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0));
    tell("unshare", syscall(SYS_unshare, 0));
    tell("io_uring_setup", syscall(SYS_io_uring_setup, 0, nullptr));
    tell("clone3", syscall(SYS_clone3, nullptr, 0));
    tell("mlock", syscall(SYS_mlock, nullptr, 0));
    tell("memfd_create", syscall(SYS_memfd_create, "x", 0));
  }

  void Grandchild(bool own_group) {
    int ready[2];
    HEARTH_CHECK(pipe(ready) == 0, "pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      signal(SIGTERM, SIG_IGN);
      if (own_group) {
        setpgid(0, 0);
      }
      close(fd_);
      static_cast<void>(!write(ready[1], "x", 1));
      Hang();
    }
    char byte = 0;
    static_cast<void>(!read(ready[0], &byte, 1));  // it ignores SIGTERM from here on
    Log(absl::StrCat("grandchild ", pid));
  }

  [[noreturn]] static void Hang() {
    while (true) {
      pause();
    }
  }

  const int fd_;
  FrameReader reader_;
  v1::Task task_;
  int64_t step_ = 0;
  int exit_code_ = 0;
  using Verb = std::function<void(const std::string&)>;
  const std::map<std::string, Verb> verbs_ = {
      {"log", [this](const std::string& text) { Log(text); }},
      {"print",
       [](const std::string& text) { static_cast<void>(!write(1, text.data(), text.size())); }},
      {"eprint",
       [](const std::string& text) { static_cast<void>(!write(2, text.data(), text.size())); }},
      {"steps", [this](const std::string& count) { Steps(count); }},
      {"finish", [this](const std::string&) { Exit(v1::EXIT_REASON_FINISHED); }},
      {"exit", [this](const std::string& code) { exit_code_ = std::atoi(code.c_str()); }},
      {"ignore_term", [](const std::string&) { signal(SIGTERM, SIG_IGN); }},
      {"grandchild", [this](const std::string&) { Grandchild(false); }},
      {"escapee", [this](const std::string&) { Grandchild(true); }},
      {"wait_control", [this](const std::string&) { WaitControl(); }},
      {"kv_wait", [this](const std::string& key) { KvWait(key); }},
      {"kv_put",
       [this](const std::string& key) {
         v1::FromTrainer message;
         message.mutable_kv_put()->set_key(key);
         message.mutable_kv_put()->set_value("value of " + key);
         Send(message);
       }},
      {"env",
       [this](const std::string& name) {
         const char* value = GetEnv(name.c_str());
         Log(absl::StrCat(name, "=", value == nullptr ? "(not set)" : value));
       }},
      {"run_info",
       [this](const std::string&) {
         v1::FromTrainer message;
         message.mutable_run_info()->set_device(task_.device());
         Send(message);
       }},
      {"task",
       [this](const std::string&) {
         Log(absl::StrCat(task_.device(), " ", task_.threads(), " ", task_.advertise_host(), " ",
                          task_.checkpoint_dir()));
       }},
      {"ids",
       [this](const std::string&) {
         Log(absl::StrCat("own session ", getsid(0) == getpid(), " own group ",
                          getpgrp() == getpid(), " fd ", fd_, " no new privileges ",
                          prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)));
       }},
      {"calls", [this](const std::string&) { Calls(); }},
      {"garbage",
       [this](const std::string&) { SendBytes(std::string_view("\xff\xff\xff\xff", 4)); }},
      {"close", [this](const std::string&) { close(fd_); }},
      {"crash", [](const std::string&) { raise(SIGKILL); }},
      {"alive",
       [this](const std::string& count) {
         for (int left = std::atoi(count.c_str()); left > 0; --left) {
           v1::FromTrainer message;
           message.mutable_alive();
           Send(message);
           poll(nullptr, 0, 100);
         }
       }},
      {"hang", [](const std::string&) { Hang(); }},
      {"write",
       [this](const std::string& text) {
         v1::WrittenText message;
         message.set_text(text);
         Send(message);
       }},
      {"end",
       [this](const std::string&) {
         v1::WrittenText message;
         message.set_end(v1::TEXT_END_TOKEN);
         Send(message);
       }},
      {"refuse",
       [this](const std::string& code) {
         v1::WrittenText message;
         message.set_code(std::atoi(code.c_str()));
         message.set_error("not so");
         Send(message);
       }},
  };
};

}  // namespace
}  // namespace hearth::worker

int main(int argc, char** argv) {
  const char* fd = hearth::GetEnv("HEARTH_TRAINER_FD");
  if (fd == nullptr) {
    std::fprintf(stderr, "hearth_fake_trainer is started by the daemon's tests\n");
    return 2;
  }
  hearth::worker::FakeTrainer trainer(std::atoi(fd));
  return argc > 1 && std::string_view(argv[1]) == "write-text" ? trainer.WriteText()
                                                               : trainer.Run();
}
