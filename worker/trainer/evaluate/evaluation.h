// An evaluation of train.evaluations or of `hearth-trainer eval --task`: its items as requests to a
// model, and what the answers are worth. lm-evaluation-harness's definitions; docs/evaluation.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "common/io/env.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "hearth/v1/step.pb.h"
#include "worker/trainer/evaluate/item_file.h"
#include "worker/trainer/step/scores.h"

namespace hearth::trainer {

struct EvaluationOptions {
  std::string task;  // a row of spec::Evaluations()
  std::string name;  // of the results; empty = task
  ItemFileOptions items;
  // Tokens that a model reads at once, T. A longer item is cut at the beginning.
  int64_t context_length = 0;
};

// One continuation of one context as tokens. Both are encoded together; the continuation's tokens
// are those after the first n, where n is the context's own number of tokens. White space at the
// context's end belongs to the continuation. An empty context is the end token, which begins
// documents. If there are more than context_length + 1 tokens, the last ones are kept and *cut is
// set. kInvalidArgument with `place`: the continuation has no token of its own, or too many; an
// empty context and a tokenizer without end token. Errors of Tokenizer::Encode.
absl::StatusOr<ScoreRequest> EncodePair(dataset::Tokenizer& tokenizer,
                                        std::string context,
                                        std::string continuation,
                                        int64_t context_length,
                                        const std::string& place,
                                        bool* cut);

class Evaluation {
 public:
  // Reads and encodes all items. Errors: those of ReadQuestions and EncodePair; kInvalidArgument:
  // no such task.
  static absl::StatusOr<std::unique_ptr<Evaluation>> Open(const EvaluationOptions& options,
                                                          dataset::Tokenizer& tokenizer,
                                                          Env& env = Env::Real());

  // For each item one a choice, in order.
  absl::Span<const ScoreRequest> requests() const { return requests_; }
  // Tokens that the longest request reads.
  int64_t longest() const;

  // `scores`: of requests(). All but step and seconds.
  v1::EvaluationResult Judge(absl::Span<const Score> scores) const;
  // A line for each item: {"item": "FILE:LINE", "answer": 1, "log_likelihoods": [...],
  // "greedy": [...]}.
  std::string Details(absl::Span<const Score> scores) const;

 private:
  Evaluation(const spec::EvaluationRow& row, std::string name)
      : row_(row), name_(std::move(name)) {}

  const spec::EvaluationRow& row_;
  const std::string name_;
  std::vector<Question> questions_;  // without contexts
  std::vector<ScoreRequest> requests_;
  int64_t cut_items_ = 0;
};

// The standard error of a share of `items`: sqrt(p (1 - p) / (n - 1)); 0 of a single one.
double StandardError(double accuracy, int64_t items);

}  // namespace hearth::trainer
