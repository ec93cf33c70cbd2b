// Attention kernels of our own: causal, grouped queries, documents; the same bits in every run.
// For attention.cu, which checks the arguments.
#pragma once

#include "absl/status/status.h"
#include "kernels/attention/attention.h"

namespace hearth::kernels::cuda {

// bf16 on tensor cores, head_dim a multiple of 8 up to 128, operands 16-byte aligned, scale > 0.
// `scale` is the resolved one; `delta` [B, Hq, T] fp32 is scratch.
absl::Status FlashForward(const Exec& exec, const AttentionForwardArgs& args, float scale);
absl::Status FlashBackward(const Exec& exec,
                           const AttentionBackwardArgs& args,
                           float scale,
                           float* delta);

// kF32 or kBF16, head_dim up to kPlainMaxHeadDim; a warp for each row, slow.
inline constexpr int64_t kPlainMaxHeadDim = 256;
absl::Status PlainForward(const Exec& exec, const AttentionForwardArgs& args, float scale);
absl::Status PlainBackward(const Exec& exec,
                           const AttentionBackwardArgs& args,
                           float scale,
                           float* delta);

// Whether cuDNN runs these (cudnn.h), as HEARTH_ATTENTION allows; else the kernels of our own do.
bool RunsCudnn(const Exec& exec, const AttentionForwardArgs& args);
bool RunsCudnn(const Exec& exec, const AttentionBackwardArgs& args);

// delta[b, h, t] = sum over d of out * d_out. Any head_dim.
absl::Status AttentionDelta(const Exec& exec, const AttentionBackwardArgs& args, float* delta);

}  // namespace hearth::kernels::cuda
