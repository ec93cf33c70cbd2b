// A libnvidia-ml.so for tests. It reports what the file $HEARTH_FAKE_NVML says and reads that file
// at each call, so a test changes the state of a GPU by writing the file:
//   init=CODE driver=TEXT cuda=13000 count=2
//   0.uuid=GPU-a 0.name=TEXT 0.pci=TEXT 0.cc=90 0.total=BYTES 0.used=BYTES 0.reserved=BYTES
//   0.power=MILLIWATTS 0.limit= 0.limit_default= 0.energy=MILLIJOULES 0.gpu_util=PERCENT
//   0.mem_util= 0.temp= 0.sm=MEGAHERTZ 0.mem= 0.sm_max= 0.mem_max= 0.throttle=BITS 0.ecc=
//   0.ecc_corrected= 0.rows=CORRECTABLE,UNCORRECTABLE,PENDING,FAILED 0.pcie_replays=
//   0.pcie_gen= 0.pcie_width= 0.pcie_gen_max= 0.pcie_width_max= 0.field.NUMBER=
//   0.persistence= 0.procs=PID:BYTES,PID:- 0.gprocs= 0.xids=79,31 0.lost=1
// one key a line. A key that is absent is "not supported".
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "common/base/system.h"
#include "common/nvml/nvml_api.h"

namespace {

namespace api = hearth::nvml::api;
using api::Device;
using api::Return;

std::map<std::string, std::string> State() {
  std::map<std::string, std::string> state;
  const char* path = hearth::GetEnv("HEARTH_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) {
      state[line.substr(0, equals)] = line.substr(equals + 1);
    }
  }
  return state;
}

size_t Index(Device device) {
  return reinterpret_cast<size_t>(device) - 1;
}

// False: not supported.
bool Get(const std::string& key, std::string& out) {
  const auto state = State();
  const auto found = state.find(key);
  if (found == state.end()) {
    return false;
  }
  out = found->second;
  return true;
}

bool Get(Device device, const std::string& key, std::string& out) {
  return Get(std::to_string(Index(device)) + "." + key, out);
}

template <typename T>
Return Number(Device device, const std::string& key, T* out) {
  std::string text;
  if (!Get(device, key, text)) {
    return api::kNotSupported;
  }
  *out = static_cast<T>(std::strtoull(text.c_str(), nullptr, 10));
  return api::kSuccess;
}

Return Copy(const std::string& text, char* out, unsigned length) {
  if (text.size() + 1 > length) {
    return api::kInsufficientSize;
  }
  std::memcpy(out, text.c_str(), text.size() + 1);
  return api::kSuccess;
}

Return Text(Device device, const std::string& key, char* out, unsigned length) {
  std::string text;
  return Get(device, key, text) ? Copy(text, out, length) : api::kNotSupported;
}

unsigned Count() {
  std::string text;
  return Get("count", text) ? static_cast<unsigned>(std::atoi(text.c_str())) : 0;
}

Return Processes(Device device, const char* key, unsigned* count, api::ProcessInfo* out) {
  std::string text;
  if (!Get(device, key, text)) {
    return api::kNotSupported;
  }
  std::istringstream list(text);
  unsigned found = 0;
  for (std::string item; std::getline(list, item, ',');) {
    if (found < *count) {
      const std::string bytes = item.substr(item.find(':') + 1);
      out[found] = {};
      out[found].pid = static_cast<unsigned>(std::atoi(item.c_str()));
      out[found].used_bytes =
          bytes == "-" ? api::kValueNotAvailable : std::strtoull(bytes.c_str(), nullptr, 10);
    }
    ++found;
  }
  const bool fits = found <= *count;
  *count = found;
  return fits ? api::kSuccess : api::kInsufficientSize;
}

struct Events {
  Device device = nullptr;
  size_t told = 0;  // XIDs of the list that were handed out
};

}  // namespace

// NOLINTBEGIN(readability-identifier-naming, performance-no-int-to-ptr): the names are NVML's, and
// a device handle is the number of the GPU.
extern "C" {

Return nvmlInit_v2() {
  std::string text;
  return Get("init", text) ? std::atoi(text.c_str()) : api::kSuccess;
}
Return nvmlShutdown() {
  return api::kSuccess;
}
const char* nvmlErrorString(Return code) {
  return code == api::kGpuIsLost ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : "Fake error";
}
Return nvmlSystemGetDriverVersion(char* out, unsigned length) {
  std::string text;
  return Get("driver", text) ? Copy(text, out, length) : api::kNotSupported;
}
Return nvmlSystemGetCudaDriverVersion_v2(int* out) {
  std::string text;
  if (!Get("cuda", text)) {
    return api::kNotSupported;
  }
  *out = std::atoi(text.c_str());
  return api::kSuccess;
}
Return nvmlDeviceGetCount_v2(unsigned* out) {
  *out = Count();
  return api::kSuccess;
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  if (index >= Count()) {
    return api::kInvalidArgument;
  }
  *out = reinterpret_cast<Device>(static_cast<size_t>(index) + 1);
  return api::kSuccess;
}
Return nvmlDeviceGetHandleByUUID(const char* uuid, Device* out) {
  for (size_t i = 0; i < Count(); ++i) {
    std::string text;
    if (Get(std::to_string(i) + ".uuid", text) && text == uuid) {
      *out = reinterpret_cast<Device>(i + 1);
      return api::kSuccess;
    }
  }
  return api::kNotFound;
}
Return nvmlDeviceGetIndex(Device device, unsigned* out) {
  *out = static_cast<unsigned>(Index(device));
  return api::kSuccess;
}
Return nvmlDeviceGetName(Device device, char* out, unsigned length) {
  return Text(device, "name", out, length);
}
Return nvmlDeviceGetUUID(Device device, char* out, unsigned length) {
  return Text(device, "uuid", out, length);
}
Return nvmlDeviceGetPciInfo_v3(Device device, api::PciInfo* out) {
  return Text(device, "pci", out->bus_id, sizeof(out->bus_id));
}
Return nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  int both = 0;
  const Return code = Number(device, "cc", &both);
  *major = both / 10;
  *minor = both % 10;
  return code;
}
Return nvmlDeviceGetMemoryInfo(Device device, api::Memory* out) {
  std::string lost;
  if (Get(device, "lost", lost)) {
    return api::kGpuIsLost;
  }
  api::ULongLong reserved = 0;
  Number(device, "reserved", &reserved);
  const Return code = Number(device, "total", &out->total);
  Number(device, "used", &out->used);
  out->used += reserved;
  out->free = out->total - out->used;
  return code;
}
Return nvmlDeviceGetMemoryInfo_v2(Device device, api::MemoryV2* out) {
  if (out->version != api::kMemoryV2) {
    return api::kInvalidArgument;
  }
  if (Number(device, "reserved", &out->reserved) != api::kSuccess) {
    return api::kNotSupported;
  }
  Number(device, "total", &out->total);
  Number(device, "used", &out->used);
  return api::kSuccess;
}
Return nvmlDeviceGetPowerUsage(Device device, unsigned* out) {
  return Number(device, "power", out);
}
Return nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* out) {
  return Number(device, "limit", out);
}
Return nvmlDeviceGetPowerManagementDefaultLimit(Device device, unsigned* out) {
  return Number(device, "limit_default", out);
}
Return nvmlDeviceGetTotalEnergyConsumption(Device device, api::ULongLong* out) {
  return Number(device, "energy", out);
}
Return nvmlDeviceGetUtilizationRates(Device device, api::Utilization* out) {
  Number(device, "mem_util", &out->memory);
  return Number(device, "gpu_util", &out->gpu);
}
Return nvmlDeviceGetTemperature(Device device, int, unsigned* out) {
  return Number(device, "temp", out);
}
Return nvmlDeviceGetClockInfo(Device device, int type, unsigned* out) {
  return Number(device, type == api::kClockSm ? "sm" : "mem", out);
}
Return nvmlDeviceGetMaxClockInfo(Device device, int type, unsigned* out) {
  return Number(device, type == api::kClockSm ? "sm_max" : "mem_max", out);
}
// Has only the older of the two names, so that the fallback is tested.
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, api::ULongLong* out) {
  return Number(device, "throttle", out);
}
Return nvmlDeviceGetTotalEccErrors(Device device, int type, int, api::ULongLong* out) {
  return Number(device, type == api::kMemoryErrorUncorrected ? "ecc" : "ecc_corrected", out);
}
Return nvmlDeviceGetRemappedRows(Device device,
                                 unsigned* correctable,
                                 unsigned* uncorrectable,
                                 unsigned* pending,
                                 unsigned* failed) {
  std::string text;
  if (!Get(device, "rows", text)) {
    return api::kNotSupported;
  }
  std::istringstream list(text);
  for (unsigned* out : {correctable, uncorrectable, pending, failed}) {
    std::string item;
    std::getline(list, item, ',');
    *out = static_cast<unsigned>(std::atoi(item.c_str()));
  }
  return api::kSuccess;
}
Return nvmlDeviceGetPcieReplayCounter(Device device, unsigned* out) {
  return Number(device, "pcie_replays", out);
}
Return nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* out) {
  return Number(device, "pcie_gen", out);
}
Return nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* out) {
  return Number(device, "pcie_width", out);
}
Return nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* out) {
  return Number(device, "pcie_gen_max", out);
}
Return nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* out) {
  return Number(device, "pcie_width_max", out);
}
Return nvmlDeviceGetFieldValues(Device device, int count, api::FieldValue* fields) {
  for (int i = 0; i < count; ++i) {
    const std::string key = "field." + std::to_string(fields[i].field);
    api::ULongLong value = 0;
    fields[i].code = Number(device, key, &value);
    const bool is_counter = fields[i].field != api::kFieldMemoryTemperature;
    fields[i].type = is_counter ? api::kValueUnsignedLongLong : api::kValueUnsigned;
    if (is_counter) {
      fields[i].value.as_unsigned_long_long = value;
    } else {
      fields[i].value.as_unsigned = static_cast<unsigned>(value);
    }
  }
  return api::kSuccess;
}
Return nvmlDeviceGetPersistenceMode(Device device, int* out) {
  return Number(device, "persistence", out);
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device,
                                               unsigned* count,
                                               api::ProcessInfo* out) {
  return Processes(device, "procs", count, out);
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device device,
                                                unsigned* count,
                                                api::ProcessInfo* out) {
  return Processes(device, "gprocs", count, out);
}
Return nvmlEventSetCreate(api::EventSet* out) {
  *out = reinterpret_cast<api::EventSet>(new Events);
  return api::kSuccess;
}
Return nvmlEventSetFree(api::EventSet set) {
  delete reinterpret_cast<Events*>(set);
  return api::kSuccess;
}
Return nvmlDeviceRegisterEvents(Device device, api::ULongLong, api::EventSet set) {
  reinterpret_cast<Events*>(set)->device = device;
  return api::kSuccess;
}
Return nvmlEventSetWait_v2(api::EventSet set, api::EventData* out, unsigned) {
  auto& events = *reinterpret_cast<Events*>(set);
  std::string text;
  Get(events.device, "xids", text);
  std::istringstream list(text);
  std::string item;
  for (size_t i = 0; std::getline(list, item, ','); ++i) {
    if (i == events.told) {
      ++events.told;
      out->device = events.device;
      out->type = api::kEventXid;
      out->data = std::strtoull(item.c_str(), nullptr, 10);
      return api::kSuccess;
    }
  }
  return api::kTimeout;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming, performance-no-int-to-ptr)
