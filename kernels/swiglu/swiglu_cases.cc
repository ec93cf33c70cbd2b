#include "kernels/harness/cases.h"
#include "kernels/swiglu/swiglu.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N, F;
  double spread;  // standard deviation of the inputs; large values reach the flat ends
  bool perf;
};

constexpr Shape kShapes[] = {
    {"1x1", 1, 1, 1.0, false},
    {"33x19", 33, 19, 1.0, false},
    {"vectors_37x264", 37, 264, 1.0, false},  // whole packs of 8, odd rows, a part of a tile
    {"tiles_144x640", 144, 640, 2.0, false},
    {"wide_values_7x130", 7, 130, 30.0, false},
    {"perf_4096x1536", 4096, 1536, 1.0, true},
};

}  // namespace

std::vector<OpCase> SwigluCases() {
  std::vector<OpCase> cases;
  for (const Shape& s : kShapes) {
    OpCase c;
    c.op = "swiglu";
    c.name = s.name;
    c.buffers = {{"gate_up", {s.N, 2 * s.F}, Role::kInput, {Fill::kNormal, 0.0, s.spread}},
                 {"y", {s.N, s.F}, Role::kOutput},
                 {"dy", {s.N, s.F}},
                 {"d_gate_up", {s.N, 2 * s.F}, Role::kOutput}};
    c.outputs = {{"y", "dy"}};
    c.inputs = {{"gate_up", "d_gate_up"}};
    c.forward = [](const Exec& exec, const Buffers& b) {
      SwigluForwardArgs args;
      args.gate_up = b["gate_up"];
      args.y = b["y"];
      return SwigluForward(exec, args);
    };
    c.backward = [](const Exec& exec, const Buffers& b) {
      SwigluBackwardArgs args;
      args.dy = b["dy"];
      args.gate_up = b["gate_up"];
      args.d_gate_up = b["d_gate_up"];
      return SwigluBackward(exec, args);
    };
    c.perf = s.perf;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace hearth::kernels::harness
