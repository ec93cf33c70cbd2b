// The formats over arrays, on one thread; vectorised for BF16.
#pragma once

#include <cstdint>

#include "kernels/core/formats.h"

namespace hearth::kernels {

// data[i] = value rounded to `format`, in place; returns at once for kF32 and kF64. Doubles are
// rounded to float first. Meant for a row that has just been computed and is still in cache.
void RoundSpan(float* data, int64_t count, DType format);
void RoundSpan(double* data, int64_t count, DType format);

// Packs into / unpacks from the storage of `format`: kBF16, kF16, kE4M3, kE5M2, kF32, kF64.
// Returns false for any other format.
bool EncodeSpan(const float* in, int64_t count, DType format, void* out);
bool EncodeSpan(const double* in, int64_t count, DType format, void* out);
bool DecodeSpan(const void* in, int64_t count, DType format, float* out);
bool DecodeSpan(const void* in, int64_t count, DType format, double* out);

}  // namespace hearth::kernels
