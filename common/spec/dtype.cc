#include "common/spec/dtype.h"

#include <iterator>

#include "common/base/status_macros.h"

namespace hearth::spec {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr Row kRows[] = {
    {DType::kFp32, "fp32", 32},       {DType::kBf16, "bf16", 16},
    {DType::kFp8E4M3, "fp8_e4m3", 8}, {DType::kFp8E5M2, "fp8_e5m2", 8},
    {DType::kFp4E2M1, "fp4_e2m1", 4}, {DType::kE8M0, "e8m0", 8},
};

const Row& Find(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) {
      return row;
    }
  }
  HEARTH_CHECK(false, "every DType has a row");
  return kRows[0];
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  return Find(dtype).name;
}

int DTypeBits(DType dtype) {
  return Find(dtype).bits;
}

int64_t DTypeBytes(DType dtype, int64_t elements) {
  return (elements * DTypeBits(dtype) + 7) / 8;
}

bool ParseDType(std::string_view name, DType& dtype) {
  for (const Row& row : kRows) {
    if (row.name == name) {
      dtype = row.dtype;
      return true;
    }
  }
  return false;
}

}  // namespace hearth::spec
