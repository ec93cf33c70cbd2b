#include "worker/trainer/pulse/stacks.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace hearth::trainer {

// ThreadSanitizer holds signals back while a thread is in a library that it does not know, as
// Abseil's; from pthread_cond_wait it lets them through.
struct Gate {
  std::mutex mu;
  std::condition_variable changed;
  bool open = false;
};

// Not static: its name is looked for.
__attribute__((noinline)) bool WaitInANamedFunction(Gate& gate) {
  std::unique_lock lock(gate.mu);
  gate.changed.wait(lock, [&gate] { return gate.open; });
  return gate.open;  // no tail call: its frame stays
}

namespace {

class NamedThread {
 public:
  NamedThread() : thread_([this] { Run(); }) {
    while (!ready_) {
      std::this_thread::yield();
    }
  }
  ~NamedThread() {
    {
      const std::lock_guard lock(gate_.mu);
      gate_.open = true;
    }
    gate_.changed.notify_all();
    thread_.join();
  }

 private:
  void Run() {
    pthread_setname_np(pthread_self(), "the waiting one");
    ready_ = true;
    WaitInANamedFunction(gate_);
  }

  std::atomic<bool> ready_{false};
  Gate gate_;
  std::thread thread_;
};

TEST(StacksTest, DumpStacks_ThreadThatWaits_ItsNameAndItsCalls) {
  PrepareStacks();
  const NamedThread waits;
  for (int i = 0; i < 20;) {  // again and again: an answer never belongs to another question
    const std::vector<std::string> lines = DumpStacks();
    const auto line = std::find_if(lines.begin(), lines.end(), [](const std::string& text) {
      return absl::StrContains(text, "(the waiting one)");
    });
    ASSERT_NE(line, lines.end()) << absl::StrJoin(lines, "\n");
    if (absl::StrContains(*line, "does not answer")) {
      continue;  // a busy machine
    }
    ++i;
    EXPECT_TRUE(absl::StrContains(*line, "WaitInANamedFunction")) << *line;
    EXPECT_TRUE(absl::StrContains(*line, " < ")) << *line;
  }
}

TEST(StacksTest, AnotherThreadRuns_ThreadThatSpins_IsSeen) {
  std::atomic<bool> over{false};
  std::thread spins([&over] {
    while (!over) {
    }
  });
  while (!AnotherThreadRuns()) {
    std::this_thread::yield();
  }
  over = true;
  spins.join();
}

TEST(StacksTest, AnotherThreadRuns_EveryOtherThreadSleeps_IsFalseSoon) {
  const NamedThread waits;  // asleep once it waits
  while (AnotherThreadRuns()) {
    std::this_thread::yield();
  }
}

}  // namespace
}  // namespace hearth::trainer
