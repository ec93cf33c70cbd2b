#include "worker/trainer/generate/generator.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/system.h"
#include "common/spec/resolve/forward_job.h"
#include "gtest/gtest.h"
#include "kernels/core/rng.h"
#include "tests/support/trainer/test_model.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kVocab = 37;
constexpr int64_t kLength = 40;

// The families, and settings that they share kernels but not code with.
struct Case {
  const char* name;
  v1::ModelSpec model;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& family : Families()) {
    cases.push_back({"", TinyModel(family)});
    if (family == "gpt2") {
      cases.back().model.set_max_position(kLength);
    }
  }
  for (const char* const type : {"linear", "llama3"}) {
    v1::ModelSpec scaled = TinyModel("llama");
    v1::RopeScaling& scaling = *scaled.mutable_rope_scaling();
    scaling.set_type(type);
    scaling.set_factor(4);
    scaling.set_original_max_position(16);
    if (std::string(type) == "llama3") {
      scaling.set_low_freq_factor(1);
      scaling.set_high_freq_factor(4);
    }
    cases.push_back({type, scaled});
  }
  v1::ModelSpec biased = TinyModel("llama");
  biased.set_norm("layernorm");
  biased.set_attention_bias("all");
  biased.set_mlp_bias(true);
  biased.set_activation("gelu");
  cases.push_back({"layernorm, rope, gelu and biases", biased});
  v1::ModelSpec alone = TinyModel("llama");
  alone.set_kv_heads(1);
  cases.push_back({"one key/value head", alone});
  return cases;
}

// Every weight of its own, biases and norms too; `deviation`: of the matrices' weights.
void FillWeights(const ParameterStore& parameters, double deviation = 0.3) {
  for (int i = 0; i < parameters.size(); ++i) {
    const spec::Parameter& p = parameters.table()[static_cast<size_t>(i)];
    const kernels::TensorView& weight = parameters.weight(i);
    const kernels::RngKey key = {11, kernels::RngPurpose::kTest, 0, 0, static_cast<uint32_t>(i)};
    const bool ones = p.init == spec::Init::kOnes;
    kernels::FillNormal(key, 0, ones ? 1.0 : 0.0, ones || p.is_bias ? 0.1 : deviation,
                        weight.as<float>(), p.logical_elements());
  }
}

GeneratorOptions Options(const v1::ModelSpec& model, int64_t batch) {
  GeneratorOptions options;
  options.model = model;
  options.recipe = "fp32";
  options.batch = batch;
  options.length = kLength;
  options.prompt = 9;
  options.rule.temperature = 0;
  return options;
}

std::unique_ptr<Generator> Make(const GeneratorOptions& options) {
  absl::StatusOr<std::unique_ptr<Generator>> generator = Generator::Create(options);
  EXPECT_TRUE(generator.ok()) << generator.status();
  FillWeights((*generator)->parameters());
  EXPECT_TRUE((*generator)->Prepare().ok());
  return *std::move(generator);
}

std::vector<std::vector<int32_t>> Prompts() {
  return {{5, 11, 2}, {7}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {36, 0, 36, 0}};
}

struct Text {
  std::vector<int32_t> tokens;
  std::vector<float> log_prob;
  std::vector<std::vector<float>> logits;  // [tokens][V] they were drawn of
};

// `add` tokens behind each prompt, the streams numbered from `first` on.
std::vector<Text> Write(Generator& generator,
                        const std::vector<std::vector<int32_t>>& prompts,
                        int64_t add,
                        int32_t first = 0) {
  std::vector<TextStart> starts;
  for (const std::vector<int32_t>& prompt : prompts) {
    starts.push_back({prompt, first + static_cast<int32_t>(starts.size()), add});
  }
  std::vector<Text> texts(prompts.size());
  EXPECT_TRUE(generator.Begin(starts).ok());
  for (int64_t t = 0; t < add; ++t) {
    EXPECT_TRUE(t == 0 || generator.Launch().ok());
    const absl::StatusOr<Drawn> drawn = generator.Take();
    EXPECT_TRUE(drawn.ok());
    const kernels::TensorView logits = generator.logits();
    for (size_t i = 0; i < texts.size(); ++i) {
      if (drawn->tokens[i] < 0) {
        continue;
      }
      texts[i].tokens.push_back(drawn->tokens[i]);
      texts[i].log_prob.push_back(drawn->log_prob[i]);
      const float* row = logits.as<float>() + static_cast<int64_t>(i) * logits.cols();
      texts[i].logits.emplace_back(row, row + kVocab);
    }
  }
  return texts;
}

// The trainer's own forward, without a cache, over sequences of `length` tokens.
class Forward {
 public:
  Forward(const v1::ModelSpec& model, int64_t length) : length_(length) {
    spec::ForwardJob job;
    job.model = model;
    job.data.set_sequence_length(static_cast<int32_t>(length));
    EngineOptions options;
    options.spec = *spec::ResolveForwardJob(job);
    options.training = false;
    engine_ = *Engine::Create(options);
    FillWeights(engine_->parameters());
  }
  // Logits [V] behind tokens[0 .. at].
  std::vector<float> Logits(const std::vector<int32_t>& tokens, int64_t at) {
    const BatchBuffers batch = engine_->model().batch();
    for (int64_t i = 0; i < length_; ++i) {
      const bool there = i < static_cast<int64_t>(tokens.size());
      batch.tokens[i] = there ? tokens[static_cast<size_t>(i)] : 0;
      batch.position[i] = static_cast<int32_t>(i);
    }
    std::vector<float> logits(kVocab);
    EXPECT_TRUE(engine_->model()
                    .ForwardLogits(engine_->exec(), at, kernels::View(logits.data(), {1, kVocab}))
                    .ok());
    return logits;
  }

 private:
  int64_t length_;
  std::unique_ptr<Engine> engine_;
};

double LogProbability(const std::vector<float>& logits, int32_t token) {
  double sum = 0;
  for (const float l : logits) {
    sum += std::exp(static_cast<double>(l));
  }
  return logits[static_cast<size_t>(token)] - std::log(sum);
}

// Greedy texts and their logits, against the trainer's forward over the whole text.
std::vector<Text> ExpectLogitsOfForward(const v1::ModelSpec& model) {
  const auto prompts = Prompts();
  const auto generator = Make(Options(model, 4));
  std::vector<Text> texts = Write(*generator, prompts, 25);
  Forward forward(model, kLength);
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t> tokens = prompts[i];
    EXPECT_EQ(texts[i].tokens.size(), 25);
    for (size_t t = 0; t < texts[i].tokens.size(); ++t) {
      const std::vector<float> want =
          forward.Logits(tokens, static_cast<int64_t>(tokens.size()) - 1);
      const float largest = *std::max_element(want.begin(), want.end());
      for (size_t k = 0; k < want.size(); ++k) {
        // fp32 sums of a hundred terms in another order, in two layers.
        EXPECT_NEAR(texts[i].logits[t][k], want[k], 2e-5 * (1 + std::fabs(largest)))
            << "text " << i << ", token " << t;
      }
      const int32_t token = texts[i].tokens[t];
      EXPECT_GE(want[static_cast<size_t>(token)], largest - 2e-5 * (1 + std::fabs(largest)));
      EXPECT_NEAR(texts[i].log_prob[t], LogProbability(want, token), 5e-5);
      tokens.push_back(token);
    }
  }
  return texts;
}

TEST(Generator, EveryFamily_GivesTheLogitsOfTheTrainersForward) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name + c.model.ShortDebugString());
    ExpectLogitsOfForward(c.model);
  }
}

// As long as it lives, products of the CPU apply norms. No other thread runs.
class NormsInProducts {
 public:
  NormsInProducts() { EXPECT_TRUE(SetEnv("HEARTH_THIN_GEMM", "always")); }
  ~NormsInProducts() { UnsetEnv("HEARTH_THIN_GEMM"); }
  NormsInProducts(const NormsInProducts&) = delete;
  NormsInProducts& operator=(const NormsInProducts&) = delete;
};

// Where products apply the norms the stream goes through other buffers.
TEST(Generator, NormsInProducts_GiveTheLogitsOfTheTrainersForward) {
  UnsetEnv("HEARTH_THIN_GEMM");
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name + c.model.ShortDebugString());
    const std::vector<Text> apart = ExpectLogitsOfForward(c.model);
    const NormsInProducts norms;
    const std::vector<Text> texts = ExpectLogitsOfForward(c.model);
    // LayerNorms stay apart; with the others some sum rounds differently.
    EXPECT_EQ(texts[0].logits == apart[0].logits, c.model.norm() == "layernorm");
  }
}

v1::ModelSpec WithFfn(v1::ModelSpec model, int32_t width) {
  model.set_ffn_hidden(width);
  return model;
}
v1::ModelSpec WithOneHeadOf(v1::ModelSpec model, int32_t head_dim) {
  model.set_kv_heads(1);
  model.set_head_dim(head_dim);
  return model;
}

// A product whose width is no multiple of 8 leaves the norm to its own op: in one of the two blocks
// of each layer, or in the other.
TEST(Generator, NormsInSomeProducts_GiveTheLogitsOfTheTrainersForward) {
  const v1::ModelSpec llama = TinyModel("llama");
  for (const v1::ModelSpec& model : {WithFfn(llama, 18), WithOneHeadOf(llama, 6)}) {
    SCOPED_TRACE(model.ShortDebugString());
    const NormsInProducts norms;
    ExpectLogitsOfForward(model);
  }
}

TEST(Generator, Batch_GivesEachTextThatItHasAlone) {
  for (const std::string& family : Families()) {
    SCOPED_TRACE(family);
    GeneratorOptions options = Options(TinyModel(family), 4);
    options.rule.temperature = 0.9;
    options.rule.top_k = 20;
    options.rule.repetition_penalty = 1.1;
    if (family == "gpt2") {
      options.model.set_max_position(kLength);
    }
    const auto prompts = Prompts();
    const auto together = Make(options);
    const std::vector<Text> texts = Write(*together, prompts, 20);
    options.batch = 1;
    const auto alone = Make(options);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const std::vector<Text> one = Write(*alone, {prompts[i]}, 20, static_cast<int32_t>(i));
      EXPECT_EQ(one[0].tokens, texts[i].tokens) << i;
      for (size_t t = 0; t < one[0].log_prob.size(); ++t) {
        EXPECT_NEAR(one[0].log_prob[t], texts[i].log_prob[t], 2e-5);
      }
    }
  }
}

TEST(Generator, SetRule_DrawsAsOneMadeWithIt) {
  GeneratorOptions options = Options(TinyModel("llama"), 4);
  const auto prompts = Prompts();
  const auto generator = Make(options);
  const std::vector<Text> greedy = Write(*generator, prompts, 20);
  kernels::SamplingRule rule;
  rule.temperature = 2;
  rule.repetition_penalty = 3;
  rule.seed = 5;
  ASSERT_TRUE(generator->SetRule(rule).ok());
  const std::vector<Text> drawn = Write(*generator, prompts, 20);
  ASSERT_TRUE(generator->SetRule(options.rule).ok());
  const std::vector<Text> back = Write(*generator, prompts, 20);
  options.rule = rule;
  const std::vector<Text> made = Write(*Make(options), prompts, 20);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_NE(drawn[i].tokens, greedy[i].tokens) << i;
    EXPECT_EQ(drawn[i].tokens, made[i].tokens) << i;
    EXPECT_EQ(back[i].tokens, greedy[i].tokens) << i;
  }
  rule.top_p = 2;
  EXPECT_EQ(generator->SetRule(rule).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Generator, PromptsInSeveralPasses_AndAgain_GiveTheSame) {
  GeneratorOptions options = Options(TinyModel("llama"), 5);
  options.prompt = 6000;  // two prompts of a pass
  options.length = 6010;
  const auto generator = Make(options);
  EXPECT_EQ(generator->plan_options().prefill_batch, 2);
  auto prompts = Prompts();
  prompts.push_back({9, 9});
  const std::vector<Text> first = Write(*generator, prompts, 6);
  const std::vector<Text> again = Write(*generator, prompts, 6);
  const auto whole = Make(Options(TinyModel("llama"), 5));
  const std::vector<Text> short_prompts = Write(*whole, prompts, 6);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(first[i].tokens, again[i].tokens);
    EXPECT_EQ(first[i].log_prob, again[i].log_prob);
    EXPECT_EQ(first[i].tokens, short_prompts[i].tokens);
  }
}

TEST(Generator, Length_EndsATextThatIsFull) {
  GeneratorOptions options = Options(TinyModel("llama"), 2);
  options.length = 12;
  const auto generator = Make(options);
  const std::vector<Text> texts = Write(*generator, {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1}}, 11);
  EXPECT_EQ(texts[0].tokens.size(), 3);
  EXPECT_EQ(texts[1].tokens.size(), 11);
}

TEST(Generator, EndToken_EndsItsTextAlone) {
  GeneratorOptions options = Options(TinyModel("qwen2"), 2);
  const auto free = Make(options);
  const std::vector<std::vector<int32_t>> prompts = {{1, 2}, {30}};
  const std::vector<Text> texts = Write(*free, prompts, 12);
  options.end_token = texts[0].tokens[2];
  const auto generator = Make(options);
  const std::vector<Text> ended = Write(*generator, prompts, 12);
  const auto first = std::find(texts[0].tokens.begin(), texts[0].tokens.end(), options.end_token);
  EXPECT_EQ(ended[0].tokens, std::vector<int32_t>(texts[0].tokens.begin(), first + 1));
  const auto other = std::find(texts[1].tokens.begin(), texts[1].tokens.end(), options.end_token);
  EXPECT_EQ(ended[1].tokens,
            std::vector<int32_t>(texts[1].tokens.begin(),
                                 other == texts[1].tokens.end() ? other : other + 1));
}

TEST(Generator, HostileStarts_AreRefused) {
  const auto generator = Make(Options(TinyModel("llama"), 2));
  const std::vector<int32_t> good = {1, 2};
  const std::vector<int32_t> long_one(10, 1);
  const std::vector<int32_t> unknown = {1, static_cast<int32_t>(kVocab)};
  const std::vector<int32_t> negative = {-1};
  const std::vector<TextStart> wrong[] = {
      {},
      {{good, 0, 1}, {good, 1, 1}, {good, 2, 1}},
      {{{}, 0, 1}},
      {{long_one, 0, 1}},
      {{unknown, 0, 1}},
      {{negative, 0, 1}},
      {{good, -1, 1}},
      {{good, 0, 0}},
  };
  for (const auto& starts : wrong) {
    EXPECT_EQ(generator->Begin(starts).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(generator->Launch().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(generator->Take().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(generator->Begin({{good, 0, 30}}).ok());
  absl::Status status;
  for (int i = 0; i < spec::kDrawnSlots && status.ok(); ++i) {
    status = generator->Launch();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Generator, WhatCannotBe_IsRefusedWithItsFigures) {
  GeneratorOptions learned = Options(TinyModel("gpt2"), 1);
  learned.model.set_max_position(16);
  const absl::Status positions = Generator::Create(learned).status();
  EXPECT_EQ(positions.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(positions.message().find("learned 16 positions"), std::string::npos) << positions;

  GeneratorOptions rule = Options(TinyModel("llama"), 1);
  rule.rule.top_p = 2;
  EXPECT_EQ(Generator::Create(rule).status().code(), absl::StatusCode::kInvalidArgument);

  GeneratorOptions sizes = Options(TinyModel("llama"), 1);
  sizes.length = sizes.prompt - 1;
  EXPECT_EQ(Generator::Create(sizes).status().code(), absl::StatusCode::kInvalidArgument);

  ASSERT_TRUE(SetEnv("HEARTH_MEMORY_BYTES", "3000000", true));
  const absl::Status memory = Generator::Create(Options(TinyModel("llama"), 10000)).status();
  unsetenv("HEARTH_MEMORY_BYTES");  // NOLINT(concurrency-mt-unsafe): no other thread runs
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(memory.message().find("10000 texts of 40 tokens"), std::string::npos) << memory;
  EXPECT_NE(memory.message().find("at a time would fit"), std::string::npos) << memory;
}

// FP8 products take multiples of 16.
v1::ModelSpec Fp8Model(const std::string& family) {
  v1::ModelSpec model = TinyModel(family);
  model.set_hidden(32);
  model.set_head_dim(8);
  model.set_ffn_hidden(48);
  if (family == "gpt2") {
    model.set_max_position(kLength);
  }
  return model;
}

std::unique_ptr<Generator> MakeIn(const char* recipe, const v1::ModelSpec& model, int64_t batch) {
  GeneratorOptions options = Options(model, batch);
  options.recipe = recipe;
  options.prompt = kLength;
  absl::StatusOr<std::unique_ptr<Generator>> generator = Generator::Create(options);
  EXPECT_TRUE(generator.ok()) << generator.status();
  FillWeights((*generator)->parameters(), 0.1);
  EXPECT_TRUE((*generator)->Prepare().ok());
  return *std::move(generator);
}

// ||a - b|| / ||b||.
double Apart(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / norm);
}

// E4M3 keeps 3 fraction bits: an operand is off by up to 1/16, 2.6 % rms, and four products follow
// one another in each of the two layers: 7 to 16 % of the logits together. Those of another model
// would be more than 1 apart.
TEST(Generator, Fp8Weights_GiveLogitsNearThoseOfBf16) {
  for (const std::string& family : Families()) {
    SCOPED_TRACE(family);
    const v1::ModelSpec model = Fp8Model(family);
    const std::vector<Text> wide = Write(*MakeIn("bf16", model, 4), Prompts(), 1);
    const std::vector<Text> narrow = Write(*MakeIn("fp8", model, 4), Prompts(), 1);
    for (size_t i = 0; i < wide.size(); ++i) {
      const double apart = Apart(narrow[i].logits[0], wide[i].logits[0]);
      EXPECT_LT(apart, 0.25) << "text " << i;
      EXPECT_GT(apart, 1e-4) << "text " << i << ": nothing was quantised";
    }
  }
}

// The scales hold for all passes: what was read token by token has the same codes as when it is
// read at once, but where a sum's rounding falls on the other side.
TEST(Generator, Fp8Weights_CachedIsAsComputedAgain) {
  for (const std::string& family : Families()) {
    SCOPED_TRACE(family);
    const v1::ModelSpec model = Fp8Model(family);
    const auto prompts = Prompts();
    const std::vector<Text> texts = Write(*MakeIn("fp8", model, 4), prompts, 12);
    const std::unique_ptr<Generator> again = MakeIn("fp8", model, 1);
    for (size_t i = 0; i < prompts.size(); ++i) {
      std::vector<int32_t> tokens = prompts[i];
      for (size_t t = 0; t < texts[i].tokens.size(); ++t) {
        const std::vector<Text> one = Write(*again, {tokens}, 1);
        EXPECT_LT(Apart(texts[i].logits[t], one[0].logits[0]), 0.1) << i << ", token " << t;
        tokens.push_back(texts[i].tokens[t]);
      }
    }
  }
}

// The magnitudes that fix the scales are those of what norms write, so norms stay apart there.
TEST(Generator, Fp8Weights_HaveTheSameScalesWithNormsInProducts) {
  UnsetEnv("HEARTH_THIN_GEMM");
  const v1::ModelSpec model = Fp8Model("llama");
  const std::vector<Text> apart = Write(*MakeIn("fp8", model, 4), Prompts(), 12);
  const NormsInProducts norms;
  const std::vector<Text> texts = Write(*MakeIn("fp8", model, 4), Prompts(), 12);
  for (size_t i = 0; i < apart.size(); ++i) {
    EXPECT_EQ(texts[i].logits, apart[i].logits) << "text " << i;
  }
}

TEST(Generator, Fp8Weights_WhatCannotBe_NamesItself) {
  GeneratorOptions options = Options(TinyModel("llama"), 1);
  options.recipe = "fp8";
  const absl::Status sizes = Generator::Create(options).status();
  EXPECT_EQ(sizes.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(sizes.message().find("weights in fp8 need sides that are multiples of 16"),
            std::string::npos)
      << sizes;
  options.model = Fp8Model("llama");
  const auto generator = Generator::Create(options);
  ASSERT_TRUE(generator.ok()) << generator.status();
  const std::vector<int32_t> prompt = {1, 2};
  EXPECT_EQ((*generator)->Begin({{prompt, 0, 1}}).code(), absl::StatusCode::kFailedPrecondition)
      << "nothing is quantised yet";
}

TEST(GenerationPlan, Fp8_ReadsAByteOfEachQuantisedWeight) {
  const auto wide = MakeIn("bf16", Fp8Model("llama"), 2);
  const auto narrow = MakeIn("fp8", Fp8Model("llama"), 2);
  int64_t quantised = 0;
  for (const spec::Parameter& p : narrow->table()) {
    quantised += narrow->plan_options().model.precision.Quantises(p) ? p.elements() : 0;
  }
  EXPECT_GT(quantised, 0);
  EXPECT_EQ(spec::DecodeBytes(wide->plan_options(), 10, 2) -
                spec::DecodeBytes(narrow->plan_options(), 10, 2),
            quantised)
      << "one of two bytes";
  EXPECT_GT(narrow->plan().arena_bytes(), wide->plan().arena_bytes());
}

TEST(GenerationPlan, HoldsWhatItSays) {
  const auto generator = Make(Options(TinyModel("llama"), 3));
  const spec::GenerationPlanOptions& o = generator->plan_options();
  const spec::GenerationPlan plan = *spec::PlanGeneration(o);
  // 2 layers of 3 texts, 2 heads of 4, 40 tokens, in fp32.
  EXPECT_EQ(plan.memory.At(plan.ids.keys).bytes, 2 * 3 * 2 * 4 * 40 * 4);
  EXPECT_FALSE(plan.prefill.ids.store.parameters.exists());
  EXPECT_FALSE(plan.decode.ids.store.parameters.exists());
  int64_t elements = 0;
  for (const spec::Parameter& p : generator->table()) {
    elements += p.slot == spec::Slot::kTokenEmbedding ? 0 : p.elements();  // llama is untied here
  }
  EXPECT_EQ(spec::DecodeBytes(o, 10, 4), elements * 4 + int64_t{3} * 10 * 2 * 2 * 8 * 4);
  spec::GenerationPlanOptions wrong = o;
  wrong.prefill_batch = 4;
  EXPECT_EQ(spec::PlanGeneration(wrong).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::trainer
