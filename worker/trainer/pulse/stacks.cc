#include "worker/trainer/pulse/stacks.h"

#include <execinfo.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>

#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hearth::trainer {
namespace {

constexpr int kFrames = 48;
constexpr size_t kLineBytes = 3000;
constexpr int kAnswerMs = 250;

// Between DumpStacks and the one thread that is asked. The handler writes frames and then answers;
// who answers too late finds another number in `asked` and writes nothing.
struct Slot {
  std::array<void*, kFrames> frames;
  int count = 0;
  std::atomic<pid_t> asked{0};
  int answered = eventfd(0, EFD_CLOEXEC);
};

Slot& TheSlot() {
  static Slot* const slot = new Slot;
  return *slot;
}

int Signal() {
  return SIGRTMIN + 4;
}

pid_t ThreadId() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// Async-signal-safe except for backtrace(), whose first call takes memory: PrepareStacks made it.
extern "C" void WriteStack(int /*signal*/) {
  const int error = errno;
  Slot& slot = TheSlot();
  pid_t me = ThreadId();
  // -1 says that the answer is on its way: DumpThread can then no longer take the question back.
  if (slot.asked.compare_exchange_strong(me, -1)) {
    slot.count = backtrace(slot.frames.data(), kFrames);
    const uint64_t one = 1;
    static_cast<void>(write(slot.answered, &one, sizeof(one)) == sizeof(one));
  }
  errno = error;
}

// Whether an answer came within `timeout_ms`; takes it.
bool TakeAnswer(const Slot& slot, int timeout_ms) {
  pollfd answered{slot.answered, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&answered, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  uint64_t count = 0;
  return ready == 1 && read(slot.answered, &count, sizeof(count)) == sizeof(count);
}

std::string FirstLine(pid_t thread, const char* file) {
  std::ifstream stream(absl::StrCat("/proc/self/task/", thread, "/", file));
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<pid_t> OtherThreads() {
  std::vector<pid_t> threads;
  const pid_t me = ThreadId();
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator it("/proc/self/task", error); !error && it != end;
       it.increment(error)) {
    const pid_t thread = std::atoi(it->path().filename().c_str());
    if (thread > 0 && thread != me) {
      threads.push_back(thread);
    }
  }
  return threads;
}

std::string Calls(const Slot& slot) {
  std::string line;
  std::array<char, 512> name;
  // The first two are the handler and the kernel's return from it.
  for (int i = 2; i < slot.count && line.size() < kLineBytes; ++i) {
    // A return address may be the next function's first: look one byte before it.
    void* const call = static_cast<char*>(slot.frames[static_cast<size_t>(i)]) - (i > 2 ? 1 : 0);
    const bool named = absl::Symbolize(call, name.data(), static_cast<int>(name.size()));
    absl::StrAppend(&line, line.empty() ? "" : " < ",
                    named ? absl::string_view(name.data()) : absl::string_view("?"));
  }
  return line;
}

std::string DumpThread(pid_t thread) {
  Slot& slot = TheSlot();
  TakeAnswer(slot, 0);  // one that came too late belongs to no question
  slot.asked = thread;
  std::string head = absl::StrCat("thread ", thread, " (", FirstLine(thread, "comm"), "): ");
  if (syscall(SYS_tgkill, getpid(), thread, Signal()) != 0) {
    const int error = errno;
    slot.asked = 0;
    return absl::StrCat(head, error == ESRCH ? "has ended" : "cannot be asked");
  }
  if (TakeAnswer(slot, kAnswerMs)) {
    return head + Calls(slot);
  }
  // Take the question back; if it is being answered at this very moment, take the answer.
  if (pid_t expected = thread;
      !slot.asked.compare_exchange_strong(expected, 0) && TakeAnswer(slot, kAnswerMs)) {
    return head + Calls(slot);
  }
  return absl::StrCat(head, "does not answer: it is in the kernel");
}

}  // namespace

void PrepareStacks() {
  absl::InitializeSymbolizer("hearth-trainer");
  std::array<void*, 4> frames;
  // Its first call loads a library and takes memory, which a signal handler must not.
  backtrace(frames.data(), static_cast<int>(frames.size()));
  TheSlot();
  struct sigaction action = {};
  action.sa_handler = &WriteStack;
  action.sa_flags = SA_RESTART;
  sigaction(Signal(), &action, nullptr);
}

std::vector<std::string> DumpStacks() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  std::vector<std::string> lines;
  for (const pid_t thread : OtherThreads()) {
    lines.push_back(DumpThread(thread));
  }
  return lines;
}

bool AnotherThreadRuns() {
  const std::vector<pid_t> threads = OtherThreads();
  return std::any_of(threads.begin(), threads.end(), [](pid_t thread) {
    // "TID (NAME) STATE ...", of which the name may hold anything.
    const std::string stat = FirstLine(thread, "stat");
    const size_t name_end = stat.rfind(')');
    const char state =
        name_end == std::string::npos || name_end + 2 >= stat.size() ? '?' : stat[name_end + 2];
    return state == 'R' || state == 'D';
  });
}

}  // namespace hearth::trainer
