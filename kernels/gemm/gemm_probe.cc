#include "kernels/gemm/gemm_probe.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/formats/gpu_units.h"
#include "kernels/cuda/device.h"
#include "kernels/formats/span.h"
#include "kernels/gemm/cublaslt.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/probe_case.h"

namespace hearth::kernels {
namespace {

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
    plans_.native_blocks().layouts.fill(true);
    plans_.native_blocks().unit_scale_fp8 = true;
  }
  ~ForceNative() { plans_.native_blocks() = before_; }
  ForceNative(const ForceNative&) = delete;
  ForceNative& operator=(const ForceNative&) = delete;

 private:
  GemmPlans& plans_;
  NativeBlocks before_;
};

// `product` on the GPU: what came out.
absl::StatusOr<std::vector<double>> Multiply(const Exec& exec,
                                             const ProbeCase& which,
                                             const ProbeProduct& product) {
  const std::vector<float> scales = ProbeScales(product);
  const int64_t elements = product.m * product.n;
  const size_t c_bytes = DTypeBytes(which.c, elements);
  DeviceBytes a, b, scales_a, scales_b, tensor_scales, c;
  HEARTH_RETURN_IF_ERROR(a.Fill(exec, product.a.bytes.data(), product.a.bytes.size()));
  HEARTH_RETURN_IF_ERROR(b.Fill(exec, product.b.bytes.data(), product.b.bytes.size()));
  HEARTH_RETURN_IF_ERROR(scales_a.Fill(exec, product.a.scales.data(), product.a.scales.size()));
  HEARTH_RETURN_IF_ERROR(scales_b.Fill(exec, product.b.scales.data(), product.b.scales.size()));
  HEARTH_RETURN_IF_ERROR(tensor_scales.Fill(exec, scales.data(), scales.size() * sizeof(float)));
  // Products that add to c have it in fp32.
  HEARTH_RETURN_IF_ERROR(c.Fill(exec, product.beta == 0.0 ? nullptr : product.c.data(), c_bytes));
  GemmArgs args = ProbeArgs(which, product, static_cast<const float*>(tensor_scales.data()));
  args.a.data = a.data();
  args.b.data = b.data();
  args.c = TensorView(c.data(), which.c, {product.m, product.n});
  if (args.block_scales_a != nullptr) {
    args.block_scales_a = static_cast<const uint8_t*>(scales_a.data());
    args.block_scales_b = static_cast<const uint8_t*>(scales_b.data());
  }
  if (which.units.has_value()) {
    const ForceNative native(exec.cuda->gemm());
    if (GemmPathOf(exec, args) != GemmPath::kNative) {
      return absl::FailedPreconditionError("the workspace is too small for block scales");
    }
    HEARTH_RETURN_IF_ERROR(Gemm(exec, args));
  } else {
    HEARTH_RETURN_IF_ERROR(Gemm(exec, args));
  }
  std::vector<uint8_t> bytes(c_bytes);
  HEARTH_RETURN_IF_ERROR(Copy(exec, bytes.data(), c.data(), c_bytes));
  HEARTH_RETURN_IF_ERROR(Synchronize(exec));
  std::vector<double> got(static_cast<size_t>(elements));
  DecodeSpan(bytes.data(), elements, which.c, got.data());
  return got;
}

GemmProbe Try(const Exec& exec, const ProbeCase& which) {
  GemmProbe probe;
  probe.name = which.name;
  const ProbeProduct product = MakeProbeProduct(which);
  const absl::StatusOr<std::vector<double>> got = Multiply(exec, which, product);
  if (!got.ok()) {
    probe.status = std::string(got.status().message());
    return probe;
  }
  probe.max_relative_error = ProbeError(product, *got);
  probe.ok = probe.max_relative_error <= which.bound;
  probe.status = probe.ok ? "ok"
                          : absl::StrFormat("wrong: relative error %.2g, bound %.2g",
                                            probe.max_relative_error, which.bound);
  return probe;
}

// All products of the kind, where the GPU's capability promises them.
BlockGemmChoice Choose(const Exec& exec, const formats::UnitProducts& products, bool allow_native) {
  BlockGemmChoice choice;
  choice.products = products;
  const GpuProperties& gpu = exec.cuda->gpu();
  const int compute = gpu.major * 10 + gpu.minor;
  if (!products.SuitUnitsOf(compute)) {
    choice.why = absl::StrCat("compute capability ", gpu.major, ".", gpu.minor,
                              products.layout == nullptr ? ": plain FP8 is as fast"
                                                         : " has no block-scaled matrix units");
    return choice;
  }
  if (!allow_native) {
    choice.why = "not asked for";
    return choice;
  }
  int right = 0;
  double error = 0.0;
  for (const ProbeCase& which : ProbeCases()) {
    if (which.units != products) {
      continue;
    }
    const GemmProbe probe = Try(exec, which);
    if (!probe.ok) {
      choice.why = absl::StrCat("the trial product \"", probe.name, "\" failed: ", probe.status);
      return choice;
    }
    error = std::max(error, probe.max_relative_error);
    ++right;
  }
  if (right == 0) {
    choice.why = "no native product in this version";
    return choice;
  }
  choice.native = true;
  choice.why = absl::StrFormat("%d trial products were right to %.1g", right, error);
  return choice;
}

}  // namespace

std::vector<GemmProbe> ProbeGemms(const Exec& exec) {
  std::vector<GemmProbe> probes;
  if (exec.device != Device::kCuda || exec.cuda == nullptr) {
    return probes;
  }
  for (const ProbeCase& which : ProbeCases()) {
    probes.push_back(Try(exec, which));
  }
  return probes;
}

std::vector<BlockGemmChoice> ChooseBlockGemms(const Exec& exec, bool allow_native) {
  std::vector<BlockGemmChoice> choices;
  if (exec.device != Device::kCuda || exec.cuda == nullptr) {
    return choices;
  }
  NativeBlocks chosen;
  for (size_t i = 0; i < kBlockLayoutCount; ++i) {
    choices.push_back(Choose(exec, {&kBlockLayouts[i]}, allow_native));
    chosen.layouts[i] = choices.back().native;
  }
  choices.push_back(Choose(exec, formats::UnitProducts{}, allow_native));
  chosen.unit_scale_fp8 = choices.back().native;
  exec.cuda->gemm().native_blocks() = chosen;
  return choices;
}

}  // namespace hearth::kernels
