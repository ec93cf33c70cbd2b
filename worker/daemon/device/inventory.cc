#include "worker/daemon/device/inventory.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/io/env.h"

namespace hearth::worker {
namespace {

// Files of /proc and /sys have no size, so they are read as streams.
std::string Slurp(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

// Value after "key :" of the first line that has it.
std::string Field(std::string_view text, std::string_view key) {
  for (absl::string_view line : absl::StrSplit(View(text), '\n')) {
    if (!absl::ConsumePrefix(&line, View(key))) {
      continue;
    }
    line = absl::StripLeadingAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, ":")) {
      return std::string(absl::StripAsciiWhitespace(line));
    }
  }
  return "";
}

std::string HostName() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const std::string full = name.data();
  const std::string host = full.substr(0, full.find('.'));
  return host.empty() ? "localhost" : host;
}

}  // namespace

std::string ParseCpuModel(std::string_view cpuinfo) {
  return Field(cpuinfo, "model name");
}

int64_t ParseMeminfo(std::string_view meminfo, std::string_view key) {
  const std::string value = Field(meminfo, key);
  int64_t kib = 0;
  return absl::SimpleAtoi(value.substr(0, value.find(' ')), &kib) ? kib * 1024 : 0;
}

HostFacts ReadHostFacts() {
  HostFacts facts;
  facts.host = HostName();
  facts.cpu_model = ParseCpuModel(Slurp("/proc/cpuinfo"));
  if (facts.cpu_model.empty()) {
    facts.cpu_model = "unknown CPU";
  }
  facts.memory_bytes = ParseMeminfo(Slurp("/proc/meminfo"), "MemTotal");
  int64_t limit = 0;
  if (absl::SimpleAtoi(Slurp("/sys/fs/cgroup/memory.max"), &limit) && limit > 0) {
    facts.memory_bytes = std::min(facts.memory_bytes, limit);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
  facts.threads =
      std::max(1, known ? CPU_COUNT(&set) : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return facts;
}

absl::Status CheckThreads(int threads) {
  if (threads < 0 || threads > 4096) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads ", threads, ": expected 1..4096, or 0 for the default"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::DeviceInfo> MakeDeviceInfo(std::string_view device,
                                              int threads,
                                              const HostFacts& facts) {
  if (device != "cpu") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", View(device), ": expected cpu, cuda:N or cuda:GPU-UUID"));
  }
  HEARTH_RETURN_IF_ERROR(CheckThreads(threads));
  v1::DeviceInfo info;
  info.set_kind("cpu");
  info.set_model(facts.cpu_model);
  info.set_memory_bytes(facts.memory_bytes);
  info.set_threads(threads == 0 ? facts.threads : threads);
  info.set_host_memory_bytes(facts.memory_bytes);
  return info;
}

absl::StatusOr<DaemonIndex> DaemonIndex::Claim(const std::string& run_dir, std::string_view kind) {
  HEARTH_RETURN_IF_ERROR(Env::Real().CreateDirs(run_dir));
  for (int index = 0; index < 1024; ++index) {
    const std::string path = absl::StrCat(run_dir, "/", View(kind), index, ".lock");
    Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!lock.valid()) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    }
    // The lock ends with the process, however that ends: none is ever left over.
    if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      return DaemonIndex(index, std::move(lock));
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat("1024 daemons use ", run_dir));
}

absl::StatusOr<DaemonIndex> DaemonIndex::ClaimGpu(const std::string& run_dir,
                                                  const std::string& uuid,
                                                  int index) {
  HEARTH_RETURN_IF_ERROR(Env::Real().CreateDirs(run_dir));
  const std::string path = absl::StrCat(run_dir, "/gpu-", uuid, ".lock");
  Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.valid()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("GPU ", uuid, " belongs to another hearth-worker on this host (", path, ")"));
  }
  return DaemonIndex(index, std::move(lock));
}

UsageSampler::Usage UsageSampler::Look(pid_t pid, double elapsed_seconds, int threads) {
  Usage usage;
  const auto stat = ReadProcessStat(pid);
  if (pid != 0 && stat.ok()) {
    const double before = pid == pid_ ? cpu_seconds_ : 0.0;
    const double used = std::max(0.0, stat->cpu_seconds - before);
    usage.resident_bytes = stat->resident_bytes;
    // The first look at a process has no earlier one to compare with.
    if (pid == pid_ && elapsed_seconds > 0.0 && threads > 0) {
      usage.utilization_ratio = std::min(1.0, used / (elapsed_seconds * threads));
    }
    pid_ = pid;
    cpu_seconds_ = stat->cpu_seconds;
    total_ += used;
  }
  usage.cpu_seconds_total = total_;
  return usage;
}

std::string SourceAddressTowards(const std::string& coordinator) {
  constexpr char kLoopback[] = "127.0.0.1";
  const size_t colon = coordinator.rfind(':');
  std::string host = coordinator.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "7070", &hints, &found) != 0) {
    return kLoopback;
  }
  std::string out = kLoopback;
  const Fd fd(socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  std::array<char, NI_MAXHOST> text{};
  // Connecting a datagram socket sends nothing; it only chooses a route.
  if (fd.valid() && connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text.data(), text.size(), nullptr,
                  0, NI_NUMERICHOST) == 0) {
    out = text.data();
  }
  freeaddrinfo(found);
  return out;
}

}  // namespace hearth::worker
