#include <array>

#include "kernels/adamw/adamw.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t first, second;  // elements of two tensors; the second has no decay and no working copy
  int64_t step;
  bool perf;
};

constexpr Shape kShapes[] = {
    {"step1_1_3", 1, 3, 1, false},
    {"step1000_20011_77", 20011, 77, 1000, false},
    {"perf_8m", int64_t{8} << 20, 1, 100, true},
};

absl::Status Run(const Shape& s, const Exec& exec, const Buffers& b) {
  std::array<AdamWTensor, 2> tensors;
  tensors[0].master = b["p0"];
  tensors[0].m = b["m0"];
  tensors[0].v = b["v0"];
  tensors[0].grad = b["g0"];
  tensors[0].working = b["w0"];
  tensors[0].weight_decay = 0.1;
  tensors[1].master = b["p1"];
  tensors[1].m = b["m1"];
  tensors[1].v = b["v1"];
  tensors[1].grad = b["g1"];
  tensors[1].lr_scale = 0.5;
  const float grad_scale = 0.75F;
  AdamWArgs args;
  args.tensors = tensors;
  args.lr = 1e-2;
  args.step = s.step;
  args.grad_scale = &grad_scale;
  return AdamWStep(exec, args);
}

}  // namespace

std::vector<OpCase> AdamWCases() {
  std::vector<OpCase> cases;
  for (const Shape& s : kShapes) {
    OpCase c;
    c.op = "adamw";
    c.name = s.name;
    const Fill positive = {Fill::kUniform, 0.0, 1.0};
    c.buffers = {{"p0", {s.first}, Role::kAccumulate},
                 {"m0", {s.first}, Role::kAccumulate},
                 {"v0", {s.first}, Role::kAccumulate, positive},
                 {"g0", {s.first}},
                 {"w0", {s.first}, Role::kOutput},
                 {"p1", {s.second}, Role::kAccumulate},
                 {"m1", {s.second}, Role::kAccumulate},
                 {"v1", {s.second}, Role::kAccumulate, positive},
                 {"g1", {s.second}}};
    c.forward = [s](const Exec& exec, const Buffers& b) { return Run(s, exec, b); };
    c.perf = s.perf;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace hearth::kernels::harness
