#include "common/io/available_memory.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace hearth {
namespace {

// A number in the line of `text` that begins with `key`; -1: none.
int64_t NumberAfter(absl::string_view text, absl::string_view key) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, key)) {
      const std::vector<absl::string_view> words =
          absl::StrSplit(line.substr(key.size()), ' ', absl::SkipEmpty());
      int64_t value = 0;
      return !words.empty() && absl::SimpleAtoi(words[0], &value) ? value : -1;
    }
  }
  return -1;
}

}  // namespace

int64_t AvailableMemory(Env& env) {
  constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  const std::string machine = env.ReadFile("/proc/meminfo").value_or("");
  const int64_t kilobytes = NumberAfter(machine, "MemAvailable:");
  const int64_t available = kilobytes < 0 ? kUnlimited : kilobytes * 1024;
  const std::string group = "/sys/fs/cgroup/memory.";
  int64_t most = 0;
  int64_t used = 0;
  // "max" is no number: the group has no limit.
  if (!absl::SimpleAtoi(env.ReadFile(group + "max").value_or(""), &most) ||
      !absl::SimpleAtoi(env.ReadFile(group + "current").value_or(""), &used)) {
    return available;
  }
  const int64_t cache =
      std::max<int64_t>(0, NumberAfter(env.ReadFile(group + "stat").value_or(""), "inactive_file"));
  return std::min(available, std::max<int64_t>(0, most - used + cache));
}

}  // namespace hearth
