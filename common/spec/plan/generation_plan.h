// The memory of a program that writes texts: weights, the keys and values of the tokens so far,
// what its two kinds of pass need, and the state of the texts. Texts are written `batch` at a time.
//
// A prefill pass reads the beginnings (prompts) of some of them, a decode pass one token of each. A
// scoring pass, where there is one, reads whole texts as training does; it comes when they are
// written, and lies where the other passes lie.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "common/spec/plan/step_buffers.h"
#include "common/spec/plan/training_plan.h"

namespace hearth::spec {

struct GenerationPlanOptions {
  // Shape, table, recipe, precision, threads and wide_bytes; `training` is false. Not read:
  // micro_batch, sequence_length, store.
  TrainingPlanOptions model;
  int64_t batch = 1;          // B
  int64_t length = 1;         // L, tokens of a text, its prompt included
  int64_t prompt = 1;         // P, tokens of the longest prompt; <= L
  int64_t prefill_batch = 1;  // M, prompts of a pass; <= B
  // Scratch of the largest op; 0 = not known yet.
  int64_t prefill_workspace_bytes = 0;
  int64_t decode_workspace_bytes = 0;
  // The scoring pass; nothing: there is none. Not read: training, store, scores.
  std::optional<TrainingPlanOptions> scoring;
};

// Handles in GenerationPlan::memory.
struct GenerationBuffers {
  BufferId weights;  // bytes of GenerationPlan::weights
  BufferId prefill;  // and so on
  BufferId decode;
  BufferId keys;      // [L layers * B, Hkv, L, D]
  BufferId values;    // the same
  BufferId arrivals;  // [B, Hkv] i32, zeros (kernels/cached_attention)
  BufferId last;      // [B, C]: the final norm's output at the last token of each prompt
  BufferId logits;    // [B, V padded]
  // [B] i32 of each text (kernels/sample_tokens).
  BufferId streams;
  BufferId remaining;
  BufferId drawn;
  BufferId log_prob;  // [B] f32
  BufferId seen;      // [B, ceil(V / 32)] i32
  BufferId lengths;   // [M] i32, of a prefill pass: tokens of each prompt
  BufferId rows;      // [M] i32: and where the last of them lies in the pass
  BufferId scoring;   // bytes of GenerationPlan::scoring
  BufferId losses;    // two f64, the sums of a scoring pass
  BufferId staging;   // pinned; only on a GPU
  // What the host hands to a scoring pass (BatchLayout), and behind it [N] f32 that it gives; as
  // staging.
  BufferId scoring_staging;
};

// Device memory is one allocation, of memory.arena_bytes(); the plans of the passes lie in it.
struct GenerationPlan {
  TrainingPlan memory;
  TrainingPlan weights;  // the parameters; quantised, also that form of them and the scales
  TrainingPlan prefill;  // without weights
  TrainingPlan decode;
  TrainingPlan scoring;  // with scores; empty: there is none
  GenerationBuffers ids;
};

// Draws of all texts that may be on their way from a GPU at one time.
inline constexpr int kDrawnSlots = 4;

// What the host hands over and gets, words of 4 bytes: tokens and positions [M, P], lengths and
// rows [M]; positions, remaining and streams [B], seen; drawn and log_prob [B] of each slot.
int64_t GenerationStagingBytes(const GenerationPlanOptions& options);

// The placed plan. kInvalidArgument on impossible options.
absl::StatusOr<GenerationPlan> PlanGeneration(const GenerationPlanOptions& options);

// Bytes that a decode pass over texts of `tokens` tokens must read: the weights that it multiplies
// with, and the keys and values of all texts. `element_bytes`: of a cached element.
int64_t DecodeBytes(const GenerationPlanOptions& options, int64_t tokens, int64_t element_bytes);

}  // namespace hearth::spec
