#include "kernels/gemm/probe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"
#include "kernels/formats/formats.h"
#include "kernels/formats/span.h"
#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/gemm.h"

namespace hearth::kernels {
namespace {

// Whole tiles of every kernel and of the scales' layout.
constexpr int64_t kM = 128;
constexpr int64_t kN = 256;
constexpr int64_t kK = 512;

struct Case {
  const char* name;
  DType a;
  DType b;
  DType c;
  bool unit;      // as MXFP8 with unit scales
  int64_t block;  // elements that share a scale; 0: one float for the tensor
  double bound;   // of the relative error
};

// The bounds leave room for the rounding of c (bf16: 2^-8 of each element) and, for FP8 on Hopper,
// for its accumulator of 13 fraction bits.
constexpr Case kCases[] = {
    {"bf16", DType::kBF16, DType::kBF16, DType::kBF16, false, 0, 0x1p-7},
    {"f32", DType::kF32, DType::kF32, DType::kF32, false, 0, 1e-5},
    {"fp8 e4m3 x e4m3", DType::kE4M3, DType::kE4M3, DType::kF32, false, 0, 0x1p-8},
    {"fp8 e5m2 x e4m3", DType::kE5M2, DType::kE4M3, DType::kF32, false, 0, 0x1p-8},
    {"mxfp8", DType::kE4M3, DType::kE4M3, DType::kBF16, false, 32, 0x1p-7},
    {"nvfp4", DType::kE2M1, DType::kE2M1, DType::kBF16, false, 16, 0x1p-7},
    {"fp8 unit scales", DType::kE4M3, DType::kE4M3, DType::kF32, true, 0, 0x1p-8},
};

// [rows, kK] as stored, and what it stands for.
struct Operand {
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> scales;
  std::vector<double> values;
};

void FillValues(const RngKey& key, DType dtype, int64_t count, Operand& out) {
  out.values.resize(static_cast<size_t>(count));
  out.bytes.resize(DTypeBytes(dtype, count));
  if (dtype == DType::kE2M1) {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t code = RngWord(key, static_cast<uint64_t>(i)) & 15;
      out.values[static_cast<size_t>(i)] = double{DecodeE2m1(code)};
      uint8_t& byte = out.bytes[static_cast<size_t>(i / 2)];
      byte = static_cast<uint8_t>(i % 2 == 0 ? code : byte | code << 4);
    }
    return;
  }
  std::vector<float> normal(static_cast<size_t>(count));
  FillNormal(key, 0, 0.0, 1.0, normal.data(), count);
  EncodeSpan(normal.data(), count, dtype, out.bytes.data());
  DecodeSpan(out.bytes.data(), count, dtype, out.values.data());
}

Operand MakeOperand(uint32_t tensor, DType dtype, int64_t rows, int64_t block) {
  Operand out;
  FillValues({7, RngPurpose::kTest, 0, 0, tensor}, dtype, rows * kK, out);
  if (block == 0) {
    return out;
  }
  const int64_t blocks = kK / block;
  out.scales.resize(SwizzledScaleBytes(rows, blocks));
  const RngKey key = {7, RngPurpose::kTest, 0, 1, tensor};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < blocks; ++i) {
      const int power = static_cast<int>(RngWord(key, static_cast<uint64_t>(row * blocks + i)) % 4);
      const double scale = std::ldexp(1.0, power - 2);
      out.scales[static_cast<size_t>(SwizzledScaleOffset(row, i, blocks))] =
          dtype == DType::kE2M1 ? EncodeE4m3(static_cast<float>(scale))
                                : static_cast<uint8_t>(127 + power - 2);
      for (int64_t k = i * block; k < (i + 1) * block; ++k) {
        out.values[static_cast<size_t>(row * kK + k)] *= scale;
      }
    }
  }
  return out;
}

// Device memory with a copy of host bytes.
class DeviceBytes {
 public:
  ~DeviceBytes() { FreeDevice(data_); }
  absl::Status Fill(const Exec& exec, const void* from, size_t bytes) {
    HEARTH_ASSIGN_OR_RETURN(data_, AllocateDevice(*exec.cuda, std::max<size_t>(bytes, 1)));
    return from == nullptr ? Zero(exec, data_, bytes) : Copy(exec, data_, from, bytes);
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Everything native for as long as this lives.
class ForceNative {
 public:
  explicit ForceNative(GemmPlans& plans) : plans_(plans), before_(plans.native_blocks()) {
    plans_.native_blocks() = {true, true, true};
  }
  ~ForceNative() { plans_.native_blocks() = before_; }
  ForceNative(const ForceNative&) = delete;
  ForceNative& operator=(const ForceNative&) = delete;

 private:
  GemmPlans& plans_;
  NativeBlocks before_;
};

absl::Status Multiply(const Exec& exec,
                      const Case& which,
                      const Operand& a,
                      const Operand& b,
                      std::vector<double>& got) {
  constexpr float kScales[] = {1.0F};
  DeviceBytes device_a, device_b, scale, scales_a, scales_b, device_c;
  const size_t c_bytes = DTypeBytes(which.c, kM * kN);
  HEARTH_RETURN_IF_ERROR(device_a.Fill(exec, a.bytes.data(), a.bytes.size()));
  HEARTH_RETURN_IF_ERROR(device_b.Fill(exec, b.bytes.data(), b.bytes.size()));
  HEARTH_RETURN_IF_ERROR(device_c.Fill(exec, nullptr, c_bytes));
  HEARTH_RETURN_IF_ERROR(scale.Fill(exec, kScales, sizeof(kScales)));
  GemmArgs args;
  args.a = TensorView(device_a.data(), which.a, {kM, kK});
  args.b = TensorView(device_b.data(), which.b, {kN, kK});
  args.c = TensorView(device_c.data(), which.c, {kM, kN});
  args.transpose_b = true;
  if (DTypeBits(which.a) <= 8) {
    args.scale_a = args.scale_b = static_cast<const float*>(scale.data());
  }
  if (which.block > 0) {
    HEARTH_RETURN_IF_ERROR(scales_a.Fill(exec, a.scales.data(), a.scales.size()));
    HEARTH_RETURN_IF_ERROR(scales_b.Fill(exec, b.scales.data(), b.scales.size()));
    args.block_scales_a = static_cast<const uint8_t*>(scales_a.data());
    args.block_scales_b = static_cast<const uint8_t*>(scales_b.data());
  }
  if (which.unit || which.block > 0) {
    const ForceNative native(exec.cuda->gemm());
    if (GemmPathOf(exec, args) != GemmPath::kNative) {
      return absl::FailedPreconditionError("the workspace is too small for block scales");
    }
    HEARTH_RETURN_IF_ERROR(Gemm(exec, args));
  } else {
    HEARTH_RETURN_IF_ERROR(Gemm(exec, args));
  }
  std::vector<uint8_t> bytes(c_bytes);
  HEARTH_RETURN_IF_ERROR(Copy(exec, bytes.data(), device_c.data(), c_bytes));
  HEARTH_RETURN_IF_ERROR(Synchronize(exec));
  got.resize(kM * kN);
  DecodeSpan(bytes.data(), kM * kN, which.c, got.data());
  return absl::OkStatus();
}

double MaxRelativeError(const Operand& a, const Operand& b, const std::vector<double>& got) {
  double error = 0.0;
  double largest = 0.0;
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kN; ++n) {
      double want = 0.0;
      for (int64_t k = 0; k < kK; ++k) {
        want +=
            a.values[static_cast<size_t>(m * kK + k)] * b.values[static_cast<size_t>(n * kK + k)];
      }
      const double off = std::fabs(got[static_cast<size_t>(m * kN + n)] - want);
      error = std::isnan(off) ? INFINITY : std::max(error, off);
      largest = std::max(largest, std::fabs(want));
    }
  }
  return error / largest;
}

GemmProbe ProbeCase(const Exec& exec, const Case& which) {
  GemmProbe probe;
  probe.name = which.name;
  const Operand a = MakeOperand(1, which.a, kM, which.block);
  const Operand b = MakeOperand(2, which.b, kN, which.block);
  std::vector<double> got;
  const absl::Status status = Multiply(exec, which, a, b, got);
  if (!status.ok()) {
    probe.status = std::string(status.message());
    return probe;
  }
  probe.max_relative_error = MaxRelativeError(a, b, got);
  probe.ok = probe.max_relative_error <= which.bound;
  probe.status = probe.ok ? "ok"
                          : absl::StrFormat("wrong: relative error %.2g, bound %.2g",
                                            probe.max_relative_error, which.bound);
  return probe;
}

// A native product of the case, where the GPU's capability promises one.
BlockGemmChoice Choose(const Exec& exec, const Case& which, const char* format, bool allow_native) {
  BlockGemmChoice choice;
  choice.format = format;
  const GpuProperties& gpu = exec.cuda->gpu();
  const bool units = which.unit ? gpu.major == 12 : gpu.major == 10 || gpu.major == 12;
  if (!units) {
    choice.why =
        absl::StrCat("compute capability ", gpu.major, ".", gpu.minor,
                     which.unit ? ": plain FP8 is as fast" : " has no block-scaled matrix units");
    return choice;
  }
  if (!allow_native) {
    choice.why = "not asked for";
    return choice;
  }
  const GemmProbe probe = ProbeCase(exec, which);
  choice.native = probe.ok;
  choice.why = probe.ok
                   ? absl::StrFormat("a trial product was right to %.1g", probe.max_relative_error)
                   : absl::StrCat("the trial product failed: ", probe.status);
  return choice;
}

}  // namespace

std::vector<GemmProbe> ProbeGemms(const Exec& exec) {
  std::vector<GemmProbe> probes;
  if (exec.device != Device::kCuda || exec.cuda == nullptr) {
    return probes;
  }
  for (const Case& which : kCases) {
    probes.push_back(ProbeCase(exec, which));
  }
  return probes;
}

std::vector<BlockGemmChoice> ChooseBlockGemms(const Exec& exec, bool allow_native) {
  std::vector<BlockGemmChoice> choices;
  if (exec.device != Device::kCuda || exec.cuda == nullptr) {
    return choices;
  }
  NativeBlocks chosen;
  for (const Case& which : kCases) {
    if (which.block == 0 && !which.unit) {
      continue;
    }
    const char* const format = which.unit ? "fp8" : which.name;
    choices.push_back(Choose(exec, which, format, allow_native));
    bool& flag = which.unit          ? chosen.unit_scale_fp8
                 : which.block == 16 ? chosen.nvfp4
                                     : chosen.mxfp8;
    flag = choices.back().native;
  }
  exec.cuda->gemm().native_blocks() = chosen;
  return choices;
}

}  // namespace hearth::kernels
