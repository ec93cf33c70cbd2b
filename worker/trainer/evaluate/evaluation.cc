#include "worker/trainer/evaluate/evaluation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/evaluate/prompt_text.h"

namespace hearth::trainer {
namespace {

// The first choice with the largest value of `worth`.
template <typename Worth>
size_t Largest(size_t choices, const Worth& worth) {
  size_t best = 0;
  for (size_t i = 1; i < choices; ++i) {
    best = worth(i) > worth(best) ? i : best;
  }
  return best;
}

// How many items are answered right, by each way of comparing choices.
struct Right {
  int64_t plain = 0;
  int64_t characters = 0;
  int64_t bytes = 0;

  void Add(const Question& question, absl::Span<const Score> scores) {
    const auto& choices = question.choices;
    const auto sum = [&](size_t i) { return scores[i].log_likelihood; };
    const auto a_character = [&](size_t i) {
      return sum(i) / static_cast<double>(Characters(choices[i]));
    };
    const auto a_byte = [&](size_t i) { return sum(i) / static_cast<double>(choices[i].size()); };
    plain += Largest(choices.size(), sum) == question.answer ? 1 : 0;
    characters += Largest(choices.size(), a_character) == question.answer ? 1 : 0;
    bytes += Largest(choices.size(), a_byte) == question.answer ? 1 : 0;
  }
};

}  // namespace

absl::StatusOr<ScoreRequest> EncodePair(dataset::Tokenizer& tokenizer,
                                        std::string context,
                                        std::string continuation,
                                        int64_t context_length,
                                        const std::string& place,
                                        bool* cut) {
  const size_t space = TrailingSpace(context);
  continuation.insert(0, context, context.size() - space);
  context.resize(context.size() - space);
  if (context.empty() && tokenizer.eos() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(place,
                     ": nothing stands before the continuation, and the tokenizer has no "
                     "end token to begin with"));
  }
  ScoreRequest request;
  HEARTH_ASSIGN_OR_RETURN(request.tokens, tokenizer.Encode(context));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int32_t> whole,
                          tokenizer.Encode(context + continuation));
  const size_t behind = std::min(request.tokens.size(), whole.size());
  request.scored = static_cast<int64_t>(whole.size() - behind);
  // The context's tokens are those it has alone, also where the whole begins with others.
  request.tokens.insert(request.tokens.end(), whole.begin() + static_cast<int64_t>(behind),
                        whole.end());
  if (context.empty()) {
    request.tokens.insert(request.tokens.begin(), tokenizer.eos());
  }
  if (request.scored < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": \"", continuation, "\" has no token of its own behind its context"));
  }
  if (request.scored > context_length) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": a continuation of ", request.scored,
                                                   " tokens is longer than the model's context of ",
                                                   context_length));
  }
  const auto kept = static_cast<size_t>(context_length + 1);
  if (request.tokens.size() > kept) {
    request.tokens.erase(request.tokens.begin(), request.tokens.end() - static_cast<int64_t>(kept));
    *cut = true;
  }
  return request;
}

absl::StatusOr<std::unique_ptr<Evaluation>> Evaluation::Open(const EvaluationOptions& options,
                                                             dataset::Tokenizer& tokenizer,
                                                             Env& env) {
  const spec::EvaluationRow* const row = spec::FindEvaluation(options.task);
  if (row == nullptr) {
    const std::vector<std::string_view> names = spec::EvaluationNames();
    // Debian's absl::string_view is not std's: StrJoin takes strings.
    const std::vector<std::string> words(names.begin(), names.end());
    return absl::InvalidArgumentError(absl::StrCat("no task is called \"", options.task,
                                                   "\" (one of ", absl::StrJoin(words, ", "), ")"));
  }
  std::unique_ptr<Evaluation> evaluation(
      new Evaluation(*row, options.name.empty() ? options.task : options.name));
  HEARTH_ASSIGN_OR_RETURN(evaluation->questions_, ReadQuestions(*row, options.items, env));
  for (Question& question : evaluation->questions_) {
    bool cut = false;
    for (const std::string& choice : question.choices) {
      HEARTH_ASSIGN_OR_RETURN(ScoreRequest request,
                              EncodePair(tokenizer, question.context, absl::StrCat(" ", choice),
                                         options.context_length, question.place, &cut));
      evaluation->requests_.push_back(std::move(request));
    }
    evaluation->cut_items_ += cut ? 1 : 0;
    std::string().swap(question.context);
  }
  return evaluation;
}

int64_t Evaluation::longest() const {
  size_t tokens = 2;
  for (const ScoreRequest& request : requests_) {
    tokens = std::max(tokens, request.tokens.size());
  }
  return static_cast<int64_t>(tokens) - 1;
}

v1::EvaluationResult Evaluation::Judge(absl::Span<const Score> scores) const {
  const auto items = static_cast<int64_t>(questions_.size());
  v1::EvaluationResult result;
  result.set_name(name_);
  result.set_task(std::string(row_.name));
  result.set_items(items);
  result.set_cut_items(cut_items_);
  const auto share = [items](int64_t right) {
    return static_cast<double>(right) / static_cast<double>(items);
  };
  Right right;
  double log_likelihood = 0;
  size_t first = 0;
  for (const Question& question : questions_) {
    const absl::Span<const Score> own = scores.subspan(first, question.choices.size());
    first += question.choices.size();
    if (row_.choices) {
      right.Add(question, own);
    } else {
      right.plain += own[0].greedy ? 1 : 0;
      log_likelihood += own[0].log_likelihood;
    }
  }
  result.set_accuracy(share(right.plain));
  if (row_.normalised) {
    result.set_accuracy_normalised(share(right.characters));
    result.set_accuracy_bytes(share(right.bytes));
  }
  if (!row_.choices) {
    result.set_perplexity(std::exp(-log_likelihood / static_cast<double>(items)));
  }
  return result;
}

std::string Evaluation::Details(absl::Span<const Score> scores) const {
  std::string out;
  size_t next = 0;
  for (const Question& question : questions_) {
    nlohmann::ordered_json line = {{"item", question.place}, {"answer", question.answer}};
    for (size_t i = 0; i < question.choices.size(); ++i, ++next) {
      line["log_likelihoods"].push_back(scores[next].log_likelihood);
      line["greedy"].push_back(scores[next].greedy);
    }
    absl::StrAppend(
        &out, line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), "\n");
  }
  return out;
}

double StandardError(double accuracy, int64_t items) {
  return items < 2 ? 0.0 : std::sqrt(accuracy * (1 - accuracy) / static_cast<double>(items - 1));
}

}  // namespace hearth::trainer
