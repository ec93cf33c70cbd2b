#include "common/nvml/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/nvml/nvml_api.h"

namespace hearth::nvml {
namespace {

using api::Device;
using api::Return;

struct ThrottleReason {
  uint64_t bit;
  const char* name;
};
constexpr ThrottleReason kThrottleReasons[] = {
    {0x1, "gpu_idle"},
    {0x2, "applications_clocks_setting"},
    {0x4, "sw_power_cap"},
    {0x8, "hw_slowdown"},
    {0x10, "sync_boost"},
    {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake_slowdown"},
    {0x100, "display_clock_setting"},
};
constexpr uint64_t kGpuIdle = 0x1;

// Functions by their names in the library; one that the library lacks is null. Those of the first
// block are required.
struct Functions {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  Return (*count)(unsigned*) = nullptr;
  Return (*by_index)(unsigned, Device*) = nullptr;
  Return (*by_uuid)(const char*, Device*) = nullptr;
  Return (*uuid)(Device, char*, unsigned) = nullptr;
  Return (*memory)(Device, api::Memory*) = nullptr;

  const char* (*error_string)(Return) = nullptr;
  Return (*driver_version)(char*, unsigned) = nullptr;
  Return (*cuda_version)(int*) = nullptr;
  Return (*index)(Device, unsigned*) = nullptr;
  Return (*name)(Device, char*, unsigned) = nullptr;
  Return (*pci)(Device, api::PciInfo*) = nullptr;
  Return (*compute_capability)(Device, int*, int*) = nullptr;
  Return (*memory_v2)(Device, api::MemoryV2*) = nullptr;
  Return (*power)(Device, unsigned*) = nullptr;
  Return (*power_limit)(Device, unsigned*) = nullptr;
  Return (*power_limit_default)(Device, unsigned*) = nullptr;
  Return (*energy)(Device, api::ULongLong*) = nullptr;
  Return (*utilization)(Device, api::Utilization*) = nullptr;
  Return (*temperature)(Device, int, unsigned*) = nullptr;
  Return (*clock)(Device, int, unsigned*) = nullptr;
  Return (*clock_max)(Device, int, unsigned*) = nullptr;
  Return (*throttle)(Device, api::ULongLong*) = nullptr;
  Return (*ecc)(Device, int, int, api::ULongLong*) = nullptr;
  Return (*remapped_rows)(Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  Return (*pcie_replays)(Device, unsigned*) = nullptr;
  Return (*pcie_generation)(Device, unsigned*) = nullptr;
  Return (*pcie_width)(Device, unsigned*) = nullptr;
  Return (*pcie_generation_max)(Device, unsigned*) = nullptr;
  Return (*pcie_width_max)(Device, unsigned*) = nullptr;
  Return (*field_values)(Device, int, api::FieldValue*) = nullptr;
  Return (*compute_processes)(Device, unsigned*, api::ProcessInfo*) = nullptr;
  Return (*graphics_processes)(Device, unsigned*, api::ProcessInfo*) = nullptr;
  Return (*persistence)(Device, int*) = nullptr;
  Return (*mig)(Device, unsigned*, unsigned*) = nullptr;
  Return (*event_set_create)(api::EventSet*) = nullptr;
  Return (*event_set_free)(api::EventSet) = nullptr;
  Return (*event_register)(Device, api::ULongLong, api::EventSet) = nullptr;
  Return (*event_wait)(api::EventSet, api::EventData*, unsigned) = nullptr;
};

template <typename Function>
bool Load(void* library, Function& function, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function != nullptr) {
      return true;
    }
  }
  return false;
}

// The name of a function that is needed and missing, or null.
const char* LoadAll(void* lib, Functions& f) {
  const std::pair<bool, const char*> needed[] = {
      {Load(lib, f.init, {"nvmlInit_v2"}), "nvmlInit_v2"},
      {Load(lib, f.shutdown, {"nvmlShutdown"}), "nvmlShutdown"},
      {Load(lib, f.count, {"nvmlDeviceGetCount_v2"}), "nvmlDeviceGetCount_v2"},
      {Load(lib, f.by_index, {"nvmlDeviceGetHandleByIndex_v2"}), "nvmlDeviceGetHandleByIndex_v2"},
      {Load(lib, f.by_uuid, {"nvmlDeviceGetHandleByUUID"}), "nvmlDeviceGetHandleByUUID"},
      {Load(lib, f.uuid, {"nvmlDeviceGetUUID"}), "nvmlDeviceGetUUID"},
      {Load(lib, f.memory, {"nvmlDeviceGetMemoryInfo"}), "nvmlDeviceGetMemoryInfo"},
  };
  for (const auto& [found, name] : needed) {
    if (!found) {
      return name;
    }
  }
  Load(lib, f.error_string, {"nvmlErrorString"});
  Load(lib, f.driver_version, {"nvmlSystemGetDriverVersion"});
  Load(lib, f.cuda_version,
       {"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"});
  Load(lib, f.index, {"nvmlDeviceGetIndex"});
  Load(lib, f.name, {"nvmlDeviceGetName"});
  Load(lib, f.pci, {"nvmlDeviceGetPciInfo_v3"});
  Load(lib, f.compute_capability, {"nvmlDeviceGetCudaComputeCapability"});
  Load(lib, f.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
  Load(lib, f.power, {"nvmlDeviceGetPowerUsage"});
  Load(lib, f.power_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
  Load(lib, f.power_limit_default, {"nvmlDeviceGetPowerManagementDefaultLimit"});
  Load(lib, f.energy, {"nvmlDeviceGetTotalEnergyConsumption"});
  Load(lib, f.utilization, {"nvmlDeviceGetUtilizationRates"});
  Load(lib, f.temperature, {"nvmlDeviceGetTemperature"});
  Load(lib, f.clock, {"nvmlDeviceGetClockInfo"});
  Load(lib, f.clock_max, {"nvmlDeviceGetMaxClockInfo"});
  Load(lib, f.throttle,
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  Load(lib, f.ecc, {"nvmlDeviceGetTotalEccErrors"});
  Load(lib, f.remapped_rows, {"nvmlDeviceGetRemappedRows"});
  Load(lib, f.pcie_replays, {"nvmlDeviceGetPcieReplayCounter"});
  Load(lib, f.pcie_generation, {"nvmlDeviceGetCurrPcieLinkGeneration"});
  Load(lib, f.pcie_width, {"nvmlDeviceGetCurrPcieLinkWidth"});
  Load(lib, f.pcie_generation_max, {"nvmlDeviceGetMaxPcieLinkGeneration"});
  Load(lib, f.pcie_width_max, {"nvmlDeviceGetMaxPcieLinkWidth"});
  Load(lib, f.field_values, {"nvmlDeviceGetFieldValues"});
  Load(lib, f.compute_processes, {"nvmlDeviceGetComputeRunningProcesses_v3"});
  Load(lib, f.graphics_processes, {"nvmlDeviceGetGraphicsRunningProcesses_v3"});
  Load(lib, f.persistence, {"nvmlDeviceGetPersistenceMode"});
  Load(lib, f.mig, {"nvmlDeviceGetMigMode"});
  Load(lib, f.event_set_create, {"nvmlEventSetCreate"});
  Load(lib, f.event_set_free, {"nvmlEventSetFree"});
  Load(lib, f.event_register, {"nvmlDeviceRegisterEvents"});
  Load(lib, f.event_wait, {"nvmlEventSetWait_v2"});
  return nullptr;
}

std::string ErrorText(const Functions& f, Return code) {
  const char* text = f.error_string == nullptr ? nullptr : f.error_string(code);
  return absl::StrCat(text == nullptr ? "error" : text, " (NVML ", code, ")");
}

// Calls a function that may be absent, or not supported by this GPU.
template <typename Function, typename... Arguments>
bool Ask(Function function, Arguments... arguments) {
  return function != nullptr && function(arguments...) == api::kSuccess;
}

// The value of a "get one number" function times `unit`.
template <typename Raw, typename Function>
std::optional<double> Number(Function function, Device device, double unit) {
  Raw raw = 0;
  return Ask(function, device, &raw) ? std::optional<double>(static_cast<double>(raw) * unit)
                                     : std::nullopt;
}

template <typename Function>
std::optional<int> Count(Function function, Device device) {
  unsigned raw = 0;
  return Ask(function, device, &raw) ? std::optional<int>(static_cast<int>(raw)) : std::nullopt;
}

// Absent when the GPU does not report it, or reports it in a type that we do not know.
std::optional<double> FieldNumber(const api::FieldValue& field) {
  if (field.code != api::kSuccess) {
    return std::nullopt;
  }
  switch (field.type) {
    case api::kValueDouble:
      return field.value.as_double;
    case api::kValueUnsigned:
      return field.value.as_unsigned;
    case api::kValueUnsignedLong:
      return static_cast<double>(field.value.as_unsigned_long);
    case api::kValueUnsignedLongLong:
      return static_cast<double>(field.value.as_unsigned_long_long);
    case api::kValueSignedLongLong:
      return static_cast<double>(field.value.as_signed_long_long);
    case api::kValueSigned:
      return field.value.as_signed;
    default:
      return std::nullopt;
  }
}

template <typename Function>
std::optional<double> Clock(Function function, Device device, int type) {
  unsigned megahertz = 0;
  return Ask(function, device, type, &megahertz) ? std::optional<double>(megahertz * 1e6)
                                                 : std::nullopt;
}

template <typename Function>
std::string Text(Function function, Device device) {
  std::array<char, 128> text{};
  return Ask(function, device, text.data(), static_cast<unsigned>(text.size() - 1)) ? text.data()
                                                                                    : "";
}

class RealGpu : public Gpu {
 public:
  RealGpu(const Functions& f, Device device) : f_(f), device_(device) {
    ReadInfo();
    WatchXids();
  }
  ~RealGpu() override {
    if (events_ != nullptr && f_.event_set_free != nullptr) {
      f_.event_set_free(events_);
    }
  }
  RealGpu(const RealGpu&) = delete;
  RealGpu& operator=(const RealGpu&) = delete;

  const GpuInfo& info() const override { return info_; }

  std::optional<double> EnergyJoules() override {
    return Number<api::ULongLong>(f_.energy, device_, 1e-3);
  }

  absl::StatusOr<GpuSample> Sample() override {
    GpuSample sample;
    HEARTH_RETURN_IF_ERROR(ReadMemory(sample));
    sample.power_watts = Number<unsigned>(f_.power, device_, 1e-3);
    sample.power_limit_watts = Number<unsigned>(f_.power_limit, device_, 1e-3);
    sample.energy_joules = EnergyJoules();
    if (api::Utilization used{}; Ask(f_.utilization, device_, &used)) {
      sample.utilization_ratio = used.gpu / 100.0;
      sample.memory_utilization_ratio = used.memory / 100.0;
    }
    if (unsigned degrees = 0; Ask(f_.temperature, device_, api::kTemperatureGpu, &degrees)) {
      sample.temperature_celsius = degrees;
    }
    sample.sm_clock_hertz = Clock(f_.clock, device_, api::kClockSm);
    sample.memory_clock_hertz = Clock(f_.clock, device_, api::kClockMemory);
    if (api::ULongLong reasons = 0; Ask(f_.throttle, device_, &reasons)) {
      sample.throttle_reasons = reasons;
    }
    ReadErrors(sample);
    ReadLink(sample);
    ReadProcesses(sample);
    ReadXids(sample);
    return sample;
  }

 private:
  void ReadInfo() {
    unsigned index = 0;
    info_.index = Ask(f_.index, device_, &index) ? static_cast<int>(index) : 0;
    info_.name = Text(f_.name, device_);
    info_.uuid = Text(f_.uuid, device_);
    if (api::PciInfo pci{}; Ask(f_.pci, device_, &pci)) {
      pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
      info_.pci_bus_id = pci.bus_id;
    }
    if (!Ask(f_.compute_capability, device_, &info_.compute_major, &info_.compute_minor)) {
      info_.compute_major = info_.compute_minor = 0;
    }
    if (api::Memory memory{}; Ask(f_.memory, device_, &memory)) {
      info_.memory_bytes = static_cast<int64_t>(memory.total);
    }
    info_.power_limit_watts = Number<unsigned>(f_.power_limit, device_, 1e-3);
    info_.power_limit_default_watts = Number<unsigned>(f_.power_limit_default, device_, 1e-3);
    info_.sm_clock_max_hertz = Clock(f_.clock_max, device_, api::kClockSm);
    info_.memory_clock_max_hertz = Clock(f_.clock_max, device_, api::kClockMemory);
    info_.pcie_generation_max = Count(f_.pcie_generation_max, device_);
    info_.pcie_width_max = Count(f_.pcie_width_max, device_);
    if (int enabled = 0; Ask(f_.persistence, device_, &enabled)) {
      info_.persistence = enabled != 0;
    }
    if (unsigned current = 0, pending = 0; Ask(f_.mig, device_, &current, &pending)) {
      info_.mig = current != 0;
    }
  }

  // Without the right to listen there are no XIDs; the rest works.
  void WatchXids() {
    if (f_.event_wait == nullptr || !Ask(f_.event_set_create, &events_)) {
      return;
    }
    if (!Ask(f_.event_register, device_, api::kEventXid, events_)) {
      Ask(f_.event_set_free, events_);
      events_ = nullptr;
    }
  }

  // This call also shows whether the GPU still answers.
  absl::Status ReadMemory(GpuSample& sample) {
    api::Memory memory{};
    const Return code = f_.memory(device_, &memory);
    if (code == api::kGpuIsLost || code == api::kResetRequired) {
      return absl::UnavailableError(
          absl::StrCat("GPU ", info_.index, " (", info_.uuid, "): ", ErrorText(f_, code)));
    }
    if (code == api::kSuccess) {
      sample.memory_total_bytes = static_cast<int64_t>(memory.total);
      sample.memory_used_bytes = static_cast<int64_t>(memory.used);
    }
    // The older call counts what the driver keeps for itself as used; this one tells it apart.
    api::MemoryV2 v2{};
    v2.version = api::kMemoryV2;
    if (Ask(f_.memory_v2, device_, &v2)) {
      sample.memory_used_bytes = static_cast<int64_t>(v2.used);
      sample.memory_reserved_bytes = static_cast<int64_t>(v2.reserved);
    }
    return absl::OkStatus();
  }

  std::optional<int64_t> EccErrors(int type) {
    api::ULongLong errors = 0;
    return Ask(f_.ecc, device_, type, api::kVolatileEcc, &errors)
               ? std::optional<int64_t>(static_cast<int64_t>(errors))
               : std::nullopt;
  }

  void ReadErrors(GpuSample& sample) {
    sample.ecc_errors = EccErrors(api::kMemoryErrorUncorrected);
    sample.ecc_corrected_errors = EccErrors(api::kMemoryErrorCorrected);
    unsigned correctable = 0;
    unsigned uncorrectable = 0;
    unsigned pending = 0;
    unsigned failed = 0;
    if (Ask(f_.remapped_rows, device_, &correctable, &uncorrectable, &pending, &failed)) {
      sample.remapped_rows = {correctable, uncorrectable, pending != 0, failed != 0};
    }
  }

  // The counters of bytes take a fraction of a millisecond; nvmlDeviceGetPcieThroughput, which
  // older GPUs have instead, measures for 20 ms and is not asked.
  void ReadLink(GpuSample& sample) {
    sample.pcie_replays = Count(f_.pcie_replays, device_);
    sample.pcie_generation = Count(f_.pcie_generation, device_);
    sample.pcie_width = Count(f_.pcie_width, device_);
    std::array<api::FieldValue, 3> fields{};
    fields[0].field = api::kFieldPcieSentBytes;
    fields[1].field = api::kFieldPcieReceivedBytes;
    fields[2].field = api::kFieldMemoryTemperature;
    for (api::FieldValue& field : fields) {
      field.code = api::kNotSupported;
    }
    if (!Ask(f_.field_values, device_, static_cast<int>(fields.size()), fields.data())) {
      return;
    }
    sample.pcie_sent_bytes = FieldNumber(fields[0]);
    sample.pcie_received_bytes = FieldNumber(fields[1]);
    sample.memory_temperature_celsius = FieldNumber(fields[2]);
  }

  template <typename Function>
  bool AppendProcesses(Function function, std::vector<GpuProcess>& out) {
    if (function == nullptr) {
      return false;
    }
    std::vector<api::ProcessInfo> found(64);
    auto count = static_cast<unsigned>(found.size());
    Return code = function(device_, &count, found.data());
    for (int tries = 0; code == api::kInsufficientSize && tries < 3; ++tries) {
      // More processes may have come since the count.
      found.resize(static_cast<size_t>(count) + 16);
      count = static_cast<unsigned>(found.size());
      code = function(device_, &count, found.data());
    }
    if (code != api::kSuccess) {
      return false;
    }
    for (unsigned i = 0; i < count && i < found.size(); ++i) {
      const auto pid = static_cast<pid_t>(found[i].pid);
      const bool known = std::any_of(out.begin(), out.end(),
                                     [pid](const GpuProcess& other) { return other.pid == pid; });
      if (!known) {
        GpuProcess& process = out.emplace_back();
        process.pid = pid;
        if (found[i].used_bytes != api::kValueNotAvailable) {
          process.used_bytes = static_cast<int64_t>(found[i].used_bytes);
        }
      }
    }
    return true;
  }

  void ReadProcesses(GpuSample& sample) {
    std::vector<GpuProcess> processes;
    const bool compute = AppendProcesses(f_.compute_processes, processes);
    // A process that computes and draws is in both lists with the same figure.
    AppendProcesses(f_.graphics_processes, processes);
    if (compute) {
      sample.processes = std::move(processes);
    }
  }

  void ReadXids(GpuSample& sample) {
    constexpr int kMaxPerSample = 64;
    api::EventData event{};
    for (int i = 0; i < kMaxPerSample && events_ != nullptr &&
                    f_.event_wait(events_, &event, 0) == api::kSuccess;
         ++i) {
      if (event.type == api::kEventXid) {
        sample.xids.push_back(event.data);
      }
    }
  }

  const Functions& f_;
  const Device device_;
  GpuInfo info_;
  api::EventSet events_ = nullptr;
};

class RealNvml : public Nvml {
 public:
  // `library` is a handle of dlopen, initialised.
  RealNvml(void* library, const Functions& functions) : library_(library), f_(functions) {
    std::array<char, 128> text{};
    if (Ask(f_.driver_version, text.data(), static_cast<unsigned>(text.size() - 1))) {
      driver_version_ = text.data();
    }
    if (!Ask(f_.cuda_version, &cuda_version_)) {
      cuda_version_ = 0;
    }
  }
  ~RealNvml() override {
    f_.shutdown();
    dlclose(library_);
  }
  RealNvml(const RealNvml&) = delete;
  RealNvml& operator=(const RealNvml&) = delete;

  const std::string& driver_version() const override { return driver_version_; }
  int cuda_version() const override { return cuda_version_; }

  absl::StatusOr<int> Count() override {
    unsigned count = 0;
    if (const Return code = f_.count(&count); code != api::kSuccess) {
      return absl::UnavailableError(ErrorText(f_, code));
    }
    return static_cast<int>(count);
  }

  absl::StatusOr<std::unique_ptr<Gpu>> ByIndex(int index) override {
    Device device = nullptr;
    const Return code = f_.by_index(static_cast<unsigned>(index), &device);
    return Open(code, device, absl::StrCat("no GPU ", index));
  }

  absl::StatusOr<std::unique_ptr<Gpu>> ByUuid(const std::string& uuid) override {
    Device device = nullptr;
    const Return code = f_.by_uuid(uuid.c_str(), &device);
    return Open(code, device, absl::StrCat("no GPU ", uuid));
  }

 private:
  absl::StatusOr<std::unique_ptr<Gpu>> Open(Return code, Device device, std::string_view missing) {
    const absl::string_view what(missing.data(), missing.size());
    if (code == api::kInvalidArgument || code == api::kNotFound) {
      return absl::NotFoundError(what);
    }
    if (code != api::kSuccess) {
      return absl::UnavailableError(absl::StrCat(what, ": ", ErrorText(f_, code)));
    }
    return std::make_unique<RealGpu>(f_, device);
  }

  void* const library_;
  const Functions f_;
  std::string driver_version_;
  int cuda_version_ = 0;
};

}  // namespace

std::vector<std::string> ThrottleReasonNames(uint64_t reasons) {
  std::vector<std::string> names;
  for (const ThrottleReason& reason : kThrottleReasons) {
    if ((reasons & reason.bit) != 0) {
      names.emplace_back(reason.name);
      reasons &= ~reason.bit;
    }
  }
  if (reasons != 0) {
    names.push_back(absl::StrFormat("unknown_0x%x", reasons));
  }
  return names;
}

std::vector<std::string> SlowdownNames(uint64_t reasons) {
  return ThrottleReasonNames(reasons & ~kGpuIdle);
}

std::vector<std::string> AllThrottleReasons() {
  std::vector<std::string> names;
  for (const ThrottleReason& reason : kThrottleReasons) {
    names.emplace_back(reason.name);
  }
  return names;
}

bool IsFatalXid(uint64_t xid) {
  // 79: fell off the bus. 95: uncontained memory error. 119, 120: firmware (GSP) does not answer.
  // 140: uncorrectable memory error that needs a reset. 143: initialisation failed.
  constexpr uint64_t kFatal[] = {79, 95, 119, 120, 140, 143};
  return std::find(std::begin(kFatal), std::end(kFatal), xid) != std::end(kFatal);
}

std::string DefaultLibrary() {
  const char* given = GetEnv("HEARTH_NVML_LIBRARY");
  return given == nullptr || *given == '\0' ? "libnvidia-ml.so.1" : given;
}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one a thread
    return absl::NotFoundError(
        absl::StrCat("no NVIDIA driver here: ", why == nullptr ? library : why));
  }
  Functions functions;
  if (const char* missing = LoadAll(handle, functions); missing != nullptr) {
    dlclose(handle);
    return absl::UnimplementedError(
        absl::StrCat(library, " has no ", missing, ": the driver is too old"));
  }
  // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): LoadAll has found `init`
  if (const Return code = functions.init(); code != api::kSuccess) {
    const std::string text = ErrorText(functions, code);
    dlclose(handle);
    return absl::UnavailableError(absl::StrCat(library, ": ", text));
  }
  return std::make_unique<RealNvml>(handle, functions);
}

std::string CudaVersionText(int cuda_version) {
  return cuda_version <= 0 ? "" : absl::StrCat(cuda_version / 1000, ".", cuda_version % 1000 / 10);
}

}  // namespace hearth::nvml
