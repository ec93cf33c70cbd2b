// Errors of a GPU, its driver or its libraries. A mark tells them from other internal errors, such
// as those of files, so that a device is blamed only for what it did. Built with CUDA and without.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace hearth::kernels {

inline constexpr char kDeviceErrorMark[] = "hearth/device_error";

// `status`, marked; Annotate() keeps the mark. OK stays as it is.
inline absl::Status MarkDeviceError(absl::Status status) {
  status.SetPayload(kDeviceErrorMark, absl::Cord());
  return status;
}
inline absl::Status DeviceError(const std::string& text) {
  return MarkDeviceError(absl::InternalError(text));
}
inline bool IsDeviceError(const absl::Status& status) {
  return status.GetPayload(kDeviceErrorMark).has_value();
}

}  // namespace hearth::kernels
