#include "worker/trainer/generate/text_writer.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kPassesAhead = 2;

constexpr std::string_view kLogProbsNames[] = {"generation", "training"};

// One group of texts on its way.
class Group {
 public:
  Group(Generator& generator,
        dataset::Tokenizer& tokenizer,
        absl::Span<const std::vector<int32_t>> prompts,
        size_t first,
        const WritingOptions& options)
      : generator_(generator),
        tokenizer_(tokenizer),
        prompts_(prompts),
        first_(first),
        options_(options),
        texts_(prompts.size()),
        over_(prompts.size(), false),
        left_(prompts.size()) {
    for (const std::string& stop : options.stops) {
      longest_stop_ = std::max(longest_stop_, stop.size());
    }
  }

  absl::Status Begin() {
    HEARTH_RETURN_IF_ERROR(AtPass());
    std::vector<TextStart> starts;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      TextStart start;
      start.tokens = prompts_[i];
      // Random numbers belong to the text, not to its place in a batch: another batch size draws
      // with the same ones.
      start.stream = static_cast<int32_t>(first_ + i);
      start.add = options_.tokens;
      starts.push_back(start);
      const auto room = generator_.plan_options().length - static_cast<int64_t>(prompts_[i].size());
      left_[i] = std::min(options_.tokens, room);
      if (left_[i] < 1) {
        return absl::InvalidArgumentError("a prompt leaves no room for a token");
      }
      passes_ = std::max(passes_, left_[i]);
    }
    return generator_.Begin(starts);
  }

  // The draw of the oldest pass; keeps the generator busy behind it.
  absl::Status Step() {
    HEARTH_RETURN_IF_ERROR(AtPass());
    // The first was launched by Begin.
    while (launched_ < passes_ && launched_ - taken_ <= kPassesAhead) {
      HEARTH_RETURN_IF_ERROR(generator_.Launch());
      ++launched_;
    }
    HEARTH_ASSIGN_OR_RETURN(const Drawn drawn, generator_.Take());
    ++taken_;
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (!over_[i]) {
        HEARTH_RETURN_IF_ERROR(Add(i, drawn.tokens[i], drawn.log_prob[i]));
      }
    }
    return absl::OkStatus();
  }

  bool over() const { return over_count_ == texts_.size(); }
  int64_t taken() const { return taken_; }
  int64_t tokens() const { return tokens_; }

  absl::StatusOr<std::vector<WrittenText>> Finish() {
    // What is launched beyond the last text's end.
    while (taken_ < launched_) {
      HEARTH_RETURN_IF_ERROR(generator_.Take().status());
      ++taken_;
    }
    for (size_t i = 0; i < texts_.size(); ++i) {
      HEARTH_ASSIGN_OR_RETURN(texts_[i].text, TextOf(i));
      const size_t stop = FindStop(texts_[i].text, options_.stops);
      if (texts_[i].end == TextEnd::kStop && stop != std::string::npos) {
        texts_[i].text.resize(stop);
      }
    }
    return std::move(texts_);
  }

 private:
  absl::Status AtPass() const {
    return options_.at_pass == nullptr ? absl::OkStatus() : options_.at_pass();
  }

  absl::Status Add(size_t i, int32_t token, float log_prob) {
    WrittenText& text = texts_[i];
    ++tokens_;
    if (token >= 0 && token == tokenizer_.eos()) {
      End(i, TextEnd::kEndToken);
      return absl::OkStatus();
    }
    text.tokens.push_back(token);
    text.log_prob.push_back(log_prob);
    HEARTH_ASSIGN_OR_RETURN(const bool stopped, Stopped(i));
    if (stopped) {
      End(i, TextEnd::kStop);
    } else if (static_cast<int64_t>(text.tokens.size()) >= left_[i]) {
      End(i, TextEnd::kLength);
    }
    return absl::OkStatus();
  }

  void End(size_t i, TextEnd end) {
    texts_[i].end = end;
    over_[i] = true;
    ++over_count_;
  }

  // Whether the text has a stop string. Only its tail is decoded: a token is a byte or more, and
  // the first ones of a tail may decode otherwise than behind others.
  absl::StatusOr<bool> Stopped(size_t i) {
    if (options_.stops.empty()) {
      return false;
    }
    const std::vector<int32_t>& tokens = texts_[i].tokens;
    const size_t tail = std::min(tokens.size(), longest_stop_ + 8);
    HEARTH_ASSIGN_OR_RETURN(
        const std::string text,
        tokenizer_.Decode(absl::MakeConstSpan(tokens).subspan(tokens.size() - tail)));
    if (FindStop(text, options_.stops) == std::string::npos) {
      return false;
    }
    HEARTH_ASSIGN_OR_RETURN(const std::string whole, TextOf(i));
    return FindStop(whole, options_.stops) != std::string::npos;
  }

  // What was added, as it reads behind the prompt: tokenizers write a word's space with its word.
  absl::StatusOr<std::string> TextOf(size_t i) {
    HEARTH_ASSIGN_OR_RETURN(const std::string prompt, tokenizer_.Decode(prompts_[i]));
    std::vector<int32_t> all = prompts_[i];
    all.insert(all.end(), texts_[i].tokens.begin(), texts_[i].tokens.end());
    HEARTH_ASSIGN_OR_RETURN(std::string text, tokenizer_.Decode(all));
    if (absl::StartsWith(text, prompt)) {
      return text.substr(prompt.size());
    }
    return tokenizer_.Decode(texts_[i].tokens);
  }

  Generator& generator_;
  dataset::Tokenizer& tokenizer_;
  const absl::Span<const std::vector<int32_t>> prompts_;
  const size_t first_;
  const WritingOptions& options_;
  std::vector<WrittenText> texts_;
  std::vector<bool> over_;
  std::vector<int64_t> left_;  // tokens that a text may get
  size_t over_count_ = 0;
  size_t longest_stop_ = 0;
  int64_t passes_ = 0;  // that may draw something
  int64_t launched_ = 1;
  int64_t taken_ = 0;
  int64_t tokens_ = 0;
};

// Puts the log-probabilities of training's forward pass in the place of those of generation.
absl::Status ScoreTexts(Generator& generator,
                        absl::Span<const std::vector<int32_t>> prompts,
                        std::vector<WrittenText>& texts) {
  std::vector<ScoreRequest> requests;
  std::vector<WrittenText*> scored;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].tokens.empty()) {
      continue;
    }
    ScoreRequest& request = requests.emplace_back();
    request.tokens = prompts[i];
    request.tokens.insert(request.tokens.end(), texts[i].tokens.begin(), texts[i].tokens.end());
    request.scored = static_cast<int64_t>(texts[i].tokens.size());
    scored.push_back(&texts[i]);
  }
  HEARTH_ASSIGN_OR_RETURN(std::vector<std::vector<float>> log_probs, generator.Score(requests));
  for (size_t i = 0; i < scored.size(); ++i) {
    scored[i]->log_prob = std::move(log_probs[i]);
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view TextEndName(TextEnd end) {
  constexpr std::string_view kNames[] = {"end", "stop", "length"};
  return kNames[static_cast<size_t>(end)];
}

std::string_view LogProbsName(LogProbs log_probs) {
  return kLogProbsNames[static_cast<size_t>(log_probs)];
}

std::vector<std::string_view> LogProbsNames() {
  return {std::begin(kLogProbsNames), std::end(kLogProbsNames)};
}

size_t FindStop(std::string_view text, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) {
    first = std::min(first, text.find(stop));
  }
  return first;
}

absl::StatusOr<std::vector<WrittenText>> WriteTexts(Generator& generator,
                                                    dataset::Tokenizer& tokenizer,
                                                    absl::Span<const std::vector<int32_t>> prompts,
                                                    const WritingOptions& options,
                                                    Clock& clock,
                                                    WritingTimes& times) {
  if (options.tokens < 1) {
    return absl::InvalidArgumentError("tokens to add: at least 1");
  }
  std::vector<WrittenText> texts;
  const auto batch = static_cast<size_t>(generator.plan_options().batch);
  for (size_t first = 0; first < prompts.size(); first += batch) {
    Group group(generator, tokenizer, prompts.subspan(first, batch), first, options);
    const absl::Duration begin = clock.Monotonic();
    HEARTH_RETURN_IF_ERROR(group.Begin());
    HEARTH_RETURN_IF_ERROR(group.Step());
    const absl::Duration drawn = clock.Monotonic();
    const int64_t tokens = group.tokens();
    while (!group.over()) {
      HEARTH_RETURN_IF_ERROR(group.Step());
    }
    if (first == 0) {
      times.first_token_s = absl::ToDoubleSeconds(drawn - begin);
    }
    times.decode_s += absl::ToDoubleSeconds(clock.Monotonic() - drawn);
    times.tokens += group.tokens() - tokens;
    HEARTH_ASSIGN_OR_RETURN(std::vector<WrittenText> written, group.Finish());
    std::move(written.begin(), written.end(), std::back_inserter(texts));
  }
  if (options.log_probs == LogProbs::kTraining) {
    HEARTH_RETURN_IF_ERROR(options.at_pass == nullptr ? absl::OkStatus() : options.at_pass());
    HEARTH_RETURN_IF_ERROR(ScoreTexts(generator, prompts, texts));
  }
  return texts;
}

}  // namespace hearth::trainer
