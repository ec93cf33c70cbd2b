#include "worker/trainer/generate/generator.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/model/position_limit.h"
#include "common/spec/resolve/forward_job.h"
#include "kernels/core/rng.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gemm/gemm.h"
#include "kernels/thin_gemm/thin_gemm.h"
#include "worker/trainer/device/rank_device.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;
using spec::MemoryTier;

namespace {

// Rows of a prefill pass. 512 prompts of hearth-112m take 54 ms with 8192, 47 with 16384, 45 with
// 32768 on an H200; activations grow with them.
constexpr int64_t kPrefillRows = 16384;

// Passes of up to so many texts start their kernels early. With more the kernels are long, and what
// one asks for early delays the one before: 1 to 2 % from 128 texts on.
constexpr int64_t kEarlyStartTexts = 64;

// Tokens over which the magnitudes of activations are measured.
constexpr int64_t kMeasuredTokens = 64;

// ", training's forward pass of 8 x 1024 tokens 1.2 GB", or nothing.
std::string ScoringBytes(const spec::GenerationPlan& plan,
                         const std::optional<spec::TrainingPlanOptions>& pass) {
  return pass.has_value() ? absl::StrCat(", training's forward pass of ", pass->micro_batch, " x ",
                                         pass->sequence_length, " tokens ",
                                         FormatBytes(plan.memory.At(plan.ids.scoring).bytes))
                          : "";
}

int64_t PrefillBatch(int64_t batch, int64_t prompt) {
  return std::clamp<int64_t>(kPrefillRows / prompt, 1, batch);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Generator>> Generator::Create(const GeneratorOptions& options) {
  HEARTH_RETURN_IF_ERROR(kernels::CheckSamplingRule(options.rule));
  if (options.batch < 1 || options.prompt < 1 || options.length < options.prompt) {
    return absl::InvalidArgumentError(absl::StrCat("texts of ", options.length, " tokens with ",
                                                   options.prompt, " of a prompt, ", options.batch,
                                                   " at a time"));
  }
  std::unique_ptr<Generator> generator(new Generator(options));
  HEARTH_RETURN_IF_ERROR(generator->Plan());
  return generator;
}

Generator::~Generator() {
  if (exec_.stream == nullptr) {
    return;
  }
  static_cast<void>(kernels::Synchronize(exec_));
  // The graph holds addresses of all the others, so it goes first.
  graph_.reset();
  prefill_ = {};
  decode_ = {};
  scorer_.reset();
  arena_.reset();
  kernels::DeleteStream(exec_.stream);
}

absl::Status Generator::Plan() {
  spec::ForwardJob job;
  job.model = options_.model;
  job.data.set_sequence_length(static_cast<int32_t>(options_.length));
  job.recipe = options_.recipe;
  job.device = options_.cuda == nullptr ? "cpu" : "cuda";
  const std::optional<int64_t> limit = spec::PositionLimit(job.model);
  if (limit.has_value() && options_.length > *limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", options_.length, " tokens: the model learned ", *limit,
                     " positions; ask for fewer tokens or give a shorter prompt"));
  }
  HEARTH_ASSIGN_OR_RETURN(const v1::JobSpec job_spec, spec::ResolveForwardJob(job));
  HEARTH_ASSIGN_OR_RETURN(job_plan_,
                          spec::MakePlanInputs(job_spec, 1, options_.threads, /*training=*/false));
  HEARTH_ASSIGN_OR_RETURN(numerics_, MakeNumerics(*job_plan_->options.recipe,
                                                  spec::GradientFormats(table()), DType::kF32));
  job_plan_->options.precision = spec::ForwardPrecision(job_spec, *job_plan_->options.recipe,
                                                        static_cast<int>(shape().layers));
  HEARTH_RETURN_IF_ERROR(CheckProducts());
  exec_.threads = options_.threads;
  if (options_.cuda != nullptr) {
    exec_.device = kernels::Device::kCuda;
    exec_.cuda = options_.cuda;
    HEARTH_ASSIGN_OR_RETURN(exec_.stream, kernels::NewStream(*options_.cuda));
  }
  plan_options_.model = job_plan_->options;
  plan_options_.batch = options_.batch;
  plan_options_.length = options_.length;
  plan_options_.prompt = options_.prompt;
  plan_options_.prefill_batch = PrefillBatch(options_.batch, options_.prompt);
  if (options_.scoring.micro_batch != 0) {
    HEARTH_ASSIGN_OR_RETURN(plan_options_.scoring,
                            ScoringPlan(job_plan_->options, options_.scoring, options_.length));
  }
  HEARTH_ASSIGN_OR_RETURN(spec::GenerationPlan sizing, spec::PlanGeneration(plan_options_));
  HEARTH_RETURN_IF_ERROR(CheckFits(sizing));
  // Twice, as in Engine::Prepare: only bound models say how much scratch they need.
  HEARTH_RETURN_IF_ERROR(MeasureScratch(sizing));
  HEARTH_ASSIGN_OR_RETURN(spec::GenerationPlan plan, spec::PlanGeneration(plan_options_));
  HEARTH_RETURN_IF_ERROR(CheckFits(plan));
  return Allocate(std::move(plan));
}

absl::Status Generator::CheckProducts() const {
  const spec::PrecisionPlan& precision = job_plan_->options.precision;
  if (!precision.quantised()) {
    return absl::OkStatus();
  }
  const std::string name(precision.recipe->name);
  const int64_t unit = precision.recipe->extent_unit();
  for (const int i : spec::QuantisedParameters(table(), precision)) {
    const spec::Parameter& p = table()[static_cast<size_t>(i)];
    if (p.shape[0] % unit != 0 || p.shape[1] % unit != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights in ", name, " need sides that are multiples of ", unit, ": ",
                       p.name, " has ", p.shape[0], " x ", p.shape[1]));
    }
  }
  if (options_.cuda == nullptr || precision.NeedsFp8Units() == nullptr) {
    return absl::OkStatus();
  }
  const kernels::GpuProperties& gpu = options_.cuda->gpu();
  return spec::UnitsFor(*precision.recipe, gpu.major * 10 + gpu.minor).has_value()
             ? absl::OkStatus()
             : absl::UnimplementedError(absl::StrCat("weights in ", name, " need FP8 units, which ",
                                                     gpu.name, " lacks; take bf16"));
}

absl::Status Generator::CheckFits(const spec::GenerationPlan& plan) const {
  int64_t available = CpuMemoryBytes(1);
  if (options_.cuda != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(available, GpuMemoryBytes(*options_.cuda, 1));
  }
  const int64_t needed = plan.memory.arena_bytes(MemoryTier::kDevice);
  if (needed <= available) {
    return absl::OkStatus();
  }
  int64_t largest = 0;
  int64_t too_large = options_.batch;
  spec::GenerationPlanOptions smaller = plan_options_;
  // Scratch that is not known is estimated; that of this batch does not fit.
  smaller.prefill_workspace_bytes = smaller.decode_workspace_bytes = 0;
  if (smaller.scoring.has_value()) {
    smaller.scoring->op_workspace_bytes = 0;
  }
  while (largest + 1 < too_large) {
    smaller.batch = largest + (too_large - largest) / 2;
    smaller.prefill_batch = PrefillBatch(smaller.batch, smaller.prompt);
    HEARTH_ASSIGN_OR_RETURN(const spec::GenerationPlan tried, spec::PlanGeneration(smaller));
    (tried.memory.arena_bytes() <= available ? largest : too_large) = smaller.batch;
  }
  const int64_t cache = 2 * plan.memory.At(plan.ids.keys).bytes;
  return absl::ResourceExhaustedError(absl::StrCat(
      options_.batch, " texts of ", options_.length, " tokens at a time need ", FormatBytes(needed),
      " (weights ", FormatBytes(plan.memory.At(plan.ids.weights).bytes), ", keys and values ",
      FormatBytes(cache), ScoringBytes(plan, plan_options_.scoring), "), ", FormatBytes(available),
      " are available; ",
      largest > 0 ? absl::StrCat(largest, " at a time would fit")
                  : absl::StrCat("not even one would fit: ask for fewer tokens",
                                 options_.scoring.micro_batch > 0
                                     ? ", or for log-probabilities of generation"
                                     : "")));
}

CacheMemory Generator::CacheAt(const Arena& arena) const {
  const spec::ModelShape& s = shape();
  CacheMemory cache;
  cache.dims = {options_.batch, options_.length, s.heads, s.kv_heads, s.head_dim};
  cache.keys = arena.Floats(ids_.keys);
  cache.values = arena.Floats(ids_.values);
  cache.arrivals = arena.Typed(ids_.arrivals, DType::kI32);
  return cache;
}

absl::Status Generator::BindModel(int64_t micro_batch,
                                  int64_t sequence_length,
                                  PassModel& pass) const {
  ModelContext context;
  context.plan = job_plan_->options;
  context.plan.micro_batch = micro_batch;
  context.plan.sequence_length = sequence_length;
  context.numerics = numerics_;
  context.arena = pass.arena.get();
  context.parameters = parameters_.get();
  context.quant = quant_.get();
  context.cache = pass.cache.get();
  // The passes have no loss; whatever the objective, the head's weight is the same.
  pass.model = std::make_unique<Model>(context, *FindObjectiveDef(spec::ObjectiveKind::kPretrain));
  pass.exec = exec_;
  pass.exec.workspace = {pass.arena->Bytes(pass.arena->ids().workspace),
                         static_cast<size_t>(pass.arena->BytesOf(pass.arena->ids().workspace))};
  return absl::OkStatus();
}

absl::Status Generator::MeasureScratch(const spec::GenerationPlan& plan) {
  ids_ = plan.ids;
  const auto without = [this](const spec::TrainingPlan& part) {
    return Arena::WithoutMemory(part, exec_.device, DType::kF32);
  };
  const std::unique_ptr<Arena> all = without(plan.memory);
  const std::unique_ptr<Arena> weights = without(plan.weights);
  parameters_ = std::make_unique<ParameterStore>(table(), *weights, numerics_, false);
  quant_ = std::make_unique<QuantState>(job_plan_->options.precision, *parameters_, *weights);
  const CacheMemory cache = CacheAt(*all);
  PassModel prefill;
  prefill.arena = without(plan.prefill);
  prefill.cache = std::make_unique<PrefillCache>(cache, all->Typed(ids_.lengths, DType::kI32));
  HEARTH_RETURN_IF_ERROR(BindModel(plan_options_.prefill_batch, options_.prompt, prefill));
  PassModel decode;
  decode.arena = without(plan.decode);
  decode.cache = std::make_unique<DecodeCache>(
      cache, decode.arena->Typed(decode.arena->ids().batch.positions, DType::kI32));
  HEARTH_RETURN_IF_ERROR(BindModel(options_.batch, 1, decode));
  if (std::optional<spec::TrainingPlanOptions>& pass = plan_options_.scoring; pass.has_value()) {
    HEARTH_ASSIGN_OR_RETURN(const size_t bytes,
                            TextScorer::MeasureScratch(*pass, plan.scoring, *parameters_, exec_,
                                                       options_.scoring.documents));
    pass->op_workspace_bytes = static_cast<int64_t>(std::max<size_t>(bytes, 64));
  }
  kernels::SampleTokensArgs sample;
  sample.logits = all->Floats(ids_.logits);
  sample.vocab = shape().vocab;
  const size_t scratch = exec_.device == kernels::Device::kCuda
                             ? kernels::cuda::kGemmWorkspaceBytes
                             : kernels::SampleTokensWorkspaceBytes(sample, exec_.threads);
  plan_options_.prefill_workspace_bytes =
      static_cast<int64_t>(std::max<size_t>(prefill.model->HiddenWorkspaceBytes(exec_), 64));
  plan_options_.decode_workspace_bytes = static_cast<int64_t>(
      std::max({decode.model->HiddenWorkspaceBytes(exec_), scratch, size_t{64}}));
  return absl::OkStatus();
}

absl::Status Generator::Allocate(spec::GenerationPlan plan) {
  ids_ = plan.ids;
  HEARTH_ASSIGN_OR_RETURN(arena_, options_.cuda != nullptr
                                      ? Arena::AllocateOnGpu(std::move(plan.memory), exec_)
                                      : Arena::Allocate(std::move(plan.memory), DType::kF32));
  const auto within = [this](spec::TrainingPlan part, spec::BufferId at) {
    return Arena::Within(std::move(part), exec_, DType::kF32, arena_->Bytes(at));
  };
  weights_ = within(std::move(plan.weights), ids_.weights);
  parameters_ = std::make_unique<ParameterStore>(table(), *weights_, numerics_, false);
  quant_ = std::make_unique<QuantState>(job_plan_->options.precision, *parameters_, *weights_);
  prefill_.arena = within(std::move(plan.prefill), ids_.prefill);
  auto prefill_cache =
      std::make_unique<PrefillCache>(CacheAt(*arena_), arena_->Typed(ids_.lengths, DType::kI32));
  prefill_cache_ = prefill_cache.get();
  prefill_.cache = std::move(prefill_cache);
  HEARTH_RETURN_IF_ERROR(BindModel(plan_options_.prefill_batch, options_.prompt, prefill_));
  decode_.arena = within(std::move(plan.decode), ids_.decode);
  decode_.cache = std::make_unique<DecodeCache>(
      CacheAt(*arena_), decode_.arena->Typed(decode_.arena->ids().batch.positions, DType::kI32));
  HEARTH_RETURN_IF_ERROR(BindModel(options_.batch, 1, decode_));
  // Many short kernels one behind the other: what each needs to begin passes beside the one before.
  decode_.exec.early_start = options_.batch <= kEarlyStartTexts && kernels::EarlyStartAllowed();
  // A product has few rows here, and no pass writes weights.
  decode_.exec.thin_products = !kernels::ThinGemmAsked("0");
  if (plan_options_.scoring.has_value()) {
    HEARTH_ASSIGN_OR_RETURN(
        scorer_, TextScorer::Create(*plan_options_.scoring, std::move(plan.scoring), *parameters_,
                                    *arena_, ids_, exec_, options_.scoring.documents));
  }
  BindTexts();
  BindHost();
  for (std::unique_ptr<kernels::Event>& event : sent_) {
    HEARTH_ASSIGN_OR_RETURN(event, kernels::Event::New(exec_));
  }
  return absl::OkStatus();
}

void Generator::BindTexts() {
  const spec::TokenBuffers& batch = decode_.arena->ids().batch;
  sample_.logits = arena_->Floats(ids_.logits);
  sample_.streams = arena_->Typed(ids_.streams, DType::kI32);
  sample_.tokens = decode_.arena->Typed(batch.tokens, DType::kI32);
  sample_.positions = decode_.arena->Typed(batch.positions, DType::kI32);
  sample_.remaining = arena_->Typed(ids_.remaining, DType::kI32);
  sample_.drawn = arena_->Typed(ids_.drawn, DType::kI32);
  sample_.log_prob = arena_->Typed(ids_.log_prob, DType::kF32);
  sample_.vocab = shape().vocab;
  sample_.end_token = options_.end_token;
  BindRule(options_.rule);
}

void Generator::BindRule(const kernels::SamplingRule& rule) {
  sample_.rule = rule;
  // Nobody reads the tokens of a text but the penalty: without it they are not kept.
  sample_.seen =
      rule.repetition_penalty == 1.0 ? TensorView() : arena_->Typed(ids_.seen, DType::kI32);
}

absl::Status Generator::SetRule(const kernels::SamplingRule& rule) {
  HEARTH_RETURN_IF_ERROR(kernels::CheckSamplingRule(rule));
  if (graph_ != nullptr) {
    return absl::FailedPreconditionError("the passes are recorded with another sampling rule");
  }
  BindRule(rule);
  return absl::OkStatus();
}

void Generator::BindHost() {
  auto* at = reinterpret_cast<int32_t*>(arena_->Bytes(ids_.staging));
  if (at == nullptr) {
    host_words_.resize(static_cast<size_t>(spec::GenerationStagingBytes(plan_options_) / 4));
    at = host_words_.data();
  }
  const auto take = [&at](int64_t words) {
    int32_t* const taken = at;
    at += words;
    return taken;
  };
  const int64_t texts = plan_options_.prefill_batch;
  host_.prompt_tokens = take(texts * options_.prompt);
  host_.prompt_positions = take(texts * options_.prompt);
  host_.lengths = take(texts);
  host_.rows = take(texts);
  host_.positions = take(options_.batch);
  host_.remaining = take(options_.batch);
  host_.streams = take(options_.batch);
  host_.seen = take(options_.batch * SeenWords());
  for (int slot = 0; slot < spec::kDrawnSlots; ++slot) {
    const auto k = static_cast<size_t>(slot);
    host_.drawn[k] = take(options_.batch);
    host_.log_prob[k] = reinterpret_cast<float*>(take(options_.batch));
  }
}

Pass Generator::TextPass() const {
  Pass pass;
  pass.format = spec::OwnIf(!quant_->empty());
  return pass;
}

absl::Status Generator::FixScales() {
  HEARTH_RETURN_IF_ERROR(quant_->Reset(exec_));
  HEARTH_RETURN_IF_ERROR(quant_->StartWeights(exec_));
  const kernels::RngKey key{1, kernels::RngPurpose::kTest, 0, 0, 0};
  const auto vocab = static_cast<uint32_t>(shape().vocab);
  const size_t bytes = static_cast<size_t>(options_.batch) * 4;
  Pass measure;
  measure.record = true;
  for (int64_t t = 0; t < std::min(kMeasuredTokens, options_.length); ++t) {
    // The pass before has read what stands there.
    HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec_));
    const uint32_t token = kernels::RngWord(key, static_cast<uint64_t>(t)) % vocab;
    std::fill_n(host_.streams, options_.batch, static_cast<int32_t>(token));
    std::fill_n(host_.positions, options_.batch, static_cast<int32_t>(t));
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, sample_.tokens.data, host_.streams, bytes));
    HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, sample_.positions.data, host_.positions, bytes));
    HEARTH_RETURN_IF_ERROR(decode_.model->ForwardHidden(decode_.exec, measure));
  }
  scales_fixed_ = true;
  return quant_->FixActivations(exec_);
}

absl::Status Generator::Prepare() {
  if (graph_ != nullptr) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(quant_->empty() ? absl::OkStatus() : FixScales());
  if (options_.cuda == nullptr) {
    return absl::OkStatus();
  }
  // Each once as it is: plans of products are chosen, and kernels loaded, before anything is
  // recorded. No text is there: nothing is drawn.
  if (scorer_ != nullptr) {
    HEARTH_RETURN_IF_ERROR(scorer_->Score({{{0, 0}, 1}}).status());
  }
  HEARTH_RETURN_IF_ERROR(UploadTexts({}));
  std::fill_n(host_.lengths, plan_options_.prefill_batch, 0);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, arena_->Bytes(ids_.lengths), host_.lengths,
                                       static_cast<size_t>(plan_options_.prefill_batch) * 4));
  prefill_cache_->Read(0);
  HEARTH_RETURN_IF_ERROR(prefill_.model->ForwardHidden(prefill_.exec, TextPass()));
  // The passes share memory.
  HEARTH_RETURN_IF_ERROR(UploadTexts({}));
  HEARTH_RETURN_IF_ERROR(Decode());
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec_));
  if (!options_.graph) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(kernels::Graph::Begin(exec_));
  const absl::Status recorded = Decode();
  absl::StatusOr<std::unique_ptr<kernels::Graph>> graph = kernels::Graph::End(exec_, "decode pass");
  HEARTH_RETURN_IF_ERROR(recorded);
  HEARTH_RETURN_IF_ERROR(graph.status());
  graph_ = *std::move(graph);
  return absl::OkStatus();
}

absl::Status Generator::CheckStarts(absl::Span<const TextStart> starts) const {
  if (starts.empty() || static_cast<int64_t>(starts.size()) > options_.batch) {
    return absl::InvalidArgumentError(
        absl::StrCat(starts.size(), " texts, planned for 1 to ", options_.batch));
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    const TextStart& start = starts[i];
    if (start.tokens.empty() || static_cast<int64_t>(start.tokens.size()) > options_.prompt ||
        start.add < 1 || start.stream < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("text ", i, ": a prompt of ", start.tokens.size(), " tokens (1 to ",
                       options_.prompt, "), ", start.add, " to add, stream ", start.stream));
    }
    HEARTH_RETURN_IF_ERROR(CheckTokens(start.tokens, i));
  }
  return absl::OkStatus();
}

absl::Status Generator::CheckTokens(absl::Span<const int32_t> tokens, size_t text) const {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= shape().vocab) {
      return absl::InvalidArgumentError(absl::StrCat("text ", text, ": token ", token,
                                                     " is not in the model's vocabulary of ",
                                                     shape().vocab));
    }
  }
  return absl::OkStatus();
}

absl::Status Generator::Begin(absl::Span<const TextStart> starts) {
  HEARTH_RETURN_IF_ERROR(CheckStarts(starts));
  if (!quant_->empty() && !scales_fixed_) {
    return absl::FailedPreconditionError("the weights are not quantised yet: Prepare comes first");
  }
  launched_ = taken_ = 0;
  scored_ = false;
  for (int64_t first = 0; first < static_cast<int64_t>(starts.size());
       first += plan_options_.prefill_batch) {
    HEARTH_RETURN_IF_ERROR(Prefill(starts, first));
  }
  // After the last prefill, whose buffers lie over the state of decode passes.
  HEARTH_RETURN_IF_ERROR(UploadTexts(starts));
  HEARTH_RETURN_IF_ERROR(Draw(arena_->Floats(ids_.last)));
  return Send();
}

absl::Status Generator::Prefill(absl::Span<const TextStart> starts, int64_t first) {
  const int64_t texts = plan_options_.prefill_batch;
  const int64_t length = options_.prompt;
  // The pass before has read what stands there.
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec_));
  for (int64_t m = 0; m < texts; ++m) {
    const bool there = first + m < static_cast<int64_t>(starts.size());
    const absl::Span<const int32_t> tokens =
        there ? starts[static_cast<size_t>(first + m)].tokens : absl::Span<const int32_t>();
    const auto count = static_cast<int64_t>(tokens.size());
    host_.lengths[m] = static_cast<int32_t>(count);
    // The row of each prompt's last token, whose hidden values predict the first drawn one.
    host_.rows[m] = static_cast<int32_t>(m * length + std::max<int64_t>(count, 1) - 1);
    for (int64_t i = 0; i < length; ++i) {
      // Attention is causal: what stands behind a prompt has no influence on it.
      host_.prompt_tokens[m * length + i] = i < count ? tokens[static_cast<size_t>(i)] : 0;
      host_.prompt_positions[m * length + i] = static_cast<int32_t>(i);
    }
  }
  const spec::TokenBuffers& batch = prefill_.arena->ids().batch;
  const auto pass_bytes = static_cast<size_t>(texts * length) * 4;
  HEARTH_RETURN_IF_ERROR(
      kernels::Copy(exec_, prefill_.arena->Bytes(batch.tokens), host_.prompt_tokens, pass_bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, prefill_.arena->Bytes(batch.positions),
                                       host_.prompt_positions, pass_bytes));
  const size_t text_bytes = static_cast<size_t>(texts) * 4;
  HEARTH_RETURN_IF_ERROR(
      kernels::Copy(exec_, arena_->Bytes(ids_.lengths), host_.lengths, text_bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, arena_->Bytes(ids_.rows), host_.rows, text_bytes));
  // Where the keys and values of these texts lie in the cache.
  prefill_cache_->Read(first);
  HEARTH_RETURN_IF_ERROR(prefill_.model->ForwardHidden(prefill_.exec, TextPass()));
  // Rows of a table by their numbers are what an embedding gives.
  kernels::EmbeddingForwardArgs gather;
  // `last` has a row for each text of the batch: what the last pass has beyond them is not
  // gathered.
  const int64_t there = std::min(texts, options_.batch - first);
  const TensorView last = arena_->Floats(ids_.last);
  gather.tokens = arena_->Typed(ids_.rows, DType::kI32);
  gather.tokens.shape[0] = there;
  gather.table = prefill_.model->hidden();
  gather.out = TensorView(
      static_cast<void*>(last.as<uint8_t>() + kernels::DTypeBytes(last.dtype, first * last.cols())),
      last.dtype, {there, last.cols()});
  gather.round_out = numerics_.activation;
  return kernels::EmbeddingForward(exec_, gather);
}

absl::Status Generator::UploadTexts(absl::Span<const TextStart> starts) {
  const int64_t words = SeenWords();
  const bool seen = !sample_.seen.empty();
  for (int64_t b = 0; b < options_.batch; ++b) {
    const bool there = b < static_cast<int64_t>(starts.size());
    const TextStart start = there ? starts[static_cast<size_t>(b)] : TextStart();
    const auto count = static_cast<int64_t>(start.tokens.size());
    // The position of the last token that was read: SampleTokens goes on from it.
    host_.positions[b] = static_cast<int32_t>(std::max<int64_t>(count, 1) - 1);
    host_.remaining[b] =
        there ? static_cast<int32_t>(std::min(start.add, options_.length - count)) : 0;
    host_.streams[b] = start.stream;
    if (seen) {
      auto* const bits = reinterpret_cast<uint32_t*>(host_.seen + b * words);
      std::fill_n(bits, words, 0U);
      for (const int32_t token : start.tokens) {
        bits[token / 32] |= uint32_t{1} << (token % 32);
      }
    }
  }
  const size_t bytes = static_cast<size_t>(options_.batch) * 4;
  // The last token of a prompt has been read already: whatever stands there is never embedded.
  HEARTH_RETURN_IF_ERROR(kernels::Zero(exec_, sample_.tokens.data, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, sample_.positions.data, host_.positions, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, sample_.remaining.data, host_.remaining, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, sample_.streams.data, host_.streams, bytes));
  return seen ? kernels::Copy(exec_, sample_.seen.data, host_.seen,
                              static_cast<size_t>(options_.batch * words) * 4)
              : absl::OkStatus();
}

absl::Status Generator::Continue(const TextStart& start, int64_t kept) {
  const auto count = static_cast<int64_t>(start.tokens.size());
  if (options_.batch != 1 || launched_ == 0 || kept < 0 || kept >= count ||
      count >= options_.length || start.add < 1 || start.stream < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", count, " tokens, of which ", kept, " are kept, with ", start.add,
                     " to add, ", options_.batch, " at a time; it may have ", options_.length));
  }
  HEARTH_RETURN_IF_ERROR(CheckTokens(start.tokens, 0));
  // Passes that were launched ahead still write behind the text, where nothing is read.
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec_));
  launched_ = taken_ = 0;
  scored_ = false;
  HEARTH_RETURN_IF_ERROR(UploadTexts(absl::MakeConstSpan(&start, 1)));
  for (int64_t i = kept; i < count; ++i) {
    const bool last = i + 1 == count;
    // Only the last token draws: for the others the pass just keeps their keys and values.
    const int64_t remaining = last ? std::min(start.add, options_.length - count) : 0;
    HEARTH_RETURN_IF_ERROR(ReadToken(start.tokens[static_cast<size_t>(i)], i, remaining));
  }
  return Send();
}

absl::Status Generator::ReadToken(int32_t token, int64_t position, int64_t remaining) {
  // The pass before has read what stands there.
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(exec_));
  host_.prompt_tokens[0] = token;
  host_.positions[0] = static_cast<int32_t>(position);
  host_.remaining[0] = static_cast<int32_t>(remaining);
  constexpr size_t kWord = sizeof(int32_t);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, sample_.tokens.data, host_.prompt_tokens, kWord));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, sample_.positions.data, host_.positions, kWord));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, sample_.remaining.data, host_.remaining, kWord));
  return graph_ != nullptr ? graph_->Launch(exec_) : Decode();
}

absl::Status Generator::Draw(const TensorView& hidden) {
  HEARTH_RETURN_IF_ERROR(decode_.model->Logits(decode_.exec, hidden, sample_.logits));
  return kernels::SampleTokens(decode_.exec, sample_);
}

absl::Status Generator::Decode() {
  HEARTH_RETURN_IF_ERROR(decode_.model->ForwardHidden(decode_.exec, TextPass()));
  return Draw(decode_.model->hidden());
}

absl::Status Generator::Send() {
  const auto slot = static_cast<size_t>(launched_ % spec::kDrawnSlots);
  const size_t bytes = static_cast<size_t>(options_.batch) * 4;
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, host_.drawn[slot], sample_.drawn.data, bytes));
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec_, host_.log_prob[slot], sample_.log_prob.data, bytes));
  ++launched_;
  return sent_[slot]->Record(exec_);
}

absl::Status Generator::Launch() {
  if (scored_) {
    return absl::FailedPreconditionError("the texts were scored, which ends them");
  }
  // One slot stays with the caller, who reads what Take gave.
  if (launched_ == 0 || launched_ - taken_ >= spec::kDrawnSlots - 1) {
    return absl::FailedPreconditionError(
        launched_ == 0 ? "no text was begun" : "take what was drawn before more is launched");
  }
  HEARTH_RETURN_IF_ERROR(graph_ != nullptr ? graph_->Launch(exec_) : Decode());
  return Send();
}

absl::StatusOr<Drawn> Generator::Take() {
  if (taken_ == launched_) {
    return absl::FailedPreconditionError("everything that was drawn is taken");
  }
  const auto slot = static_cast<size_t>(taken_ % spec::kDrawnSlots);
  HEARTH_RETURN_IF_ERROR(sent_[slot]->Wait());
  ++taken_;
  const auto count = static_cast<size_t>(options_.batch);
  return Drawn{absl::MakeConstSpan(host_.drawn[slot], count),
               absl::MakeConstSpan(host_.log_prob[slot], count)};
}

absl::StatusOr<std::vector<std::vector<float>>> Generator::Score(
    absl::Span<const ScoreRequest> requests) {
  if (scorer_ == nullptr) {
    return absl::FailedPreconditionError("nothing is planned that scores texts");
  }
  taken_ = launched_;
  scored_ = true;
  return scorer_->Score(requests);
}

}  // namespace hearth::trainer
