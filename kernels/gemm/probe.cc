#include "kernels/gemm/probe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"
#include "kernels/formats/formats.h"
#include "kernels/formats/span.h"
#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/cublaslt_library.h"
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
  int64_t block;  // elements that share a scale; 0: one float for the tensor
  double bound;   // of the relative error
};

// The bounds leave room for the rounding of c (bf16: 2^-8 of each element) and, for FP8 on Hopper,
// for its accumulator of 13 fraction bits.
constexpr Case kCases[] = {
    {"bf16", DType::kBF16, DType::kBF16, DType::kBF16, 0, 0x1p-7},
    {"f32", DType::kF32, DType::kF32, DType::kF32, 0, 1e-5},
    {"fp8 e4m3 x e4m3", DType::kE4M3, DType::kE4M3, DType::kF32, 0, 0x1p-8},
    {"fp8 e5m2 x e4m3", DType::kE5M2, DType::kE4M3, DType::kF32, 0, 0x1p-8},
    {"mxfp8", DType::kE4M3, DType::kE4M3, DType::kBF16, 32, 0x1p-7},
    {"nvfp4", DType::kE2M1, DType::kE2M1, DType::kBF16, 16, 0x1p-7},
};

// [rows, kK] as stored, and what it stands for.
struct Operand {
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> scales;
  std::vector<double> values;
};

// Where cuBLASLt wants the scale of block `block` of row `row`: tiles of 128 rows by 4 blocks.
size_t ScaleOffset(int64_t row, int64_t block, int64_t blocks) {
  const int64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
  return static_cast<size_t>(tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4);
}

double DecodeE2m1(uint8_t code) {
  constexpr double kMagnitudes[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

void FillValues(const RngKey& key, DType dtype, int64_t count, Operand& out) {
  out.values.resize(static_cast<size_t>(count));
  out.bytes.resize(DTypeBytes(dtype, count));
  if (dtype == DType::kE2M1) {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t code = RngWord(key, static_cast<uint64_t>(i)) & 15;
      out.values[static_cast<size_t>(i)] = DecodeE2m1(code);
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
  out.scales.resize(static_cast<size_t>(rows * blocks));
  const RngKey key = {7, RngPurpose::kTest, 0, 1, tensor};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < blocks; ++i) {
      const int power = static_cast<int>(RngWord(key, static_cast<uint64_t>(row * blocks + i)) % 4);
      const double scale = std::ldexp(1.0, power - 2);
      out.scales[ScaleOffset(row, i, blocks)] = dtype == DType::kE2M1
                                                    ? EncodeE4m3(static_cast<float>(scale))
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

// c = a bT with block scales, without a plan.
absl::Status BlockScaled(const Exec& exec,
                         const Case& which,
                         const DeviceBytes& a,
                         const DeviceBytes& b,
                         const DeviceBytes& scales_a,
                         const DeviceBytes& scales_b,
                         void* c) {
  GemmPlans& plans = exec.cuda->gemm();
  const CublasLt& lt = plans.library();
  const auto handle = static_cast<cublasLtHandle_t>(plans.handle());
  const bool fp4 = which.a == DType::kE2M1;
  const cudaDataType_t type = fp4 ? CUDA_R_4F_E2M1 : CUDA_R_8F_E4M3;
  const cublasLtMatmulMatrixScale_t mode =
      fp4 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3 : CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
  MatmulObjects o(lt);
  HEARTH_RETURN_IF_ERROR(o.CreateDesc(true, false));
  HEARTH_RETURN_IF_ERROR(
      o.CreateLayouts(type, kK, kN, kK, type, kK, kM, kK, CUDA_R_16BF, kN, kM, kN));
  HEARTH_RETURN_IF_ERROR(o.Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode));
  HEARTH_RETURN_IF_ERROR(o.Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode));
  const void* const pointer_a = scales_b.data();
  const void* const pointer_b = scales_a.data();
  HEARTH_RETURN_IF_ERROR(o.Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, pointer_a));
  HEARTH_RETURN_IF_ERROR(o.Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, pointer_b));
  cublasLtMatmulPreference_t preference = nullptr;
  HEARTH_RETURN_IF_ERROR(
      lt.Status(lt.PreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  cublasLtMatmulHeuristicResult_t result = {};
  int count = 0;
  const cublasStatus_t found =
      lt.AlgoGetHeuristic(handle, o.desc, o.a, o.b, o.c, o.c, preference, 1, &result, &count);
  lt.PreferenceDestroy(preference);
  HEARTH_RETURN_IF_ERROR(lt.Status(found, "cublasLtMatmulAlgoGetHeuristic"));
  if (count == 0) {
    return absl::UnimplementedError("cublasLtMatmulAlgoGetHeuristic: no algorithm");
  }
  const float alpha = 1.0F;
  const float beta = 0.0F;
  return lt.Status(lt.Matmul(handle, o.desc, &alpha, b.data(), o.a, a.data(), o.b, &beta, c, o.c, c,
                             o.c, &result.algo, nullptr, 0, static_cast<cudaStream_t>(exec.stream)),
                   "cublasLtMatmul");
}

absl::Status Multiply(const Exec& exec,
                      const Case& which,
                      const Operand& a,
                      const Operand& b,
                      std::vector<double>& got) {
  constexpr float kScales[] = {1.0F};
  DeviceBytes device_a, device_b, scales_a, scales_b, device_c;
  const size_t c_bytes = DTypeBytes(which.c, kM * kN);
  const bool blocks = which.block > 0;
  HEARTH_RETURN_IF_ERROR(device_a.Fill(exec, a.bytes.data(), a.bytes.size()));
  HEARTH_RETURN_IF_ERROR(device_b.Fill(exec, b.bytes.data(), b.bytes.size()));
  HEARTH_RETURN_IF_ERROR(device_c.Fill(exec, nullptr, c_bytes));
  HEARTH_RETURN_IF_ERROR(scales_a.Fill(exec,
                                       blocks ? a.scales.data() : static_cast<const void*>(kScales),
                                       blocks ? a.scales.size() : sizeof(kScales)));
  HEARTH_RETURN_IF_ERROR(scales_b.Fill(exec,
                                       blocks ? b.scales.data() : static_cast<const void*>(kScales),
                                       blocks ? b.scales.size() : sizeof(kScales)));
  if (blocks) {
    HEARTH_RETURN_IF_ERROR(
        BlockScaled(exec, which, device_a, device_b, scales_a, scales_b, device_c.data()));
  } else {
    const bool fp8 = which.a == DType::kE4M3 || which.a == DType::kE5M2;
    GemmArgs args;
    args.a = TensorView(device_a.data(), which.a, {kM, kK});
    args.b = TensorView(device_b.data(), which.b, {kN, kK});
    args.c = TensorView(device_c.data(), which.c, {kM, kN});
    args.transpose_b = true;
    args.scale_a = fp8 ? static_cast<const float*>(scales_a.data()) : nullptr;
    args.scale_b = fp8 ? static_cast<const float*>(scales_b.data()) : nullptr;
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

}  // namespace

std::vector<GemmProbe> ProbeGemms(const Exec& exec) {
  std::vector<GemmProbe> probes;
  if (exec.device != Device::kCuda || exec.cuda == nullptr) {
    return probes;
  }
  for (const Case& which : kCases) {
    GemmProbe probe;
    probe.name = which.name;
    const Operand a = MakeOperand(1, which.a, kM, which.block);
    const Operand b = MakeOperand(2, which.b, kN, which.block);
    std::vector<double> got;
    const absl::Status status = Multiply(exec, which, a, b, got);
    if (!status.ok()) {
      probe.status = std::string(status.message());
    } else {
      probe.max_relative_error = MaxRelativeError(a, b, got);
      probe.ok = probe.max_relative_error <= which.bound;
      probe.status = probe.ok ? "ok"
                              : absl::StrFormat("wrong: relative error %.2g, bound %.2g",
                                                probe.max_relative_error, which.bound);
    }
    probes.push_back(std::move(probe));
  }
  return probes;
}

}  // namespace hearth::kernels
