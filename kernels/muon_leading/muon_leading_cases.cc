#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/device.h"
#include "kernels/harness/cases.h"
#include "kernels/muon_leading/muon_leading.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t rows, cols;
  int matrices = 1;
  bool skip = false;
  bool perf = false;
};

constexpr int kSteps = 3;

constexpr Shape kShapes[] = {
    {"16x16", 16, 16},
    {"48x208", 48, 208, 3},
    {"301x64", 301, 64, 2},
    {"33x1040_many", 33, 1040, 19},
    {"skipped_24x32", 24, 32, 1, true},
    // The matrices of hearth-112m: all of a layer's by their shapes.
    {"perf_112m_768x768", 768, 768, 24, false, true},
    {"perf_112m_2048x768", 2048, 768, 24, false, true},
    {"perf_112m_768x2048", 768, 2048, 12, false, true},
};

// The state of a matrix, in words of 16 bytes at `at`, which moves behind it. Codes are compared
// through the look aheads that follow from them: devices differ in some of them.
MuonLeadingMatrix StateAt(const Shape& s, uint8_t*& at) {
  const auto take = [&at](DType dtype, int64_t count) {
    const TensorView view(static_cast<void*>(at), dtype, {count});
    at += (view.bytes() + 15) / 16 * 16;
    return view;
  };
  MuonLeadingMatrix matrix;
  matrix.codes = take(DType::kU8, s.rows * s.cols / 2);
  matrix.scales = take(DType::kU8, s.rows * s.cols / formats::kLeadingBlock);
  matrix.left = take(DType::kBF16, s.rows * formats::kLeadingRank);
  matrix.right = take(DType::kBF16, s.cols * formats::kLeadingRank);
  matrix.unit = take(DType::kF32, 1);
  return matrix;
}

size_t StateBytes(const Shape& s) {
  uint8_t* at = nullptr;
  for (int i = 0; i < s.matrices; ++i) {
    StateAt(s, at);
  }
  return (reinterpret_cast<size_t>(at) + 63) / 64 * 64;
}

std::string Gradient(int step, int matrix) {
  return absl::StrCat("g", step, "_", matrix);
}

// Steps from a state of zeros, which lies in front of the op's scratch.
absl::Status Run(const Shape& s, const Exec& exec, const Buffers& b) {
  Exec rest = exec;
  auto* at = static_cast<uint8_t*>(exec.workspace.data);
  const size_t state_bytes = StateBytes(s);
  rest.workspace = {at + state_bytes, exec.workspace.bytes - state_bytes};
  if (!s.perf) {
    HEARTH_RETURN_IF_ERROR(Zero(exec, at, state_bytes));
  }
  std::vector<MuonLeadingMatrix> matrices;
  for (int i = 0; i < s.matrices; ++i) {
    matrices.push_back(StateAt(s, at));
    matrices.back().index = static_cast<uint32_t>(i);
  }
  MuonLeadingArgs args;
  args.matrices = matrices;
  args.grad_scale = b["grad_scale"].as<float>();
  args.skip = b["skip"].as<int32_t>();
  for (int step = 0; step < (s.perf ? 1 : kSteps); ++step) {
    for (int i = 0; i < s.matrices; ++i) {
      matrices[static_cast<size_t>(i)].grad = b[Gradient(step, i)];
    }
    HEARTH_RETURN_IF_ERROR(MuonLeading(rest, args));
  }
  return absl::OkStatus();
}

OpCase MakeCase(const Shape& s) {
  OpCase c{.op = "muon_leading", .name = s.name, .perf = s.perf, .cuda_only = s.perf};
  c.buffers = {
      {"grad_scale", {1}, Role::kInput, {Fill::kConstant, 0.75, 0.0}, DType::kU8},
      {"skip", {1}, Role::kInput, {Fill::kConstant, s.skip ? 1.0 : 0.0, 0.0}, DType::kI32}};
  for (int step = 0; step < (s.perf ? 1 : kSteps); ++step) {
    for (int i = 0; i < s.matrices; ++i) {
      BufferSpec gradient = WeightGradient(Gradient(step, i), {s.rows, s.cols});
      // One strong direction and noise; little in the first step, which keeps no direction apart.
      gradient.fill = step == 0 ? Fill{Fill::kNormal, 0.0, 0.001} : Fill{Fill::kNormal, 1.0, 0.05};
      c.buffers.push_back(gradient);
      c.forward_traffic.insert(c.forward_traffic.end(),
                               {gradient.name, gradient.name, gradient.name});
    }
  }
  c.forward = [s](const Exec& exec, const Buffers& b) { return Run(s, exec, b); };
  c.workspace = [s](const Buffers& b, int) {
    std::vector<MuonLeadingMatrix> matrices(static_cast<size_t>(s.matrices));
    for (MuonLeadingMatrix& matrix : matrices) {
      matrix.grad = b[Gradient(0, 0)];
    }
    return StateBytes(s) + std::max(MuonLeadingWorkspaceBytes(Device::kCpu, matrices),
                                    MuonLeadingWorkspaceBytes(Device::kCuda, matrices));
  };
  // Where a value lies between two codes a rounding decides: the rest is a 20th of the momentum,
  // and a code an eighth of the largest in its block.
  c.slack = s.skip ? 0.0 : 0.003 * 0x1p24;
  c.bf16_slack = s.skip ? 0.0 : 3.0;
  return c;
}

}  // namespace

std::vector<OpCase> MuonLeadingCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
