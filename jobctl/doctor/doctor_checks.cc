#include "jobctl/doctor/doctor_checks.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/units.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {
namespace {

constexpr int kNeededCuda = 13000;
constexpr char kNeededDriver[] = "580";
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kDiskFailed = 1 * kGiB;
constexpr int64_t kDiskWarning = 20 * kGiB;
constexpr absl::Duration kSkewWarning = absl::Seconds(1);
constexpr absl::Duration kSkewFailed = absl::Seconds(30);
constexpr double kHotCelsius = 85.0;

class Collector {
 public:
  Collector(std::string check, Findings& out) : check_(std::move(check)), out_(out) {}
  void Ok(std::string text) { Add(Verdict::kOk, std::move(text), ""); }
  void Note(std::string text, std::string remedy = "") {
    Add(Verdict::kNote, std::move(text), std::move(remedy));
  }
  void Warn(std::string text, std::string remedy) {
    Add(Verdict::kWarning, std::move(text), std::move(remedy));
  }
  void Fail(std::string text, std::string remedy) {
    Add(Verdict::kFailed, std::move(text), std::move(remedy));
  }

 private:
  void Add(Verdict verdict, std::string text, std::string remedy) {
    out_.push_back({verdict, check_, std::move(text), std::move(remedy)});
  }
  const std::string check_;
  Findings& out_;
};

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

std::string Percent(double ratio) {
  return absl::StrFormat("%.0f %%", ratio * 100.0);
}

// "0.1.0" of "0.1.0 (1a2b3c)".
std::string Plain(const std::string& version) {
  return version.substr(0, version.find(' '));
}

void CheckClock(const CoordinatorFacts& facts, Findings& out) {
  Collector clock("clock", out);
  if (!facts.version.has_time()) {
    return clock.Note("the coordinator is an older version that does not report its time");
  }
  const absl::Duration round_trip = facts.answered - facts.asked;
  const absl::Duration skew = ToTime(facts.version.time()) - (facts.asked + round_trip / 2);
  const absl::Duration size = absl::AbsDuration(skew);
  const std::string text = absl::StrFormat(
      "the coordinator's clock is %.3f s %s ours (answer after %.0f ms)",
      absl::ToDoubleSeconds(size), skew < absl::ZeroDuration() ? "behind" : "ahead of",
      absl::ToDoubleMilliseconds(round_trip));
  const std::string remedy =
      "synchronise both machines' clocks with NTP (timedatectl set-ntp true)";
  // The coordinator read its clock somewhere within the round trip: half of it is not known.
  if (size - round_trip / 2 > kSkewFailed) {
    clock.Fail(text, remedy);
  } else if (size - round_trip / 2 > kSkewWarning) {
    clock.Warn(text, remedy);
  } else {
    clock.Ok(text);
  }
}

void CheckSpace(Collector& collector, const std::string& where, int64_t free) {
  const std::string text = absl::StrCat(FormatBytes(free), " free in ", where);
  if (free < kDiskFailed) {
    collector.Fail(text,
                   "make room: soon no checkpoint or history can be written "
                   "(checkpoint.keep_last limits those of a job)");
  } else if (free < kDiskWarning) {
    collector.Warn(text, "make room, or lower checkpoint.keep_last");
  } else {
    collector.Ok(text);
  }
}

std::string PowerRemedy(int index, double watts) {
  return absl::StrFormat("sudo nvidia-smi -i %d -pl %.0f, if supply and cooling allow", index,
                         watts);
}

// Judges the GPU of a worker on another machine by its last heartbeat.
void CheckWorkerGpu(const v1::Worker& worker, Collector& collector) {
  const v1::DeviceInfo& device = worker.device();
  const v1::DeviceStatus& status = worker.device_status();
  const double limit =
      status.power_limit_watts() > 0 ? status.power_limit_watts() : device.power_limit_watts();
  // Less than a watt is a rounding of the driver, not a cap.
  if (limit > 0 && limit + 1.0 < device.power_limit_default_watts()) {
    collector.Warn(absl::StrFormat("GPU %d is capped at %.0f W, its default is %.0f W",
                                   device.index(), limit, device.power_limit_default_watts()),
                   PowerRemedy(device.index(), device.power_limit_default_watts()));
  }
  if (status.xid_errors() > 0) {
    collector.Warn(
        absl::StrCat("GPU ", device.index(), " had ", status.xid_errors(),
                     " XID error(s) since the worker started, the last was ", status.last_xid()),
        "look it up in NVIDIA's list of XID errors; dmesg has the driver's message");
  }
  if (status.ecc_errors() > 0) {
    collector.Warn(absl::StrCat("GPU ", device.index(), " has ", status.ecc_errors(),
                                " uncorrectable memory error(s)"),
                   "reset the GPU (nvidia-smi --gpu-reset); replace it if they come back");
  }
}

void CheckWorker(const v1::Worker& worker, const std::string& version, Findings& out) {
  const std::string& id = worker.worker_id();
  Collector collector(absl::StrCat("worker ", id), out);
  const std::string why = worker.reason().empty() ? "" : absl::StrCat(": ", worker.reason());
  switch (worker.state()) {
    case v1::WORKER_STATE_IDLE:
    case v1::WORKER_STATE_BUSY:
      collector.Ok(
          absl::StrCat(worker.state() == v1::WORKER_STATE_IDLE ? "idle" : "runs " + worker.job_id(),
                       ", ", worker.device().model(), " on ", worker.host(), ", ", worker.version(),
                       worker.confinement().empty() ? "" : ", trainers with ",
                       absl::StrJoin(worker.confinement(), ", ")));
      break;
    case v1::WORKER_STATE_UNHEALTHY:
      collector.Fail(absl::StrCat("unhealthy, not scheduled", why),
                     absl::StrCat("free the GPU (nvidia-smi shows what holds it) or restart the "
                                  "worker; jobctl uncordon ",
                                  id, " takes it back as it is"));
      break;
    case v1::WORKER_STATE_UNREACHABLE:
      collector.Warn(
          absl::StrCat("silent, but its job makes progress", why),
          absl::StrCat("check the network between ", worker.host(), " and the coordinator"));
      break;
    default:
      collector.Fail(absl::StrCat("not connected", why),
                     absl::StrCat("start hearth-worker on ", worker.host(),
                                  " again, or look at its log and the network"));
      // What is checked below was true when the worker was last heard of.
      return;
  }
  if (worker.cordoned()) {
    collector.Note("cordoned: gets no new jobs", absl::StrCat("jobctl uncordon ", id));
  }
  if (Plain(worker.version()) != Plain(version)) {
    collector.Warn(absl::StrCat("version ", worker.version(), ", the coordinator has ", version),
                   "install the same version everywhere");
  }
  if (worker.checkpoint_free_bytes() > 0) {
    CheckSpace(collector, worker.checkpoint_root(), worker.checkpoint_free_bytes());
  }
  if (worker.device().kind() == "cuda") {
    CheckWorkerGpu(worker, collector);
  }
}

void CheckPower(const nvml::GpuInfo& info, const nvml::GpuSample& sample, Collector& gpu) {
  const auto limit =
      sample.power_limit_watts.has_value() ? sample.power_limit_watts : info.power_limit_watts;
  if (!limit.has_value() || !info.power_limit_default_watts.has_value()) {
    return gpu.Note("reports no power limit");
  }
  const double normal = *info.power_limit_default_watts;
  if (*limit + 1.0 < normal) {
    gpu.Warn(absl::StrFormat("power limit %.0f W, %s of the default %.0f W", *limit,
                             Percent(*limit / normal), normal),
             PowerRemedy(info.index, normal));
  } else {
    gpu.Ok(absl::StrFormat("power limit %.0f W (default %.0f W), draws %.0f W", *limit, normal,
                           sample.power_watts.value_or(0.0)));
  }
}

void CheckGpuMemory(const nvml::GpuInfo& info, const nvml::GpuSample& sample, Collector& gpu) {
  if (!sample.memory_used_bytes.has_value()) {
    return;
  }
  const int64_t total = info.memory_bytes - sample.memory_reserved_bytes.value_or(0);
  const int64_t free = total - *sample.memory_used_bytes;
  const size_t processes = sample.processes.has_value() ? sample.processes->size() : 0;
  const std::string text = absl::StrCat(FormatBytes(free), " of ", FormatBytes(total), " free, ",
                                        processes, processes == 1 ? " process" : " processes");
  // The driver and idle contexts keep some memory, but far less than half of it.
  if (free < total / 2 && processes == 0) {
    gpu.Warn(text,
             "no listed process uses this memory: it belongs to another container, or to a process "
             "that did not end cleanly (nvidia-smi --gpu-reset frees it)");
  } else {
    gpu.Ok(text);
  }
}

}  // namespace

void CheckCoordinator(const CoordinatorFacts& facts,
                      const std::string& our_version,
                      Findings& out) {
  Collector collector("coordinator", out);
  const std::string text =
      absl::StrCat(facts.address, " answers, version ", facts.version.version(), " (",
                   facts.version.commit(), "), start ", facts.version.generation());
  if (Plain(facts.version.version()) != Plain(our_version)) {
    collector.Warn(absl::StrCat(text, "; jobctl is ", our_version),
                   "install the same version everywhere");
  } else {
    collector.Ok(text);
  }
  if (facts.version.isolated()) {
    collector.Fail("assumes that it is cut off: most workers fell silent together and none answers",
                   "repair the network to the workers; if they are gone, run jobctl declare-lost");
  }
  CheckClock(facts, out);
  if (facts.version.data_free_bytes() > 0) {
    CheckSpace(collector, facts.version.data_dir(), facts.version.data_free_bytes());
  }
}

void CheckWorkers(const std::vector<v1::Worker>& workers,
                  const v1::GetVersionResponse& coordinator,
                  Findings& out) {
  if (workers.empty()) {
    Collector("workers", out)
        .Fail("the coordinator knows no worker",
              "start hearth-worker on each machine that should train");
  }
  for (const v1::Worker& worker : workers) {
    CheckWorker(worker, coordinator.version(), out);
  }
}

void CheckDisk(const std::string& what,
               const std::string& path,
               const absl::StatusOr<DiskSpace>& space,
               Findings& out) {
  Collector collector(what, out);
  if (!space.ok()) {
    collector.Fail(std::string(space.status().message()),
                   absl::StrCat("make ", path, " a folder that can be written"));
  } else {
    CheckSpace(collector, path, space->free_bytes);
  }
}

void CheckNoDriver(const absl::Status& why, bool has_gpu, Findings& out) {
  Collector collector("driver", out);
  if (has_gpu) {
    collector.Fail(std::string(why.message()),
                   absl::StrCat("this machine has an NVIDIA GPU: install its driver ",
                                kNeededDriver, " or newer and load it (nvidia-smi must work)"));
  } else {
    collector.Note("no NVIDIA GPU on this machine: jobs run on the CPU here");
  }
}

void CheckDriver(const std::string& driver_version, int cuda_version, int gpus, Findings& out) {
  Collector collector("driver", out);
  const std::string text = absl::StrCat(
      driver_version.empty() ? "of unknown version" : driver_version, ", CUDA up to ",
      cuda_version == 0 ? "?" : nvml::CudaVersionText(cuda_version), ", ", gpus, " GPU(s)");
  if (cuda_version != 0 && cuda_version < kNeededCuda) {
    collector.Fail(text, absl::StrCat("CUDA ", nvml::CudaVersionText(kNeededCuda),
                                      " is needed: install driver ", kNeededDriver, " or newer"));
  } else if (gpus == 0) {
    collector.Fail(text,
                   "the driver works but shows no GPU: check the slot and its power, dmesg, "
                   "and in a container --gpus all");
  } else {
    collector.Ok(text);
  }
}

void CheckGpu(const nvml::GpuInfo& info,
              const absl::StatusOr<nvml::GpuSample>& sample,
              Findings& out) {
  Collector gpu(absl::StrCat("GPU ", info.index), out);
  if (!sample.ok()) {
    return gpu.Fail(std::string(sample.status().message()),
                    "reset it (nvidia-smi --gpu-reset) or restart the machine");
  }
  const std::string name = absl::StrFormat("%s, compute capability %d.%d, %s", info.name,
                                           info.compute_major, info.compute_minor, info.uuid);
  if (info.compute_major > 0 && info.compute_major < 8) {
    gpu.Fail(name, "too old: compute capability 8.0 (Ampere) or newer is needed");
  } else {
    gpu.Ok(name);
  }
  CheckGpuMemory(info, *sample, gpu);
  CheckPower(info, *sample, gpu);
  const std::vector<std::string> slow = nvml::SlowdownNames(sample->throttle_reasons.value_or(0));
  if (!slow.empty()) {
    gpu.Warn(absl::StrCat("clocks limited: ", absl::StrJoin(slow, ", ")),
             "jobctl doctor JOB says what it costs a job; nvidia-smi -q -d PERFORMANCE shows more");
  }
  if (sample->temperature_celsius.value_or(0.0) >= kHotCelsius) {
    gpu.Warn(absl::StrFormat("%.0f degrees", *sample->temperature_celsius), "better cooling");
  }
  if (sample->ecc_errors.value_or(0) > 0) {
    gpu.Warn(absl::StrCat(*sample->ecc_errors, " uncorrectable memory error(s)"),
             "reset the GPU (nvidia-smi --gpu-reset); replace it if they come back");
  }
  if (info.mig.value_or(false)) {
    gpu.Warn("is split into MIG instances; Hearth uses only the first",
             absl::StrCat("sudo nvidia-smi -i ", info.index, " -mig 0 for the whole GPU"));
  }
  if (!info.persistence.value_or(true)) {
    gpu.Note("persistence mode is off: the first use after a pause takes seconds",
             absl::StrCat("sudo nvidia-smi -i ", info.index, " -pm 1, or nvidia-persistenced"));
  }
}

void MergeTrainerChecks(const std::string& json, int gpus, Findings& out) {
  const auto list = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) {
    return Collector("trainer", out)
        .Fail("hearth-trainer doctor gave no list of checks",
              "run hearth-trainer doctor by hand; install the same version of both");
  }
  const auto text = [](const nlohmann::json& row, const char* key) {
    return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : "";
  };
  const auto flag = [](const nlohmann::json& row, const char* key) {
    return row.contains(key) && row[key].is_boolean() && row[key].get<bool>();
  };
  for (const nlohmann::json& row : list) {
    if (row.is_object() && gpus > 0 && text(row, "name") == "device") {
      out.push_back({Verdict::kFailed, "trainer device",
                     absl::StrCat("the driver shows ", gpus, " GPU(s), hearth-trainer uses none"),
                     "install a build with CUDA, and CUDA 13's libraries where it finds them "
                     "(HEARTH_CUDA_LIBRARIES)"});
    } else if (row.is_object()) {
      const Verdict verdict = !flag(row, "ok")    ? Verdict::kFailed
                              : flag(row, "note") ? Verdict::kNote
                                                  : Verdict::kOk;
      out.push_back({verdict, absl::StrCat("trainer ", text(row, "name")), text(row, "text"),
                     text(row, "remedy")});
    }
  }
}

}  // namespace hearth::jobctl
