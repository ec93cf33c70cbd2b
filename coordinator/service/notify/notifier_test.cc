// Deliveries over HTTP and by commands, against a server and programs of the test.
#include "coordinator/service/notify/notifier.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/fd.h"
#include "common/fault/fault.h"
#include "common/io/env.h"
#include "coordinator/core/jobs/notifications.h"
#include "coordinator/service/notify/notify_command.h"
#include "coordinator/service/notify/webhook.h"
#include "gmock/gmock.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/coordinator/http_sink.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

absl::Time At() {
  return absl::FromUnixSeconds(1700000000);
}

absl::Status Post(const std::string& url, const WebhookOptions& options = {}) {
  const std::atomic<bool> stop{false};
  return PostWebhook(options, url, "12-0", "{}", At(), stop);
}

std::string Script(const TempDir& dir, const std::string& name, const std::string& text) {
  std::string path = absl::StrCat(dir.path(), "/", name);
  HEARTH_CHECK(Env::Real().WriteFileAtomically(path, "#!/bin/sh\n" + text + "\n").ok(),
               "the script is written");
  HEARTH_CHECK(chmod(path.c_str(), 0700) == 0, "the script can be run");
  return path;
}

absl::Status RunScript(const std::string& path, absl::Duration timeout = absl::Minutes(1)) {
  const std::atomic<bool> stop{false};
  return RunNotifyCommand(path, R"({"on": "failed"})", timeout, stop);
}

// Takes down what a Notifier says.
struct Answers {
  void Take(const DeliveryRequest& request, const absl::Status& status) {
    absl::MutexLock lock(&mu);
    said.push_back(absl::StrCat(request.id, " ", status.ok() ? "ok" : status.message()));
  }
  std::vector<std::string> Wait(size_t count) {
    absl::MutexLock lock(&mu);
    const auto enough = [this, count] { return said.size() >= count; };
    mu.Await(absl::Condition(&enough));
    return said;
  }

  absl::Mutex mu;
  std::vector<std::string> said;
};

TEST(WebhookSignature, TextIsTimeDotBody) {
  EXPECT_EQ(WebhookSignature("0123456789abcdef", At(), "{}"),
            "t=1700000000,v1=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e");
}

// A named pipe that a script and its children write into or hold open.
class Pipe {
 public:
  explicit Pipe(const TempDir& dir) : path_(dir.path() + "/pipe") {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    fd_ = Fd(open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }

  const std::string& path() const { return path_; }
  bool HasText() const { return Comes(POLLIN); }
  // Nobody holds it open any longer.
  bool IsClosed() const { return Comes(POLLHUP); }

 private:
  bool Comes(short event) const {  // NOLINT(google-runtime-int): poll's type
    pollfd ready = {fd_.get(), event, 0};
    return poll(&ready, 1, 10'000) == 1 && (ready.revents & event) != 0;
  }

  const std::string path_;
  Fd fd_;
};

// While it is there, no thread can be started: each would get a stack as large as all addresses.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    EXPECT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(PostWebhook, Accepted_SendsBodyIdAndSignature) {
  HttpSink sink;
  WebhookOptions options;
  options.secret = "0123456789abcdef";
  EXPECT_TRUE(Post(sink.url("/hook?x=1"), options).ok());
  ASSERT_EQ(sink.requests().size(), 1u);
  const std::string request = sink.requests()[0];
  EXPECT_THAT(request, HasSubstr("POST /hook?x=1 HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(request, HasSubstr("Hearth-Notification: 12-0\r\n"));
  EXPECT_THAT(
      request,
      HasSubstr(
          "Hearth-Signature: "
          "t=1700000000,v1=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\n\r\n{}"));
}

TEST(PostWebhook, NoSecret_SendsNoSignature) {
  HttpSink sink;
  EXPECT_TRUE(Post(sink.url("/")).ok());
  EXPECT_THAT(sink.requests().at(0), Not(HasSubstr("Hearth-Signature")));
}

TEST(PostWebhook, AnyOtherAnswer_IsAFailureThatQuotesNothingOfIt) {
  HttpSink sink("HTTP/1.1 500 Oops\r\nContent-Length: 6\r\n\r\nsecret");
  const absl::Status status = Post(sink.url("/"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "the receiver answered 500");
}

TEST(PostWebhook, Redirect_IsNotFollowed) {
  HttpSink target;
  HttpSink sink(absl::StrCat("HTTP/1.1 302 Found\r\nLocation: ", target.url("/x"),
                             "\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_EQ(Post(sink.url("/")).message(),
            "the receiver answered 302, and redirects are not followed");
  EXPECT_TRUE(target.requests().empty());
}

TEST(PostWebhook, OtherSchemes_AreRefused) {
  TempDir dir;
  ASSERT_TRUE(Env::Real().WriteFileAtomically(dir.path() + "/x", "x").ok());
  for (const std::string& url : {"file://" + dir.path() + "/x", std::string("ftp://127.0.0.1/x"),
                                 std::string("gopher://127.0.0.1/x")}) {
    EXPECT_THAT(std::string(Post(url).message()), HasSubstr("nsupported protocol")) << url;
  }
}

TEST(PostWebhook, LongAnswer_IsCutAndCounts) {
  HttpSink sink("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + std::string(200'000, 'x'));
  EXPECT_TRUE(Post(sink.url("/")).ok());
}

TEST(PostWebhook, NobodyListens_IsAFailure) {
  std::string url;
  {
    HttpSink sink;
    url = sink.url("/");
  }
  EXPECT_EQ(Post(url).code(), absl::StatusCode::kUnavailable);
}

TEST(RunNotifyCommand, GetsTheBodyAndNoMoreThanItsEnvironment) {
  TempDir dir;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs
  setenv("HEARTH_SECRET_OF_THE_COORDINATOR", "x", 1);
  const std::string path =
      Script(dir, "tell", absl::StrCat("cat > ", dir.path(), "/body; env > ", dir.path(), "/env"));
  EXPECT_TRUE(RunScript(path).ok());
  EXPECT_EQ(*Env::Real().ReadFile(dir.path() + "/body"), R"({"on": "failed"})");
  EXPECT_THAT(*Env::Real().ReadFile(dir.path() + "/env"), Not(HasSubstr("HEARTH_SECRET")));
}

TEST(RunNotifyCommand, Failures_SayWhatHappened) {
  TempDir dir;
  EXPECT_THAT(std::string(RunScript(Script(dir, "three", "exit 3")).message()),
              HasSubstr("three ended with code 3"));
  EXPECT_THAT(std::string(RunScript(Script(dir, "killed", "kill -9 $$")).message()),
              HasSubstr("killed was ended by signal 9"));
  EXPECT_THAT(std::string(RunScript(dir.path() + "/none").message()), HasSubstr("No such file"));
}

// Its children, too: they share its process group.
TEST(RunNotifyCommand, TooLong_IsKilledWithItsGroup) {
  TempDir dir;
  const Pipe pipe(dir);
  const absl::Status status =
      RunScript(Script(dir, "slow", absl::StrCat("exec 3> ", pipe.path(), "; sleep 1000 & wait")),
                absl::Seconds(2));  // enough to open the pipe, also on a busy machine
  EXPECT_THAT(std::string(status.message()), HasSubstr("slow did not end within 2s"));
  EXPECT_TRUE(pipe.IsClosed());
}

TEST(RunNotifyCommand, EndsWell_WhatItLeftBehindIsKilled) {
  TempDir dir;
  const Pipe pipe(dir);
  EXPECT_TRUE(
      RunScript(Script(dir, "leaves", absl::StrCat("exec 3> ", pipe.path(), "; sleep 1000 &")))
          .ok());
  EXPECT_TRUE(pipe.IsClosed());
}

TEST(Notifier, UrlsAndCommands_AreAnsweredOnceEach) {
  TempDir dir;
  HttpSink sink;
  NotifierOptions options;
  options.settings.commands["tell"] = Script(dir, "tell", "exit 0");
  Answers answers;
  Notifier notifier(options, Clock::Real(), [&](const auto& request, const auto& status) {
    answers.Take(request, status);
  });
  notifier.Send({"job", "1-0", sink.url("/"), "", "{}"});
  notifier.Send({"job", "2-0", "", "tell", "{}"});
  notifier.Send({"job", "3-0", "", "gone", "{}"});
  EXPECT_THAT(answers.Wait(3),
              testing::UnorderedElementsAre(
                  "1-0 ok", "2-0 ok", "3-0 no command gone is configured at the coordinator"));
}

TEST(Notifier, StopWithACommandThatHangs_EndsItAndSaysNothing) {
  TempDir dir;
  const Pipe pipe(dir);
  NotifierOptions options;
  options.settings.commands["hang"] = Script(
      dir, "hang", absl::StrCat("exec 3> ", pipe.path(), "; echo began >&3; sleep 1000 & wait"));
  options.stop_grace = absl::ZeroDuration();
  Answers answers;
  Notifier notifier(options, Clock::Real(), [&](const auto& request, const auto& status) {
    answers.Take(request, status);
  });
  notifier.Send({"job", "1-0", "", "hang", "{}"});
  ASSERT_TRUE(pipe.HasText());
  notifier.Stop();
  notifier.Send({"job", "2-0", "", "hang", "{}"});
  EXPECT_TRUE(answers.Wait(0).empty());
}

TEST(Notifier, AllOthersHang_OneIsToldAllTheSame) {
  TempDir dir;
  HttpSink sink;
  NotifierOptions options;
  options.settings.commands["hang"] = Script(dir, "hang", "sleep 1000 & wait");
  options.stop_grace = absl::ZeroDuration();
  Answers answers;
  Notifier notifier(options, Clock::Real(), [&](const auto& request, const auto& status) {
    answers.Take(request, status);
  });
  for (size_t i = 1; i < kDeliveriesMax; ++i) {
    notifier.Send({"job", absl::StrCat(i, "-0"), "", "hang", "{}"});
  }
  notifier.Send({"job", "99-0", sink.url("/"), "", "{}"});
  EXPECT_THAT(answers.Wait(1), testing::ElementsAre("99-0 ok"));
}

TEST(Notifier, NoThreadCanBeStarted_FailsAtOnceAndTheNextIsTold) {
  HttpSink sink;
  Answers answers;
  Notifier notifier(NotifierOptions(), Clock::Real(), [&](const auto& request, const auto& status) {
    answers.Take(request, status);
  });
  {
    const NoThreads none;
    notifier.Send({"job", "1-0", sink.url("/"), "", "{}"});
  }
  EXPECT_THAT(answers.Wait(1), testing::ElementsAre("1-0 no thread can be started for it"));
  notifier.Send({"job", "2-0", sink.url("/"), "", "{}"});
  EXPECT_THAT(answers.Wait(2)[1], "2-0 ok");
}

TEST(Notifier, NoMoreThreadsCanBeStarted_OneThatIsThereTellsIt) {
  TempDir dir;
  const std::string gate = dir.path() + "/gate";
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  HttpSink sink;
  NotifierOptions options;
  // Ends once the gate was opened and closed.
  options.settings.commands["wait"] = Script(dir, "wait", absl::StrCat("cat ", gate));
  Answers answers;
  Notifier notifier(options, Clock::Real(), [&](const auto& request, const auto& status) {
    answers.Take(request, status);
  });
  notifier.Send({"job", "1-0", "", "wait", "{}"});
  {
    const Fd opened(open(gate.c_str(), O_WRONLY | O_CLOEXEC));  // the command is under way
    ASSERT_TRUE(opened.valid());
    const NoThreads none;
    notifier.Send({"job", "2-0", sink.url("/"), "", "{}"});
    EXPECT_TRUE(answers.Wait(0).empty());
  }
  EXPECT_THAT(answers.Wait(2), testing::ElementsAre("1-0 ok", "2-0 ok"));
}

// A failure before the receiver hears of it, and one behind that: either is an error, after which
// the core tells it again.
TEST(Notifier, FaultPoints_EachFailureIsAnAnswerAndTheNextAttemptTells) {
  for (const auto& [point, told] : {std::pair("notify.send", 0), std::pair("notify.answer", 1)}) {
    SCOPED_TRACE(point);
    ASSERT_TRUE(fault::Configure(absl::StrCat(point, "=error@1")).ok());
    HttpSink sink;
    Answers answers;
    {
      Notifier notifier(
          NotifierOptions(), Clock::Real(),
          [&](const auto& request, const auto& status) { answers.Take(request, status); });
      notifier.Send({"job", "1-0", sink.url("/"), "", "{}"});
      EXPECT_THAT(answers.Wait(1)[0], HasSubstr(absl::StrCat("injected fault at ", point)));
      EXPECT_EQ(sink.requests().size(), static_cast<size_t>(told));
      notifier.Send({"job", "1-0", sink.url("/"), "", "{}"});
      EXPECT_EQ(answers.Wait(2)[1], "1-0 ok");
      EXPECT_EQ(sink.requests().size(), static_cast<size_t>(told + 1));
    }
    EXPECT_TRUE(fault::Configure("").ok());
  }
}

TEST(Notifier, MoreThanItHolds_FailsAtOnce) {
  TempDir dir;
  NotifierOptions options;
  options.settings.commands["hang"] = Script(dir, "hang", "sleep 1000 & wait");
  options.stop_grace = absl::ZeroDuration();
  options.threads_max = 1;
  Answers answers;
  Notifier notifier(options, Clock::Real(), [&](const auto& request, const auto& status) {
    answers.Take(request, status);
  });
  // One may be under way, and so many may wait.
  for (size_t i = 0; i < kDeliveriesMax + 2; ++i) {
    notifier.Send({"job", absl::StrCat(i, "-0"), "", "hang", "{}"});
  }
  EXPECT_THAT(answers.Wait(1)[0], HasSubstr("too many notifications are under way"));
}

}  // namespace
}  // namespace hearth::coordinator
