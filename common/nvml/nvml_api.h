// The part of NVML's C interface that is used here, as NVIDIA documents it (NVML API reference,
// versions of the functions as of driver 450 and later). Only nvml.cc and the tests' library
// include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::nvml::api {

using Device = struct DeviceOpaque*;
using EventSet = struct EventSetOpaque*;
using Return = int;
// NOLINTBEGIN(google-runtime-int): the types of NVML's interface
using ULong = unsigned long;
using ULongLong = unsigned long long;
using LongLong = long long;
// NOLINTEND(google-runtime-int)

inline constexpr Return kSuccess = 0;
inline constexpr Return kInvalidArgument = 2;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNotFound = 6;
inline constexpr Return kInsufficientSize = 7;
inline constexpr Return kTimeout = 10;
inline constexpr Return kGpuIsLost = 15;
inline constexpr Return kResetRequired = 16;

inline constexpr int kClockSm = 1;
inline constexpr int kClockMemory = 2;
inline constexpr int kTemperatureGpu = 0;
inline constexpr int kMemoryErrorCorrected = 0;
inline constexpr int kMemoryErrorUncorrected = 1;
inline constexpr int kVolatileEcc = 0;
inline constexpr ULongLong kEventXid = 8;
inline constexpr ULongLong kValueNotAvailable = ~0ULL;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct Memory {
  ULongLong total;
  ULongLong free;
  ULongLong used;  // includes what is reserved
};

struct MemoryV2 {
  unsigned version;
  ULongLong total;
  ULongLong reserved;
  ULongLong free;
  ULongLong used;  // without what is reserved
};
static_assert(sizeof(MemoryV2) == 40);
inline constexpr unsigned kMemoryV2 = static_cast<unsigned>(sizeof(MemoryV2)) | (2U << 24);

struct Utilization {
  unsigned gpu;  // percent
  unsigned memory;
};

// Numbers of fields that nvmlDeviceGetFieldValues reads.
inline constexpr unsigned kFieldMemoryTemperature = 82;
inline constexpr unsigned kFieldPcieSentBytes = 197;
inline constexpr unsigned kFieldPcieReceivedBytes = 198;

enum ValueType : int {
  kValueDouble = 0,
  kValueUnsigned = 1,
  kValueUnsignedLong = 2,
  kValueUnsignedLongLong = 3,
  kValueSignedLongLong = 4,
  kValueSigned = 5,
};

struct FieldValue {
  unsigned field;
  unsigned scope;
  LongLong timestamp_us;
  LongLong latency_us;
  int type;  // ValueType
  Return code;
  union {
    double as_double;
    unsigned as_unsigned;
    ULong as_unsigned_long;
    ULongLong as_unsigned_long_long;
    LongLong as_signed_long_long;
    int as_signed;
  } value;
};
static_assert(sizeof(FieldValue) == 40);

struct ProcessInfo {
  unsigned pid;
  ULongLong used_bytes;  // kValueNotAvailable = not told
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

struct EventData {
  Device device;
  ULongLong type;
  ULongLong data;  // of kEventXid: the XID
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(EventData) == 32);

}  // namespace hearth::nvml::api
