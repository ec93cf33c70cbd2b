// Block-scaled outputs of an op: what they hold and how they are made. The arithmetic is in
// formats/block_scale.h, the same bits on every device.
#pragma once

#include <cstdint>

#include "kernels/core/formats.h"
#include "kernels/core/rng.h"

namespace hearth::kernels {

struct StepInputs;  // step_gate/step_gate.h

// One direction of a tensor: [L, K], quantised in blocks along K, the axis a product sums over.
// Layouts whose row has a tensor_scale (common/formats/block_layout.h) have `amax` and
// `tensor_scale`, others have neither.
// A block (with a transform: a group) that holds a NaN or an infinity gets the scale NaN and zero
// values: what is multiplied with it becomes NaN, and nothing is lost silently.
struct BlockForm {
  // Packed, row-major, 16-byte aligned. E2M1: K / 2 bytes a row, the even element in the low
  // nibble; E4M3, E5M2: K bytes a row. Absent: only `measured` is wanted.
  void* values = nullptr;
  // BlockScaleBytes(layout, L, K) bytes in the layout's order, 16-byte aligned; every byte is
  // written, padding as 0.
  uint8_t* scales = nullptr;
  // Read: the largest magnitude that the scale of the tensor is made for, one device float; 0,
  // infinity or NaN count as "unknown": scale 1. It need not be this tensor's: with that of an
  // earlier step one pass is enough, and a power of two more is cheap, because the blocks'
  // E4M3 scales keep their relative precision (a factor of 2^10 costs nothing that is above 2^-4 of
  // the largest block). If it is too small, the scale of a block beyond it stays at its largest and
  // the block's values saturate; if it is far too large, small blocks underflow to zero.
  const float* amax = nullptr;
  // Written: one float, the factor that belongs to the products' alpha:
  // element = value * block scale * tensor_scale.
  float* tensor_scale = nullptr;
  // Optional, raised to the largest magnitude after the transform; NaN if any is. Not the same
  // float as `amax`.
  float* measured = nullptr;
  // Optional, two: raised by the number of elements that saturated (lay beyond the largest value
  // before rounding), and by the number of those, not zero before, that became zero.
  uint64_t* counts = nullptr;
  Rounding rounding = Rounding::kNearest;
  HadamardSigns signs = HadamardSigns::kFixed;
  // 0: none. 16, 32, 64, 128: groups of this many along K are multiplied by the orthonormal
  // Hadamard matrix after the signs; K is a multiple of it.
  int16_t hadamard = 0;

  constexpr bool has_values() const { return values != nullptr; }
  constexpr bool wanted() const { return values != nullptr || measured != nullptr; }
};

// Both forms of v [R, C].
struct BlockQuantView {
  BlockLayout layout = BlockLayout::kNvfp4;
  // One that the layout holds. FP8: scales are rounded up, so that nothing saturates.
  DType dtype = DType::kE2M1;
  // One scale for each tile of length x length (weights), so that rows and columns hold the same
  // values. kNearest or kStochastic*, no transform.
  bool square = false;
  // [R, C] in blocks along C.
  BlockForm rows;
  // [C, R], the transpose, in blocks along R.
  BlockForm columns;
  // Optional, raised to the largest |v|, before any transform.
  float* amax = nullptr;
  // Key of the random numbers (purpose is ignored; tensor unique within the model): element e of
  // the rows form has number e, element e of the columns form R C + e.
  RngKey key;
  // Optional, one on the tensors' device: its step and micro_batch stand for the key's.
  const StepInputs* position = nullptr;
  // Which signs (kSeeded).
  uint32_t rotation = 0;

  constexpr bool empty() const { return !rows.wanted() && !columns.wanted() && amax == nullptr; }
};

// A form [L, K] as it is read again; the tensor's scale is absent where there is none.
struct BlockScaledView {
  BlockLayout layout = BlockLayout::kNvfp4;
  DType dtype = DType::kE2M1;
  const void* values = nullptr;
  const uint8_t* scales = nullptr;
  const float* tensor_scale = nullptr;
};

}  // namespace hearth::kernels
