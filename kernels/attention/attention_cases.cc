#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "common/base/system.h"
#include "kernels/attention/attention.h"
#include "kernels/harness/cases.h"

namespace hearth::kernels::harness {
namespace {

constexpr int64_t kDoubled = -1;  // documents of 1, 2, 4 .. tokens

struct Shape {
  const char* name;
  AttentionDims dims;
  int64_t document;  // length of each; 0: the sequence is one, without starts
  bool perf;
  int64_t slots = 0;  // AttentionArgs::documents
};

constexpr Shape kShapes[] = {
    {"1x1x1x1x1", {1, 1, 1, 1, 1}, 0, false},
    {"2x9x2x2x4", {2, 9, 2, 2, 4}, 0, false},
    {"gqa_2x65x6x2x5", {2, 65, 6, 2, 5}, 0, false},
    {"mqa_1x130x4x1x16", {1, 130, 4, 1, 16}, 0, false},
    {"documents_2x131x2x1x8", {2, 131, 2, 1, 8}, 37, false},
    {"documents_short_1x70x2x2x4", {1, 70, 2, 2, 4}, 3, false},
    {"gqa_2x130x4x2x64", {2, 130, 4, 2, 64}, 0, false},
    {"mha_1x257x2x2x64", {1, 257, 2, 2, 64}, 0, false},
    {"gqa_1x257x4x1x128", {1, 257, 4, 1, 128}, 0, false},
    {"exact_1x128x3x1x128", {1, 128, 3, 1, 128}, 0, false},
    {"narrow_1x200x2x1x40", {1, 200, 2, 1, 40}, 0, false},
    {"between_1x140x2x1x96", {1, 140, 2, 1, 96}, 0, false},
    {"wide_1x70x2x1x256", {1, 70, 2, 1, 256}, 0, false},
    {"documents_2x130x4x2x64", {2, 130, 4, 2, 64}, 41, false},
    {"documents_1x300x2x1x128", {1, 300, 2, 1, 128}, 77, false},
    {"long_1x2048x2x1x64", {1, 2048, 2, 1, 64}, 0, false},
    {"long_1x2048x1x1x128", {1, 2048, 1, 1, 128}, 0, false},
    {"long_documents_1x2048x2x1x64", {1, 2048, 2, 1, 64}, 300, false},
    {"one_document_1x2048x2x1x64", {1, 2048, 2, 1, 64}, 2048, false},
    {"documents_64_1x2048x4x2x64", {1, 2048, 4, 2, 64}, 64, false},
    {"documents_129_1x2048x2x2x128", {1, 2048, 2, 2, 128}, 129, false},
    {"documents_500_2x2048x4x2x64", {2, 2048, 4, 2, 64}, 500, false},
    {"documents_1200_2x2048x4x2x64", {2, 2048, 4, 2, 64}, 1200, false},
    {"documents_200_2x256x4x2x128", {2, 256, 4, 2, 128}, 200, false},
    {"slots_one_2x512x4x2x64", {2, 512, 4, 2, 64}, 512, false, 2},
    {"slots_one_2x512x4x1x128", {2, 512, 4, 1, 128}, 512, false, 2},
    {"slots_short_2x512x4x2x64", {2, 512, 4, 2, 64}, 16, false, 64},
    {"slots_129_2x512x2x2x128", {2, 512, 2, 2, 128}, 129, false, 8},
    {"slots_empty_2x512x4x2x64", {2, 512, 4, 2, 64}, 300, false, 13},
    {"slots_doubling_2x512x4x2x64", {2, 512, 4, 2, 64}, kDoubled, false, 20},
    {"slots_doubling_empty_2x512x2x1x128", {2, 512, 2, 1, 128}, kDoubled, false, 31},
    {"slots_of_one_token_1x128x2x1x64", {1, 128, 2, 1, 64}, 1, false, 128},
    {"slots_odd_2x257x4x2x64", {2, 257, 4, 2, 64}, 77, false, 9},
    {"slots_one_2x2048x4x2x64", {2, 2048, 4, 2, 64}, 2048, false, 2},
    {"slots_one_empty_2x2048x2x1x128", {2, 2048, 2, 1, 128}, 2048, false, 8},
    {"slots_300_2x2048x4x2x64", {2, 2048, 4, 2, 64}, 300, false, 14},
    {"slots_short_1x2048x2x2x128", {1, 2048, 2, 2, 128}, 40, false, 60},
    {"slots_doubling_2x2048x4x1x64", {2, 2048, 4, 1, 64}, kDoubled, false, 26},
    {"perf_8x512x8x4x64", {8, 512, 8, 4, 64}, 0, true},
    {"perf_18x2048x12x3x64", {18, 2048, 12, 3, 64}, 0, true},
    {"perf_16x1024x12x2x128", {16, 1024, 12, 2, 128}, 0, true},
    {"perf_documents_2048_18x2048x12x3x64", {18, 2048, 12, 3, 64}, 2048, true},
    {"perf_documents_512_18x2048x12x3x64", {18, 2048, 12, 3, 64}, 512, true},
    {"perf_documents_300_18x2048x12x3x64", {18, 2048, 12, 3, 64}, 300, true},
    {"perf_documents_128_18x2048x12x3x64", {18, 2048, 12, 3, 64}, 128, true},
    {"perf_slots_2048_18x2048x12x3x64", {18, 2048, 12, 3, 64}, 2048, true, 18},
    {"perf_slots_2048_of_72_18x2048x12x3x64", {18, 2048, 12, 3, 64}, 2048, true, 72},
    {"perf_slots_1024_of_72_18x2048x12x3x64", {18, 2048, 12, 3, 64}, 1024, true, 72},
    {"perf_slots_512_of_72_18x2048x12x3x64", {18, 2048, 12, 3, 64}, 512, true, 72},
};

// What both directions take.
template <typename Args>
Args ArgsOf(const Shape& s, const Buffers& b) {
  Args args;
  args.dims = s.dims;
  args.qkv = b["qkv"];
  if (s.document != 0) {
    args.starts = b["starts"];
    args.documents = s.slots;
  }
  args.out = b["out"];
  args.lse = b["lse"];
  return args;
}

AttentionForwardArgs ForwardArgs(const Shape& s, const Buffers& b) {
  return ArgsOf<AttentionForwardArgs>(s, b);
}

AttentionBackwardArgs BackwardArgs(const Shape& s, const Buffers& b) {
  auto args = ArgsOf<AttentionBackwardArgs>(s, b);
  args.d_out = b["d_out"];
  args.d_qkv = b["d_qkv"];
  return args;
}

OpCase MakeCase(const Shape& s) {
  const AttentionDims& d = s.dims;
  const int64_t rows = d.batch * d.sequence;
  const int64_t width = (d.heads + 2 * d.kv_heads) * d.head_dim;
  OpCase c{.op = "attention", .name = s.name, .perf = s.perf};
  c.buffers = {{"qkv", {rows, width}},
               {"out", {rows, d.heads * d.head_dim}, Role::kOutput},
               Statistic("lse", {d.batch, d.heads, d.sequence}),
               {"d_out", {rows, d.heads * d.head_dim}},
               {"d_qkv", {rows, width}, Role::kOutput}};
  // cuDNN sums dQ with atomics; documents of any number run on our own kernels.
  const char* choice = GetEnv("HEARTH_ATTENTION");
  const std::string_view name = choice == nullptr ? "" : choice;
  c.buffers.back().cuda_repeatable =
      name == "own" || (s.document != 0 && s.slots == 0 && name != "cudnn");
  if (s.document != 0) {
    c.buffers.push_back({"starts",
                         {rows},
                         Role::kInput,
                         {s.document == kDoubled ? Fill::kDoubling : Fill::kStarts,
                          static_cast<double>(d.sequence), static_cast<double>(s.document)},
                         DType::kI32});
  }
  c.outputs = {{"out", "d_out"}};
  c.inputs = {{"qkv", "d_qkv"}};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    return AttentionForward(exec, ForwardArgs(s, b));
  };
  c.backward = [s](const Exec& exec, const Buffers& b) {
    return AttentionBackward(exec, BackwardArgs(s, b));
  };
  c.workspace = [s](const Buffers& b, int threads) {
    // On a GPU: our own kernels' row sums, or the most that a plan of cuDNN's is taken with, the
    // scores' gradients of a fixed order among it.
    const size_t all = static_cast<size_t>(s.dims.batch * s.dims.heads * s.dims.sequence);
    const size_t scores = std::min(all * static_cast<size_t>(s.dims.sequence) * 2, size_t{2} << 30);
    const size_t gpu =
        b["qkv"].dtype == DType::kBF16
            ? all * static_cast<size_t>(s.dims.head_dim) * 24 + scores + (size_t{65} << 20)
            : all * sizeof(float);
    return std::max({gpu, cpu::AttentionForwardWorkspaceBytes(ForwardArgs(s, b), threads),
                     cpu::AttentionBackwardWorkspaceBytes(BackwardArgs(s, b), threads)});
  };
  c.reduction = d.sequence + d.head_dim;
  // The CPU's double run of the long ones is enough; float and repeats would take it minutes.
  c.cuda_only = s.perf ? d.batch * d.sequence > 8192 : d.sequence >= 2048;
  // Probabilities, score gradients and outputs are rounded to bf16, 0.17 % rms each.
  c.bf16_slack = 1.1;
  // Causal: half of the scores count, whatever documents hide.
  c.forward_flops =
      2.0 * static_cast<double>(d.batch * d.heads * d.sequence * d.sequence * d.head_dim);
  c.backward_flops = 2.5 * c.forward_flops;
  return c;
}

}  // namespace

std::vector<OpCase> AttentionCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
