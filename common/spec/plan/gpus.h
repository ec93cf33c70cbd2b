// What GPUs can do, by name: peaks for MFU, and the memory that a run takes outside its arena.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"

namespace hearth::spec {

struct GpuRow {
  std::string_view name;    // part of the name that the driver gives
  double bf16_flops = 0;    // dense BF16 with FP32 accumulation, FLOP/s, datasheet
  double fp8_flops = 0;     // dense FP8 with FP32 accumulation; 0 = none
  double memory_bytes = 0;  // bytes/s, datasheet
};

// Sources: vendors' datasheets and whitepapers.
absl::Span<const GpuRow> Gpus();

// The row with the longest name that stands in `name` as words of its own; nullptr when there is
// none.
const GpuRow* FindGpu(std::string_view name);

// Device memory that a process takes outside its arena, bytes: CUDA context and code, cuBLASLt,
// cuDNN, graphs. Measured on one H200 (driver 580, CUDA 13.0, cuDNN
// 9.19): 563 to 568 MB over models, batches and recipes; other GPUs differ by some ten MB.
inline constexpr int64_t kProcessOverheadBytes = 566'000'000;

// What NCCL adds to that in a world of several ranks, bytes: buffers of its channels to each peer
// and its kernels. Measured with NCCL 2.28.3 on four H200 of a node, without NVLink multicast: 901
// to 905 MB over recipes, buckets and ways to divide the optimizer, 200 MB less with
// NCCL_MAX_CTAS=16; about as much with two. More GPUs and several hosts: not measured (`bench
// --devices` prints what it predicts and what it measures).
inline constexpr int64_t kNcclOverheadBytes = 905'000'000;

constexpr int64_t OverheadBytes(int world_size) {
  return kProcessOverheadBytes + (world_size > 1 ? kNcclOverheadBytes : 0);
}

// How much of a device's total memory (bytes) a plan may take: all but OverheadBytes on "cuda", all
// on "cpu". May be negative.
int64_t PlannableBytes(std::string_view device, int64_t memory_bytes, int world_size);

}  // namespace hearth::spec
