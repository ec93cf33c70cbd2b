#include "common/formats/dtype.h"

#include <cstddef>
#include <iterator>

namespace hearth::formats {
namespace {

// In the order of the enumerators.
constexpr std::string_view kNames[] = {"fp64", "fp32", "bf16", "fp16", "e4m3", "e5m2", "e2m1",
                                       "e8m0", "u8",   "u16",  "i32",  "u32",  "i64"};
static_assert(std::size(kNames) == static_cast<size_t>(DType::kI64) + 1);

}  // namespace

std::string_view DTypeName(DType dtype) {
  return kNames[static_cast<size_t>(dtype)];
}

bool ParseDType(std::string_view name, DType& dtype) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) {
      dtype = static_cast<DType>(i);
      return true;
    }
  }
  return false;
}

}  // namespace hearth::formats
