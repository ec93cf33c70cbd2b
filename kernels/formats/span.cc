#include "kernels/formats/span.h"

#include "kernels/core/cpu.h"
#include "kernels/core/formats.h"

namespace hearth::kernels {
namespace {

HEARTH_SIMD void RoundBf16Span(float* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    data[i] = RoundBf16(data[i]);
  }
}

HEARTH_SIMD void EncodeBf16Span(const float* in, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = EncodeBf16(in[i]);
  }
}

template <typename T>
bool EncodeAny(const T* in, int64_t count, DType format, void* out) {
  switch (format) {
    case DType::kF32:
      std::copy(in, in + count, static_cast<float*>(out));
      return true;
    case DType::kF64:
      std::copy(in, in + count, static_cast<double*>(out));
      return true;
    case DType::kBF16:
      std::transform(in, in + count, static_cast<uint16_t*>(out),
                     [](T v) { return EncodeBf16(static_cast<float>(v)); });
      return true;
    case DType::kF16:
      std::transform(in, in + count, static_cast<uint16_t*>(out),
                     [](T v) { return EncodeF16(static_cast<float>(v)); });
      return true;
    case DType::kE4M3:
      std::transform(in, in + count, static_cast<uint8_t*>(out),
                     [](T v) { return EncodeE4m3(static_cast<float>(v)); });
      return true;
    case DType::kE5M2:
      std::transform(in, in + count, static_cast<uint8_t*>(out),
                     [](T v) { return EncodeE5m2(static_cast<float>(v)); });
      return true;
    default:
      return false;
  }
}

template <typename Code, typename T>
void DecodeWith(float (*decode)(Code), const void* in, int64_t count, T* out) {
  const Code* codes = static_cast<const Code*>(in);
  std::transform(codes, codes + count, out, [decode](Code c) { return T{decode(c)}; });
}

template <typename T>
bool DecodeAny(const void* in, int64_t count, DType format, T* out) {
  switch (format) {
    case DType::kF32:
      std::copy_n(static_cast<const float*>(in), count, out);
      return true;
    case DType::kF64:
      std::copy_n(static_cast<const double*>(in), count, out);
      return true;
    case DType::kBF16:
      std::transform(static_cast<const uint16_t*>(in), static_cast<const uint16_t*>(in) + count,
                     out, [](uint16_t c) { return T{DecodeBf16(c)}; });
      return true;
    case DType::kF16:
      DecodeWith<uint16_t>(DecodeF16, in, count, out);
      return true;
    case DType::kE4M3:
      DecodeWith<uint8_t>(DecodeE4m3, in, count, out);
      return true;
    case DType::kE5M2:
      DecodeWith<uint8_t>(DecodeE5m2, in, count, out);
      return true;
    default:
      return false;
  }
}

}  // namespace

void RoundSpan(float* data, int64_t count, DType format) {
  if (format == DType::kF32 || format == DType::kF64) {
    return;
  }
  if (format == DType::kBF16) {
    RoundBf16Span(data, count);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    data[i] = RoundToFormat(data[i], format);
  }
}

void RoundSpan(double* data, int64_t count, DType format) {
  if (format == DType::kF32 || format == DType::kF64) {
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    data[i] = RoundToFormat(static_cast<float>(data[i]), format);
  }
}

bool EncodeSpan(const float* in, int64_t count, DType format, void* out) {
  if (format == DType::kBF16) {
    EncodeBf16Span(in, count, static_cast<uint16_t*>(out));
    return true;
  }
  return EncodeAny(in, count, format, out);
}

bool EncodeSpan(const double* in, int64_t count, DType format, void* out) {
  return EncodeAny(in, count, format, out);
}

bool DecodeSpan(const void* in, int64_t count, DType format, float* out) {
  return DecodeAny(in, count, format, out);
}

bool DecodeSpan(const void* in, int64_t count, DType format, double* out) {
  return DecodeAny(in, count, format, out);
}

}  // namespace hearth::kernels
