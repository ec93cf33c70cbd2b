// Writes texts with a model, token by token, several at a time.
//
//   Begin        reads the prompts in passes of some of them and draws the first token of each text
//   Launch       draws the next token of each text: one pass of one token a text
//   Take         what the oldest of these drew
//
// On a GPU both return before the work is done: Launch a pass or two ahead of Take, and the GPU
// never waits for the host. A pass is one graph there. On the CPU they have finished when they
// return.
//
// Model, weights, kernels and rounding are those of the trainer; only attention reads keys and
// values that are kept (kernels/cached_attention).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/spec/plan/generation_plan.h"
#include "common/spec/plan/plan_inputs.h"
#include "hearth/v1/job.pb.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device.h"
#include "kernels/sample_tokens/sample_tokens.h"
#include "worker/trainer/generate/cache_passes.h"
#include "worker/trainer/generate/text_scorer.h"
#include "worker/trainer/model/arena.h"
#include "worker/trainer/model/model.h"
#include "worker/trainer/model/parameter_store.h"
#include "worker/trainer/precision/numerics.h"
#include "worker/trainer/precision/quant_state.h"

namespace hearth::trainer {

struct GeneratorOptions {
  v1::ModelSpec model;  // vocabulary included
  // One of those that spec::GenerationRecipe takes; outlives Create.
  std::string_view recipe;
  int64_t batch = 1;   // texts at a time
  int64_t length = 1;  // tokens of a text, its prompt included
  int64_t prompt = 1;  // tokens of the longest prompt, <= length
  kernels::SamplingRule rule;
  int32_t end_token = -1;  // ends a text; -1: none does
  int threads = 1;
  // The GPU to run on, outlives the generator; null: the CPU.
  kernels::CudaContext* cuda = nullptr;
  // Whether a pass is launched as one graph. False: launch by launch, to look at one.
  bool graph = true;
  // What passes Score makes. A text must fit: length - 1 <= scoring.length.
  ScoringShape scoring;
};

// One text's beginning.
struct TextStart {
  absl::Span<const int32_t> tokens;  // 1 .. GeneratorOptions::prompt, of the vocabulary
  int32_t stream = 0;                // >= 0; a text is a function of it, the rule and its prompt
  // Tokens to add, > 0; fewer where the text would become longer than `length`.
  int64_t add = 1;
};

// What a pass drew, [batch] each; until the next Take.
struct Drawn {
  absl::Span<const int32_t> tokens;  // -1: this text was over
  absl::Span<const float> log_prob;  // of each (kernels/sample_tokens)
};

// Not movable. Used by one thread.
class Generator {
 public:
  // Weights are zero until they are loaded into parameters(). kInvalidArgument: sizes, rule, or a
  // model that learned fewer positions than `length`; kResourceExhausted: memory, with what it
  // needs and what would fit; kUnimplemented: a model or recipe that this device cannot run.
  static absl::StatusOr<std::unique_ptr<Generator>> Create(const GeneratorOptions& options);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // Once weights are loaded: a recipe that quantises makes the quantised weights and the scales of
  // activations, which then stay (FixScales); on a GPU the pass is recorded as a graph. Call it
  // again after other weights are loaded, as long as there is no graph.
  absl::Status Prepare();
  // The texts that begin from now on are drawn by `rule` instead of that of the options.
  // kInvalidArgument: a setting out of its range; kFailedPrecondition: a graph is recorded, which
  // holds its rule.
  absl::Status SetRule(const kernels::SamplingRule& rule);
  // `starts`: at most `batch` of them; texts before are forgotten, and what they drew.
  absl::Status Begin(absl::Span<const TextStart> starts);
  // After Begin, with a batch of one: the text becomes `start`, whose first `kept` tokens must be
  // those that the text had so far and the passes have read; their keys and values stay. Reads the
  // tokens behind them, at least one, one pass each, and draws the token that follows. `start` may
  // be longer than a prompt, and the text before may have been longer. What was drawn and is not
  // taken is dropped. kInvalidArgument: a larger batch, or no such beginning.
  absl::Status Continue(const TextStart& start, int64_t kept);
  // After Begin. At most kDrawnSlots of both may be untaken: kFailedPrecondition.
  absl::Status Launch();
  // kFailedPrecondition: everything is taken.
  absl::StatusOr<Drawn> Take();
  // Log-probabilities as training computes them (TextScorer::Score), where options.scoring asks for
  // it; else kFailedPrecondition. Takes the place of the passes: what was drawn and is not taken is
  // dropped, and only Begin or Continue may follow.
  absl::StatusOr<std::vector<std::vector<float>>> Score(absl::Span<const ScoreRequest> requests);

  const spec::ModelShape& shape() const { return job_plan_->options.shape; }
  const std::vector<spec::Parameter>& table() const { return job_plan_->table; }
  const ParameterStore& parameters() const { return *parameters_; }
  const kernels::Exec& exec() const { return exec_; }
  const spec::GenerationPlanOptions& plan_options() const { return plan_options_; }
  const spec::MemoryPlan& plan() const { return arena_->plan(); }
  // Logits of the last pass, [B, V padded].
  kernels::TensorView logits() const { return sample_.logits; }
  size_t graph_nodes() const { return graph_ == nullptr ? 0 : graph_->nodes(); }

 private:
  // A model bound to the buffers of one kind of pass.
  struct PassModel {
    std::unique_ptr<Arena> arena;
    std::unique_ptr<KeyValueCache> cache;
    std::unique_ptr<Model> model;
    kernels::Exec exec;
  };
  // The host's side: words of 4 bytes.
  struct HostMemory {
    int32_t* prompt_tokens = nullptr;     // [M, P]
    int32_t* prompt_positions = nullptr;  // [M, P]
    int32_t* lengths = nullptr;           // [M]
    int32_t* rows = nullptr;              // [M]
    int32_t* positions = nullptr;         // [B]
    int32_t* remaining = nullptr;
    int32_t* streams = nullptr;
    int32_t* seen = nullptr;  // [B, words]
    std::array<int32_t*, spec::kDrawnSlots> drawn = {};
    std::array<float*, spec::kDrawnSlots> log_prob = {};
  };

  explicit Generator(const GeneratorOptions& options) : options_(options) {}
  absl::Status Plan();
  // That this device and the model's sizes suit the recipe's products.
  absl::Status CheckProducts() const;
  absl::Status CheckFits(const spec::GenerationPlan& plan) const;
  absl::Status Allocate(spec::GenerationPlan plan);
  // Everything but `model` itself is bound: `pass.arena` and `pass.cache`.
  absl::Status BindModel(int64_t micro_batch, int64_t sequence_length, PassModel& pass) const;
  // Binds the passes' models without memory, to learn their scratch.
  absl::Status MeasureScratch(const spec::GenerationPlan& plan);
  void BindTexts();
  void BindRule(const kernels::SamplingRule& rule);
  void BindHost();
  CacheMemory CacheAt(const Arena& arena) const;
  int64_t SeenWords() const { return (shape().vocab + 31) / 32; }

  absl::Status CheckStarts(absl::Span<const TextStart> starts) const;
  // Checks that the tokens are in the vocabulary; `text` is named in the error.
  absl::Status CheckTokens(absl::Span<const int32_t> tokens, size_t text) const;
  absl::Status Prefill(absl::Span<const TextStart> starts, int64_t first);
  absl::Status UploadTexts(absl::Span<const TextStart> starts);
  // Reads one token of the only text at its position; the pass draws if the text may go on.
  absl::Status ReadToken(int32_t token, int64_t position, int64_t remaining);
  // Quantises the weights; measures activations in passes of the recipe's wider format over the
  // same made-up text in each place, so that the scales depend on the model alone.
  absl::Status FixScales();
  // What the texts' passes run in.
  Pass TextPass() const;
  // Logits of `hidden` [B, C] and the draw.
  absl::Status Draw(const kernels::TensorView& hidden);
  absl::Status Decode();
  // What the launched pass draws on its way to the host.
  absl::Status Send();

  const GeneratorOptions options_;
  std::unique_ptr<spec::PlanInputs> job_plan_;
  Numerics numerics_;
  spec::GenerationPlanOptions plan_options_;
  spec::GenerationBuffers ids_;
  kernels::Exec exec_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Arena> weights_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<QuantState> quant_;  // of both passes
  PassModel prefill_;
  PassModel decode_;
  PrefillCache* prefill_cache_ = nullptr;  // prefill_.cache
  std::unique_ptr<TextScorer> scorer_;     // null: texts are not scored
  kernels::SampleTokensArgs sample_;
  std::vector<int32_t> host_words_;  // CPU
  HostMemory host_;
  std::unique_ptr<kernels::Graph> graph_;
  std::array<std::unique_ptr<kernels::Event>, spec::kDrawnSlots> sent_;
  bool scales_fixed_ = false;
  bool scored_ = false;  // since the texts were begun or continued
  int64_t launched_ = 0;
  int64_t taken_ = 0;
};

}  // namespace hearth::trainer
