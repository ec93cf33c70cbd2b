#include "worker/trainer/rank/evaluation/samples.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clip_text.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/dataset/tokenize/choose_tokenizer.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/model/position_limit.h"
#include "worker/trainer/generate/text_request.h"
#include "worker/trainer/generate/text_writer.h"
#include "worker/trainer/model/upload.h"

namespace hearth::trainer {
namespace {

// Tokens of prompts that one generator reads together: a prefill of so many rows takes no longer
// than another copy of the weights.
constexpr size_t kShortPrompt = 64;
// A prompt is read in as many rows as the longest of its generator has. Those of one generator are
// at most this many times as long as its shortest.
constexpr size_t kLongestToShortest = 4;

// The shape of the trained model alone: a generator starts from no folder.
v1::ModelSpec ShapeOf(v1::ModelSpec model) {
  model.clear_from();
  model.clear_preset();
  model.clear_dropout();
  return model;
}

absl::Status CopyWeights(const Engine& from, const Generator& to) {
  if (from.table().size() != to.table().size()) {
    return absl::InternalError(absl::StrCat("a model of ", from.table().size(),
                                            " parameters as one of ", to.table().size()));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Upload> upload, Upload::New(to.exec()));
  std::vector<float> host;
  for (int i = 0; i < to.parameters().size(); ++i) {
    const kernels::TensorView& weight = from.whole_weight(i);
    if (weight.numel() != to.parameters().weight(i).numel()) {
      return absl::InternalError(absl::StrCat("parameter ", i, " has ", weight.numel(),
                                              " elements, and for texts ",
                                              to.parameters().weight(i).numel()));
    }
    host.resize(static_cast<size_t>(weight.numel()));
    HEARTH_RETURN_IF_ERROR(from.parameters().Read(from.exec(), weight, host.data()));
    const auto values = [&host](int64_t first, absl::Span<float> out) {
      std::copy_n(host.begin() + first, out.size(), out.begin());
      return absl::OkStatus();
    };
    HEARTH_RETURN_IF_ERROR(to.parameters().WriteParameter(to.exec(), *upload, i, values));
  }
  return to.parameters().RefreshWeights(to.exec());
}

}  // namespace

absl::StatusOr<Samples> Samples::Open(const v1::JobSpec& spec,
                                      const std::string& tokenizer_from,
                                      Env& env) {
  Samples samples;
  if (spec.train().samples().empty()) {
    return samples;
  }
  if (tokenizer_from.empty()) {
    return absl::InvalidArgumentError(
        "train.samples: no dataset of data.train records a tokenizer, which prompts and texts "
        "need");
  }
  HEARTH_ASSIGN_OR_RETURN(samples.tokenizer_, dataset::OpenTokenizerIn(tokenizer_from, env));
  for (int i = 0; i < spec.train().samples_size(); ++i) {
    const v1::TextRequest& text = spec.train().samples(i);
    const std::string at = absl::StrCat("train.samples[", i, "]");
    HEARTH_RETURN_IF_ERROR(Annotate(kernels::CheckSamplingRule(RuleOf(text)), at));
    absl::StatusOr<std::vector<int32_t>> prompt =
        EncodePrompt(text.prompt(), *samples.tokenizer_, spec.model());
    if (!prompt.ok()) {
      return Annotate(prompt.status(), at);
    }
    samples.requests_.push_back({text, *std::move(prompt)});
  }
  return samples;
}

absl::StatusOr<std::unique_ptr<Generator>> Samples::NewGenerator(const WriteOptions& options,
                                                                 size_t shortest) const {
  if (options.at_pass != nullptr) {
    HEARTH_RETURN_IF_ERROR(options.at_pass());
  }
  const size_t longest = std::max(kShortPrompt, kLongestToShortest * shortest);
  GeneratorOptions wanted;
  wanted.model = ShapeOf(options.engine->options().spec.model());
  wanted.recipe = "fp32";
  for (const Request& request : requests_) {
    if (request.prompt.size() > longest) {
      continue;
    }
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    wanted.prompt = std::max(wanted.prompt, prompt);
    wanted.length = std::max(wanted.length, prompt + TokensOf(request.text));
  }
  wanted.length = spec::WithinPositions(wanted.model, wanted.length);
  wanted.end_token = tokenizer_->eos();
  wanted.threads = options.threads;
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Generator> generator, Generator::Create(wanted));
  HEARTH_RETURN_IF_ERROR(CopyWeights(*options.engine, *generator));
  HEARTH_RETURN_IF_ERROR(generator->Prepare());
  return generator;
}

absl::StatusOr<v1::SampleText> Samples::WriteOne(const WriteOptions& options,
                                                 const Request& request,
                                                 Generator& generator) const {
  HEARTH_RETURN_IF_ERROR(generator.SetRule(RuleOf(request.text)));
  WritingOptions writing;
  writing.tokens = TokensOf(request.text);
  writing.stops.assign(request.text.stop().begin(), request.text.stop().end());
  writing.at_pass = options.at_pass;
  WritingTimes times;
  HEARTH_ASSIGN_OR_RETURN(
      const std::vector<WrittenText> written,
      WriteTexts(generator, *tokenizer_, absl::MakeConstSpan(&request.prompt, 1), writing,
                 *options.clock, times));
  v1::SampleText sample;
  sample.set_prompt(request.text.prompt());
  sample.set_text(std::string(ClipBytes(Characters(written[0].text), spec::kSampleTextBytesMax)));
  sample.set_end(EndOf(written[0].end));
  sample.set_tokens(static_cast<int32_t>(written[0].tokens.size()));
  return sample;
}

absl::Status Samples::Write(const WriteOptions& options, v1::StepReport& report) const {
  if (requests_.empty()) {
    return absl::OkStatus();
  }
  std::vector<std::optional<v1::SampleText>> texts(requests_.size());
  const absl::Status written = WriteShortestFirst(options, texts);
  for (std::optional<v1::SampleText>& text : texts) {
    if (text.has_value()) {
      *report.add_samples() = *std::move(text);
    }
  }
  return written;
}

absl::Status Samples::WriteShortestFirst(const WriteOptions& options,
                                         std::vector<std::optional<v1::SampleText>>& texts) const {
  std::vector<size_t> order(requests_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    return requests_[a].prompt.size() < requests_[b].prompt.size();
  });
  std::unique_ptr<Generator> generator;
  // One at a time, so that each draws as it would alone.
  for (const size_t i : order) {
    const Request& request = requests_[i];
    if (generator == nullptr ||
        static_cast<int64_t>(request.prompt.size()) > generator->plan_options().prompt) {
      generator.reset();  // before the next one takes memory
      HEARTH_ASSIGN_OR_RETURN(generator, NewGenerator(options, request.prompt.size()));
    }
    HEARTH_ASSIGN_OR_RETURN(texts[i], WriteOne(options, request, *generator));
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
