#include "kernels/formats/kept.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/core/exec.h"
#include "kernels/core/formats.h"
#include "kernels/formats/block_scale.h"

namespace hearth::kernels {
namespace {

constexpr uint32_t kMagnitude = 0x7FFFFFFF;

template <typename T>
void Keep(const T* x, int64_t count, int64_t element, const KeptInput& keep) {
  for (int64_t first = 0; first < count; first += kKeptBlock) {
    std::array<float, kKeptBlock> v{};
    uint32_t largest = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      v[i] = static_cast<float>(x[first + static_cast<int64_t>(i)]);
      largest = std::max(largest, FloatBits(v[i]) & kMagnitude);
    }
    const uint8_t scale = MxBlockScale(largest, MaxFiniteInverse(true));
    keep.scales[(element + first) / kKeptBlock] = scale;
    uint8_t* const values = keep.values + element + first;
    const float factor = InverseE8m0(scale);
    for (size_t i = 0; i < v.size(); ++i) {
      values[i] = scale == kE8m0Nan ? uint8_t{0} : EncodeE4m3(MulRn(v[i], factor));
    }
  }
}

const std::array<float, 256>& E4m3Values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> table{};
    for (size_t code = 0; code < table.size(); ++code) {
      table[code] = DecodeE4m3(static_cast<uint8_t>(code));
    }
    return table;
  }();
  return values;
}

template <typename T>
void Load(const KeptInput& kept, int64_t element, int64_t count, T* out) {
  const std::array<float, 256>& values = E4m3Values();
  for (int64_t first = 0; first < count; first += kKeptBlock) {
    const float scale = DecodeE8m0(kept.scales[(element + first) / kKeptBlock]);
    for (int64_t i = first; i < first + kKeptBlock; ++i) {
      out[i] = static_cast<T>(MulRn(values[kept.values[element + i]], scale));
    }
  }
}

}  // namespace

void KeepSpan(const float* x, int64_t count, int64_t element, const KeptInput& keep) {
  Keep(x, count, element, keep);
}
void KeepSpan(const double* x, int64_t count, int64_t element, const KeptInput& keep) {
  Keep(x, count, element, keep);
}
void LoadKeptSpan(const KeptInput& kept, int64_t element, int64_t count, float* out) {
  Load(kept, element, count, out);
}
void LoadKeptSpan(const KeptInput& kept, int64_t element, int64_t count, double* out) {
  Load(kept, element, count, out);
}

absl::Status RequireKept(const KeptInput& keep,
                         const KeptInput& kept,
                         const QuantView& quant,
                         int64_t cols,
                         const char* op) {
  if (keep.empty() && kept.empty()) {
    return absl::OkStatus();
  }
  if (!keep.empty() && (!kept.empty() || quant.columns != nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        op, ": cannot keep an input beside one that is kept already, or beside quantised columns"));
  }
  if (cols % kKeptBlock != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": an input of ", cols, " columns cannot be kept: that is no multiple of ",
                     kKeptBlock));
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels
