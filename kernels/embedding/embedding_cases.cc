#include "kernels/embedding/embedding.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

struct Shape {
  const char* name;
  int64_t N, V, C, P;  // P = 0: no learned positions
  bool cuda_only = false;
};

constexpr Shape kShapes[] = {
    {"tokens_1x1", 1, 1, 1, 0},
    {"tokens_70x33", 70, 11, 33, 0},
    {"positions_48x40", 48, 13, 40, 16},
    // A few tokens with many rows each: runs that go on across several tiles of the sorted rows.
    {"frequent_500x24", 500, 3, 24, 0},
    {"rows_99x136", 99, 97, 136, 100},
    {"perf_8192x512", 8192, 8192, 512, 0},
    {"perf_36864x768_of_49152", 36864, 49152, 768, 0, true},
};

EmbeddingForwardArgs ForwardArgs(const Buffers& b) {
  return {.tokens = b["tokens"],
          .positions = b["positions"],
          .table = b["table"],
          .position_table = b["position_table"],
          .out = b["out"]};
}

EmbeddingBackwardArgs BackwardArgs(const Buffers& b) {
  return {.d_out = b["d_out"],
          .tokens = b["tokens"],
          .positions = b["positions"],
          .d_table = b["d_table"],
          .d_position_table = b["d_position_table"]};
}

OpCase MakeCase(const Shape& s) {
  OpCase c = NewCase("embedding", s.name);
  c.cuda_only = s.cuda_only;
  c.buffers = {Indices("tokens", {s.N}, 0, s.V),
               {"table", {s.V, s.C}},
               {"out", {s.N, s.C}, Role::kOutput},
               {"d_out", {s.N, s.C}},
               WeightGradient("d_table", {s.V, s.C})};
  c.outputs = {{"out", "d_out"}};
  c.inputs = {{"table", "d_table"}};
  if (s.P > 0) {
    c.buffers.push_back({"positions",
                         {s.N},
                         Role::kInput,
                         {Fill::kRamp, static_cast<double>(s.P), 0},
                         DType::kI32});
    c.buffers.push_back({"position_table", {s.P, s.C}});
    c.buffers.push_back(WeightGradient("d_position_table", {s.P, s.C}));
    c.inputs.push_back({"position_table", "d_position_table"});
  }
  c.forward = [](const Exec& exec, const Buffers& b) {
    return EmbeddingForward(exec, ForwardArgs(b));
  };
  c.backward = [](const Exec& exec, const Buffers& b) {
    return EmbeddingBackward(exec, BackwardArgs(b));
  };
  c.workspace = [](const Buffers& b, int) {
    return EmbeddingBackwardWorkspaceBytes(BackwardArgs(b));
  };
  c.reduction = s.N;
  // A row of the table for each row out; backward, about half of the rows read and written.
  c.forward_traffic = {"out", "out"};
  c.backward_traffic = {"d_out", "d_table"};
  return c;
}

}  // namespace

std::vector<OpCase> EmbeddingCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
