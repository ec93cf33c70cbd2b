// Formats in which files keep weights: one row each, in blocks of consecutive elements of a row.
//
// q8_0 : 32 elements, {f16 d; int8 q[32]}: d = amax / 127, q = round(x / d), halves away from zero;
//        x = q d
// q4_0 : 32 elements, {f16 d; u8 q[16]}: d = m / -8 with m the element of largest magnitude, sign
//        and all (the first of several); code = min(15, trunc(x / d + 8.5)); byte j has the code of
//        element j in its low and that of element j + 16 in its high half; x = (code - 8) d
// Both divide by multiplying with 1 / d, d being what it was before it was rounded to f16, and give
// the bytes of ggml's reference quantisers (quantize_row_q8_0_ref, quantize_row_q4_0_ref in
// ggml/src/ggml-quants.c).
// nvfp4 : ggml's block_nvfp4, 64 elements, {e4m3 d[4]; u8 q[32]}, as common/formats/weight_codecs.h
//         has it, with that file's new scales and nearest codes. ggml's own quantiser has no scale
//         of the tensor, so its bytes differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::formats {

struct StoredFormat {
  std::string_view name;  // as options take it: "q8_0"
  int64_t block;          // elements
  int64_t block_bytes;
  // `blocks` blocks of fp32, no larger than `largest` where block > 1. Any thread.
  void (*encode)(const float* in, int64_t blocks, uint8_t* out);
  void (*decode)(const uint8_t* in, int64_t blocks, float* out);
  uint32_t ggml_type;       // enum ggml_type, in GGUF files
  uint32_t ggml_file_type;  // general.file_type of a file whose matrices have it
  std::string_view
      torch;             // torch_dtype in config.json; empty: safetensors files have no such format
  float largest = 0.0F;  // magnitude that blocks can hold; only where block > 1
  // What the values of all blocks are multiplied with, beside the blocks. encode and decode count
  // it in.
  float tensor_scale = 1.0F;

  // Bytes of `elements`, a multiple of block.
  constexpr int64_t Bytes(int64_t elements) const { return elements / block * block_bytes; }
};

// clang-format off
extern const StoredFormat kStoredF32;
extern const StoredFormat kStoredBf16;
extern const StoredFormat kStoredF16;
extern const StoredFormat kStoredQ8_0;
extern const StoredFormat kStoredQ4_0;
extern const StoredFormat kStoredNvfp4;
// clang-format on

// All of them, in the order of help texts.
inline constexpr const StoredFormat* kStoredFormats[] = {&kStoredF32,  &kStoredBf16, &kStoredF16,
                                                         &kStoredQ8_0, &kStoredQ4_0, &kStoredNvfp4};

// nullptr: there is none.
const StoredFormat* FindStoredFormat(std::string_view name);
const StoredFormat* FindStoredFormat(uint32_t ggml_type);
// "f32, bf16, f16, q8_0, q4_0, nvfp4"
std::string StoredFormatNames();

}  // namespace hearth::formats
