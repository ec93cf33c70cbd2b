#include "kernels/qk_norm_rope/qk_norm_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/qk_norm_rope/partition.h"

namespace hearth::kernels {
namespace {

constexpr char kOp[] = "qk_norm_rope";

absl::Status CheckDims(const QkHeads& dims,
                       const RopeConfig& rope,
                       const TensorView& rows_view,
                       const TensorView& positions) {
  if (dims.heads < 1 || dims.kv_heads < 1 || dims.head_dim < 1) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": heads, kv_heads and head_dim are ",
                                                   dims.heads, ", ", dims.kv_heads, ", ",
                                                   dims.head_dim));
  }
  if (rows_view.cols() != dims.width()) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": a row has ", rows_view.cols(),
                                                   " elements, the heads need ", dims.width()));
  }
  if (!rope.enabled) {
    return absl::OkStatus();
  }
  if (dims.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(kOp, ": head_dim ", dims.head_dim, " is odd"));
  }
  return RequireCount(positions, DType::kI32, rows_view.rows(), kOp, "positions");
}

}  // namespace

void RopeInverseFrequencies(const RopeConfig& config, int64_t head_dim, double* inv_freq) {
  const RopeScaling& scaling = config.scaling;
  const auto trained = static_cast<double>(scaling.original_max_position);
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double freq =
        std::pow(config.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (scaling.type == RopeScalingType::kLinear) {
      freq /= scaling.factor;
    } else if (scaling.type == RopeScalingType::kLlama3) {
      const double wavelength = 2.0 * std::numbers::pi / freq;
      const double low = trained / scaling.low_freq_factor;
      const double high = trained / scaling.high_freq_factor;
      if (wavelength > low) {
        freq /= scaling.factor;
      } else if (wavelength >= high) {
        const double smooth = (trained / wavelength - scaling.low_freq_factor) /
                              (scaling.high_freq_factor - scaling.low_freq_factor);
        freq = (1.0 - smooth) * freq / scaling.factor + smooth * freq;
      }
    }
    inv_freq[i] = freq;
  }
}

absl::Status CanImplement(const QkNormRopeForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.qkv, kOp, "qkv"));
  HEARTH_RETURN_IF_ERROR(CheckDims(args.dims, args.rope, args.qkv, args.positions));
  const DType dtype = args.qkv.dtype;
  HEARTH_RETURN_IF_ERROR(RequireCount(args.out, dtype, args.qkv.numel(), kOp, "out"));
  if (args.q_weight.empty() != args.k_weight.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOp, ": q_weight and k_weight must both be present or both absent"));
  }
  if (!args.q_weight.empty()) {
    const int64_t rotated = args.dims.heads + args.dims.kv_heads;
    HEARTH_RETURN_IF_ERROR(RequireCount(args.q_weight, dtype, args.dims.head_dim, kOp, "q_weight"));
    HEARTH_RETURN_IF_ERROR(RequireCount(args.k_weight, dtype, args.dims.head_dim, kOp, "k_weight"));
    HEARTH_RETURN_IF_ERROR(
        RequireCount(args.rstd, StatisticsType(dtype), args.qkv.rows() * rotated, kOp, "rstd"));
  }
  return RequireRound(args.round_out, kOp);
}

size_t QkNormRopeForwardWorkspaceBytes(const QkNormRopeForwardArgs& args) {
  return cpu::QkNormRopeForwardWorkspaceBytes(args);
}

absl::Status QkNormRopeForward(const Exec& exec, const QkNormRopeForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.qkv.dtype, kOp));
  return RunOnDevice<cpu::QkNormRopeForward, cuda::QkNormRopeForward>(exec, kOp, args);
}

absl::Status CanImplement(const QkNormRopeBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(RequireFloating(args.d_out, kOp, "d_out"));
  HEARTH_RETURN_IF_ERROR(CheckDims(args.dims, args.rope, args.d_out, args.positions));
  const DType dtype = args.d_out.dtype;
  HEARTH_RETURN_IF_ERROR(RequireQuant(args.d_qkv_quant, kOp));
  HEARTH_RETURN_IF_ERROR(RequireBlocks(args.d_qkv_blocks, args.d_qkv_quant, args.d_out.rows(),
                                       args.d_out.cols(), 1, kOp));
  if (!args.d_qkv.empty() || (!args.d_qkv_quant.has_values() && args.d_qkv_blocks.empty())) {
    HEARTH_RETURN_IF_ERROR(RequireCount(args.d_qkv, dtype, args.d_out.numel(), kOp, "d_qkv"));
  }
  if (!args.q_weight.empty() || !args.k_weight.empty()) {
    const int64_t rotated = args.dims.heads + args.dims.kv_heads;
    const int64_t dim = args.dims.head_dim;
    HEARTH_RETURN_IF_ERROR(RequireCount(args.q_weight, dtype, dim, kOp, "q_weight"));
    HEARTH_RETURN_IF_ERROR(RequireCount(args.k_weight, dtype, dim, kOp, "k_weight"));
    HEARTH_RETURN_IF_ERROR(RequireFloating(args.d_q_weight, kOp, "d_q_weight"));
    const DType gradient = args.d_q_weight.dtype;
    HEARTH_RETURN_IF_ERROR(RequireCount(args.d_q_weight, gradient, dim, kOp, "d_q_weight"));
    HEARTH_RETURN_IF_ERROR(RequireCount(args.d_k_weight, gradient, dim, kOp, "d_k_weight"));
    HEARTH_RETURN_IF_ERROR(RequireCount(args.qkv, dtype, args.d_out.numel(), kOp, "qkv"));
    HEARTH_RETURN_IF_ERROR(
        RequireCount(args.rstd, StatisticsType(dtype), args.d_out.rows() * rotated, kOp, "rstd"));
  }
  return RequireRound(args.round_d_qkv, kOp);
}

size_t QkNormRopeBackwardWorkspaceBytes(const QkNormRopeBackwardArgs& args) {
  const size_t on_cuda = args.q_weight.empty() ? 0 : RopePartialBytes(args.dims, args.d_out.rows());
  return std::max(cpu::QkNormRopeBackwardWorkspaceBytes(args), on_cuda);
}

bool WritesBlocks(const Exec& exec, const QkNormRopeBackwardArgs& args) {
  const int64_t dim = args.dims.head_dim;
  return exec.device == Device::kCpu || (dim % 16 == 0 && 128 % dim == 0);
}

absl::Status QkNormRopeBackward(const Exec& exec, const QkNormRopeBackwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(CanImplement(args));
  const DType dtype = args.d_out.dtype;
  HEARTH_RETURN_IF_ERROR(RequireStorage(exec, dtype, kOp));
  HEARTH_RETURN_IF_ERROR(RequireFormStorage(
      exec, dtype, !args.d_qkv_quant.empty() || !args.d_qkv_blocks.empty(), kOp));
  if (!args.q_weight.empty()) {
    HEARTH_RETURN_IF_ERROR(RequireStorage(exec, args.d_q_weight.dtype, kOp));
  }
  HEARTH_RETURN_IF_ERROR(RequireWorkspace(exec, QkNormRopeBackwardWorkspaceBytes(args), kOp));
  return RunOnDevice<cpu::QkNormRopeBackward, cuda::QkNormRopeBackward>(exec, kOp, args);
}

}  // namespace hearth::kernels
