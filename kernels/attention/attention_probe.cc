#include "kernels/attention/attention_probe.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "kernels/attention/attention.h"
#include "kernels/core/cpu_workspace.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kSequence = 192;
constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr double kTolerance = 0.03;  // BF16 probabilities, gradients summed over 192 keys

// Everything of one shape on the CPU in fp32, inputs rounded to BF16.
struct Reference {
  AttentionDims dims;
  std::vector<float> qkv, out, lse, d_out, d_qkv;
};

absl::StatusOr<Reference> MakeReference(int64_t head_dim) {
  Reference r;
  r.dims = {kBatch, kSequence, kHeads, kKvHeads, head_dim};
  const int64_t rows = kBatch * kSequence;
  const int64_t width = (kHeads + 2 * kKvHeads) * head_dim;
  const auto normal = [&](std::vector<float>& values, int64_t count, uint32_t tensor) {
    values.resize(static_cast<size_t>(count));
    FillNormal({11, RngPurpose::kTest, 0, 0, tensor}, 0, 0.0, 1.0, values.data(), count);
    std::transform(values.begin(), values.end(), values.begin(), &RoundBf16);
  };
  normal(r.qkv, rows * width, 1);
  normal(r.d_out, rows * kHeads * head_dim, 2);
  r.out.resize(r.d_out.size());
  r.lse.resize(static_cast<size_t>(rows * kHeads));
  r.d_qkv.resize(r.qkv.size());
  AttentionForwardArgs f;
  f.dims = r.dims;
  f.qkv = View(r.qkv.data(), {rows, width});
  f.out = View(r.out.data(), {rows, kHeads * head_dim});
  f.lse = View(r.lse.data(), {kBatch, kHeads, kSequence});
  AttentionBackwardArgs b;
  b.dims = r.dims;
  b.qkv = f.qkv;
  b.out = f.out;
  b.lse = f.lse;
  b.d_out = View(r.d_out.data(), {rows, kHeads * head_dim});
  b.d_qkv = View(r.d_qkv.data(), {rows, width});
  const size_t scratch = std::max(cpu::AttentionForwardWorkspaceBytes(f, 1),
                                  cpu::AttentionBackwardWorkspaceBytes(b, 1));
  const CpuWorkspace memory(scratch);
  const Exec cpu = memory.With();
  HEARTH_RETURN_IF_ERROR(AttentionForward(cpu, f));
  HEARTH_RETURN_IF_ERROR(AttentionBackward(cpu, b));
  return r;
}

// Device memory that goes with its owner.
class Memory {
 public:
  explicit Memory(const Exec& exec) : exec_(exec) {}
  ~Memory() {
    for (void* data : all_) {
      FreeDevice(data);
    }
  }
  absl::StatusOr<void*> Take(size_t bytes) {
    HEARTH_ASSIGN_OR_RETURN(void* const data,
                            AllocateDevice(*exec_.cuda, std::max<size_t>(bytes, 64)));
    all_.push_back(data);
    return data;
  }
  absl::StatusOr<TensorView> Bf16(const std::vector<float>& values,
                                  std::initializer_list<int64_t> shape) {
    std::vector<uint16_t> codes(values.size());
    std::transform(values.begin(), values.end(), codes.begin(), &EncodeBf16);
    HEARTH_ASSIGN_OR_RETURN(void* const data, Take(codes.size() * 2));
    HEARTH_RETURN_IF_ERROR(Copy(exec_, data, codes.data(), codes.size() * 2));
    HEARTH_RETURN_IF_ERROR(Synchronize(exec_));
    return TensorView(data, DType::kBF16, shape);
  }

 private:
  const Exec& exec_;
  std::vector<void*> all_;
};

absl::StatusOr<double> Error(const Exec& exec,
                             const TensorView& got,
                             const std::vector<float>& want) {
  std::vector<uint16_t> codes(want.size());
  HEARTH_RETURN_IF_ERROR(Copy(exec, codes.data(), got.data, codes.size() * 2));
  HEARTH_RETURN_IF_ERROR(Synchronize(exec));
  double error = 0;
  double largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(double{DecodeBf16(codes[i])} - double{want[i]});
    error = std::isnan(difference) ? HUGE_VAL : std::max(error, difference);
    largest = std::max(largest, std::fabs(double{want[i]}));
  }
  return error / largest;
}

absl::StatusOr<double> RunOnGpu(const Exec& exec, const Reference& r) {
  Memory memory(exec);
  const int64_t rows = kBatch * kSequence;
  const int64_t width = (kHeads + 2 * kKvHeads) * r.dims.head_dim;
  const int64_t q_width = kHeads * r.dims.head_dim;
  AttentionForwardArgs f;
  f.dims = r.dims;
  f.round = DType::kBF16;
  HEARTH_ASSIGN_OR_RETURN(f.qkv, memory.Bf16(r.qkv, {rows, width}));
  HEARTH_ASSIGN_OR_RETURN(f.out, memory.Bf16(r.d_out, {rows, q_width}));
  HEARTH_ASSIGN_OR_RETURN(void* const lse, memory.Take(r.lse.size() * 4));
  f.lse = TensorView(lse, DType::kF32, {kBatch, kHeads, kSequence});
  AttentionBackwardArgs b;
  b.dims = r.dims;
  b.round = DType::kBF16;
  b.qkv = f.qkv;
  b.out = f.out;
  b.lse = f.lse;
  HEARTH_ASSIGN_OR_RETURN(b.d_out, memory.Bf16(r.d_out, {rows, q_width}));
  HEARTH_ASSIGN_OR_RETURN(b.d_qkv, memory.Bf16(r.qkv, {rows, width}));
  Exec with_scratch = exec;
  const size_t scratch =
      std::max(AttentionForwardWorkspaceBytes(exec, f), AttentionBackwardWorkspaceBytes(exec, b));
  HEARTH_ASSIGN_OR_RETURN(void* const workspace, memory.Take(scratch));
  with_scratch.workspace = {workspace, scratch};
  HEARTH_RETURN_IF_ERROR(AttentionForward(with_scratch, f));
  HEARTH_RETURN_IF_ERROR(AttentionBackward(with_scratch, b));
  HEARTH_ASSIGN_OR_RETURN(const double out, Error(exec, f.out, r.out));
  HEARTH_ASSIGN_OR_RETURN(const double gradient, Error(exec, b.d_qkv, r.d_qkv));
  return std::max(out, gradient);
}

// As HEARTH_ATTENTION calls it.
struct ProbedKernel {
  const char* name;
  bool own_stands_in;
};
constexpr ProbedKernel kKernels[] = {{"cudnn", true}, {"own", false}};
constexpr int64_t kHeadDims[] = {64, 128};

std::string ProbeName(const ProbedKernel& kernel, int64_t head_dim) {
  return absl::StrCat(kernel.name, " head ", head_dim);
}

}  // namespace

bool OwnKernelStandsIn(std::string_view name) {
  for (const ProbedKernel& kernel : kKernels) {
    for (const int64_t head_dim : kHeadDims) {
      if (name == ProbeName(kernel, head_dim)) {
        return kernel.own_stands_in;
      }
    }
  }
  return false;
}

std::vector<AttentionProbe> ProbeAttention(const Exec& exec) {
  std::vector<AttentionProbe> probes;
  if (exec.device != Device::kCuda || exec.cuda == nullptr) {
    return probes;
  }
  const char* before = GetEnv("HEARTH_ATTENTION");
  const std::string restore = before == nullptr ? "" : before;
  for (const ProbedKernel& kernel : kKernels) {
    SetEnv("HEARTH_ATTENTION", kernel.name);
    for (const int64_t head_dim : kHeadDims) {
      AttentionProbe probe;
      probe.name = ProbeName(kernel, head_dim);
      const absl::StatusOr<Reference> reference = MakeReference(head_dim);
      const absl::StatusOr<double> error =
          reference.ok() ? RunOnGpu(exec, *reference) : reference.status();
      probe.max_relative_error = error.ok() ? *error : 0;
      probe.ok = error.ok() && *error <= kTolerance;
      probe.status = !error.ok() ? std::string(error.status().message())
                     : probe.ok  ? "ok"
                                 : absl::StrCat("off by ", *error, " of the largest value");
      probes.push_back(probe);
    }
  }
  if (before == nullptr) {
    UnsetEnv("HEARTH_ATTENTION");
  } else {
    SetEnv("HEARTH_ATTENTION", restore.c_str());
  }
  return probes;
}

}  // namespace hearth::kernels
