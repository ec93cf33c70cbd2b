#include "common/base/status_macros.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"
#include "kernels/harness/cases.h"
#include "kernels/sample_tokens/sample_tokens.h"

namespace hearth::kernels::harness {
namespace {

struct Shape : MatrixShape {  // the logits' rows; cols is the size of the vocabulary
  double spread;              // standard deviation of the logits
  SamplingRule rule;
  bool log_prob;        // alone: the drawn tokens are compared exactly in the other cases
  int64_t padding = 0;  // columns behind the vocabulary
  Fill::Kind fill = Fill::kNormal;
};

constexpr SamplingRule Rule(
    double temperature, int64_t top_k, double top_p, double min_p, double penalty) {
  SamplingRule rule;
  rule.temperature = temperature;
  rule.top_k = top_k;
  rule.top_p = top_p;
  rule.min_p = min_p;
  rule.repetition_penalty = penalty;
  return rule;
}

constexpr Shape kShapes[] = {
    {{"greedy_5x1001", 5, 1001}, 3.0, Rule(0, 0, 1, 0, 1), false},
    {{"greedy_penalty_5x1001", 5, 1001}, 3.0, Rule(0, 0, 1, 0, 1.3), false},
    {{"plain_9x1001", 9, 1001}, 3.0, Rule(1, 0, 1, 0, 1), false},
    {{"one_3x1", 3, 1}, 1.0, Rule(1, 0, 1, 0, 1), false},
    {{"two_7x2", 7, 2}, 1.0, Rule(1, 1, 0.5, 0.1, 1.1), false},
    {{"hot_33x4096", 33, 4096}, 2.0, Rule(1.7, 0, 1, 0, 1), false},
    {{"top_k_33x4096", 33, 4096}, 2.0, Rule(0.8, 40, 1, 0, 1), false},
    {{"top_k_1_5x300", 5, 300}, 2.0, Rule(0.8, 1, 1, 0, 1), false},
    {{"top_k_all_5x300", 5, 300}, 2.0, Rule(0.8, 300, 1, 0, 1), false},
    {{"top_p_33x4096", 33, 4096}, 2.0, Rule(1, 0, 0.9, 0, 1), false},
    {{"top_p_small_9x777", 9, 777}, 2.0, Rule(1, 0, 1e-9, 0, 1), false},
    {{"min_p_33x4096", 33, 4096}, 2.0, Rule(1, 0, 1, 0.05, 1), false},
    {{"all_33x9999", 33, 9999}, 4.0, Rule(0.9, 200, 0.8, 0.02, 1.2), false},
    {{"flat_9x5000", 9, 5000}, 0.0, Rule(1, 100, 0.3, 0, 1), false},
    {{"wide_4x50257", 4, 50257}, 3.0, Rule(0.7, 50, 0.95, 0, 1), false},
    {{"padded_9x1001", 9, 1001}, 3.0, Rule(0.9, 50, 0.9, 0, 1.1), false, 23},
    // On a GPU two, four or eight blocks share a row. The last may have little or nothing.
    {{"parts2_greedy_33x8191", 33, 8191}, 3.0, Rule(0, 0, 1, 0, 1.1), false},
    {{"parts2_plain_100x16384", 100, 16384}, 2.0, Rule(1, 0, 1, 0, 1), false},
    {{"parts4_plain_5x9217", 5, 9217}, 3.0, Rule(1, 0, 1, 0, 1), false},
    {{"parts4_all_3x12289", 3, 12289}, 3.0, Rule(0.8, 300, 0.9, 0.01, 1.2), false},
    {{"parts8_plain_3x151936", 3, 151936}, 3.0, Rule(1, 0, 1, 0, 1), false},
    {{"parts8_greedy_3x70001", 3, 70001}, 3.0, Rule(0, 0, 1, 0, 1), false},
    {{"parts8_hot_9x49152", 9, 49152}, 0.5, Rule(1.7, 0, 1, 0, 1), false},
    {{"parts8_top_k_3x70001", 3, 70001}, 3.0, Rule(0.8, 40, 1, 0, 1), false},
    {{"parts8_top_p_3x65536", 3, 65536}, 1.0, Rule(1, 0, 0.7, 0, 1), false},
    {{"parts8_flat_3x65536", 3, 65536}, 0.0, Rule(1, 1000, 0.5, 0, 1), false},
    // The vocabulary ends within the stretch of a thread that begins with its second, fourth or
    // eighth chunk. Flat, so that each chunk counts.
    {{"partial2_flat_9x4952", 9, 4952}, 0.0, Rule(1, 0, 1, 0, 1), false},
    {{"partial4_flat_300x16361", 300, 16361}, 0.0, Rule(1, 0, 1, 0, 1), false},
    {{"partial8_flat_300x32001", 300, 32001}, 0.0, Rule(1, 0, 1, 0, 1.1), false},
    {{"parts8_all_padded_3x50257", 3, 50257}, 3.0, Rule(0.9, 200, 0.9, 0.01, 1.1), false, 47},
    // One block a row: there are as many rows as blocks that run at once, or more.
    {{"parts1_plain_300x8193", 300, 8193}, 3.0, Rule(1, 0, 1, 0, 1), false},
    {{"parts1_all_300x8200", 300, 8200}, 3.0, Rule(1.3, 60, 0.9, 0.01, 1.2), false},
    // Rows that shared memory cannot hold: in bf16 too, and in f32 alone.
    {{"unstaged_plain_2x1048576", 2, 1048576}, 2.0, Rule(1, 0, 1, 0, 1), false},
    {{"unstaged_all_2x1048571", 2, 1048571}, 3.0, Rule(0.8, 400, 0.9, 0.01, 1.2), false},
    {{"unstaged_greedy_2x1048571", 2, 1048571}, 3.0, Rule(0, 0, 1, 0, 1), false},
    {{"unstaged_f32_top_p_3x524288", 3, 524288}, 2.0, Rule(0.7, 0, 0.8, 0, 1), false},
    // Limits among so many tokens that they are sought by digits; among none that weigh anything.
    {{"close_top_k_5x20001", 5, 20001}, 0.002, Rule(1, 9000, 1, 0, 1), false},
    {{"close_top_p_5x20001", 5, 20001}, 0.002, Rule(1, 15000, 0.6, 0, 1), false},
    {{"far_top_k_5x20001", 5, 20001}, 30.0, Rule(0.5, 19000, 0.99, 0, 1), false},
    {{"cold_all_9x5000", 9, 5000}, 3.0, Rule(1e-6, 40, 0.9, 0.1, 1.1), false},
    {{"hottest_all_9x5000", 9, 5000}, 3.0, Rule(1e6, 4000, 0.5, 0, 1.1), false},
    // Logits that are NaN or -infinity, some or all, and +infinity.
    {{"holes_plain_9x5001", 9, 5001}, 2.0, Rule(1, 0, 1, 0, 1), false, 0, Fill::kHoles},
    {{"holes_hot_9x5001", 9, 5001}, 2.0, Rule(1.7, 0, 1, 0, 1), false, 0, Fill::kHoles},
    {{"holes_top_k_9x5001", 9, 5001}, 2.0, Rule(1, 4900, 0.9, 0, 1), false, 0, Fill::kHoles},
    {{"holes_all_9x5001", 9, 5001}, 2.0, Rule(0.9, 90, 0.9, 0.01, 1.2), false, 0, Fill::kHoles},
    {{"holes_greedy_9x5001", 9, 5001}, 2.0, Rule(0, 0, 1, 0, 1.2), false, 0, Fill::kHoles},
    {{"extremes_9x5001", 9, 5001}, 1.0, Rule(1, 40, 0.9, 0, 1.2), false, 0, Fill::kExtremes},
    {{"parts8_log_prob_plain_5x50257", 5, 50257}, 3.0, Rule(1, 0, 1, 0, 1), true},
    {{"parts8_log_prob_hot_5x50264", 5, 50264}, 0.5, Rule(1.7, 0, 1, 0, 1), true},
    {{"parts8_log_prob_filters_5x50264", 5, 50264}, 3.0, Rule(1, 40, 1, 0, 1), true},
    {{"holes_log_prob_9x5001", 9, 5001}, 2.0, Rule(1, 0, 1, 0, 1), true, 0, Fill::kHoles},
    {{"parts8_log_prob_5x50257", 5, 50257}, 3.0, Rule(0.9, 0, 1, 0, 1), true},
    {{"parts8_log_prob_greedy_5x50257", 5, 50257}, 3.0, Rule(0, 0, 1, 0, 1.2), true},
    {{"log_prob_7x1001", 7, 1001}, 3.0, Rule(0.9, 20, 0.9, 0, 1), true},
    {{"perf_greedy_64x49152", 64, 49152}, 3.0, Rule(0, 0, 1, 0, 1), true},
    {{"perf_plain_64x49152", 64, 49152}, 3.0, Rule(1, 0, 1, 0, 1), true},
    {{"perf_filters_64x49152", 64, 49152}, 3.0, Rule(0.8, 40, 0.95, 0, 1), true},
    {{"perf_hot_64x49152", 64, 49152}, 3.0, Rule(0.8, 0, 1, 0, 1), true},
    {{"perf_top_p_64x49152", 64, 49152}, 3.0, Rule(1, 0, 0.9, 0, 1), true},
    {{"perf_plain_512x49152", 512, 49152}, 3.0, Rule(1, 0, 1, 0, 1), true},
    {{"perf_plain_512x151936", 512, 151936}, 3.0, Rule(1, 0, 1, 0, 1), true},
    {{"perf_plain_64x151936", 64, 151936}, 3.0, Rule(1, 0, 1, 0, 1), true},
    {{"perf_plain_1x151936", 1, 151936}, 3.0, Rule(1, 0, 1, 0, 1), true},
    {{"perf_filters_64x151936", 64, 151936}, 3.0, Rule(0.8, 40, 0.95, 0, 1), true},
};

BufferSpec State(const char* name, int64_t rows, Role role, Fill fill) {
  return {name, {rows}, role, fill, DType::kI32};
}

// Bits of arbitrary tokens. As words of eight bytes, which are compared bit for bit.
BufferSpec Seen(const Shape& s) {
  const int64_t words = s.rows * ((s.cols + 31) / 32);
  BufferSpec seen;
  seen.name = "seen";
  seen.shape = {(words + 1) / 2};
  seen.role = Role::kAccumulate;
  seen.dtype = DType::kI64;
  for (int64_t i = 0; i < (words + 1) / 2 * 8; ++i) {
    const uint32_t word = RngWord({kSeed, RngPurpose::kTest, 7, 0, 0}, static_cast<uint64_t>(i));
    seen.contents.push_back(static_cast<char>(word & (word >> 8)));
  }
  return seen;
}

// Where only time counts, buffers that change begin as zeros: texts that are over.
absl::Status Continue(const Exec& exec, const Buffers& b) {
  const TensorView remaining = b["remaining"];
  const std::vector<int32_t> left(static_cast<size_t>(remaining.numel()), 1 << 30);
  HEARTH_RETURN_IF_ERROR(Copy(exec, remaining.data, left.data(), remaining.bytes()));
  return Synchronize(exec);
}

OpCase MakeCase(const Shape& s) {
  OpCase c = NewCase("sample_tokens", s.name);
  c.buffers = {{"logits", {s.rows, s.cols + s.padding}, Role::kInput, {s.fill, 0.0, s.spread}},
               State("streams", s.rows, Role::kInput, {Fill::kIndex, 0.0, 1000.0}),
               State("tokens", s.rows, Role::kAccumulate, {Fill::kConstant, 7.0}),
               State("positions", s.rows, Role::kAccumulate, {Fill::kIndex, 0.0, 5000.0}),
               // Some rows are done, some are at their last token.
               State("remaining", s.rows, Role::kAccumulate, {Fill::kIndex, 0.0, 4.0}),
               State("drawn", s.rows, Role::kOutput, {})};
  c.buffers.push_back(Seen(s));
  if (s.log_prob) {
    c.buffers.push_back(Statistic("log_prob", {s.rows}));
  }
  c.forward = [s](const Exec& exec, const Buffers& b) {
    SampleTokensArgs args;
    args.logits = b["logits"];
    args.streams = b["streams"];
    args.seen = TensorView(b["seen"].data, DType::kI32, {s.rows, (s.cols + 31) / 32});
    args.tokens = b["tokens"];
    args.positions = b["positions"];
    args.remaining = b["remaining"];
    args.drawn = b["drawn"];
    args.log_prob = s.log_prob ? b["log_prob"] : TensorView();
    args.rule = s.rule;
    args.vocab = s.cols;
    args.end_token = 3;
    return SampleTokens(exec, args);
  };
  c.workspace = [](const Buffers& b, int threads) {
    SampleTokensArgs args;
    args.logits = b["logits"];
    return SampleTokensWorkspaceBytes(args, threads);
  };
  c.slack = s.log_prob ? 8.0 : 0.0;
  c.reduction = s.cols;
  c.prepare = Continue;
  return c;
}

}  // namespace

std::vector<OpCase> SampleTokensCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
