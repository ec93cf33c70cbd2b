#include "worker/trainer/step/scores.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

// Tokens that a request reads; the last one is only a target.
int64_t Inputs(const ScoreRequest& request) {
  return static_cast<int64_t>(request.tokens.size()) - 1;
}

absl::Status Check(const ScoreRequest& request, size_t index, int64_t length, int64_t vocab) {
  const int64_t inputs = Inputs(request);
  if (inputs < 1 || inputs > length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "request ", index, " has ", request.tokens.size(), " tokens, not 2 to ", length + 1));
  }
  if (request.scored < 1 || request.scored > inputs) {
    return absl::InvalidArgumentError(absl::StrCat("request ", index, " scores ", request.scored,
                                                   " of ", request.tokens.size(), " tokens"));
  }
  for (const int32_t token : request.tokens) {
    if (token < 0 || token >= vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " is not below the model's vocabulary of ", vocab,
                       ": the tokenizer does not belong to this model"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScoreBatches> ScoreBatches::Place(const Engine& engine,
                                                 absl::Span<const ScoreRequest> requests) {
  const int64_t length = engine.options().spec.data().sequence_length();
  ScoreBatches batches(requests, engine.model_rows() / length, length);
  for (size_t i = 0; i < requests.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(Check(requests[i], i, length, engine.shape().vocab));
  }
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [requests](size_t a, size_t b) {
    return requests[a].tokens.size() > requests[b].tokens.size();
  });
  std::multimap<int64_t, size_t> rooms;  // of samples that have any
  for (const size_t request : order) {
    const int64_t inputs = Inputs(requests[request]);
    // As documents of their own several requests share a sample, each in the fullest one with room.
    // A model that sees everything before a token gets one request a sample.
    const auto best = engine.documents() ? rooms.lower_bound(inputs) : rooms.end();
    size_t sample = batches.samples_.size();
    int64_t room = length;
    if (best == rooms.end()) {
      batches.samples_.emplace_back();
    } else {
      room = best->first;
      sample = best->second;
      rooms.erase(best);
    }
    batches.samples_[sample].push_back(request);
    rooms.emplace(room - inputs, sample);
  }
  return batches;
}

void ScoreBatches::Fill(const BatchBuffers& out, int64_t row, const Sample& sample) const {
  int64_t at = row * length_;
  const int64_t end = at + length_;
  for (const size_t index : sample) {
    const ScoreRequest& request = requests_[index];
    const int64_t inputs = Inputs(request);
    const auto start = static_cast<int32_t>(at - row * length_);
    for (int64_t i = 0; i < inputs; ++i, ++at) {
      out.tokens[at] = request.tokens[static_cast<size_t>(i)];
      out.targets[at] = request.tokens[static_cast<size_t>(i + 1)];
      out.loss_weight[at] = i + request.scored >= inputs ? 1.0F : 0.0F;
      out.position[at] = static_cast<int32_t>(i);
      out.start[at] = start;
    }
  }
  // A model that does not attend within documents sees the padding behind its only request, so the
  // request does not see it.
  const auto start = static_cast<int32_t>(at - row * length_);
  for (int64_t i = 0; at < end; ++i, ++at) {
    out.tokens[at] = out.targets[at] = 0;
    out.loss_weight[at] = 0.0F;
    out.position[at] = static_cast<int32_t>(i);
    out.start[at] = start;
  }
}

void ScoreBatches::Read(const Engine::Scores& read,
                        int64_t row,
                        const Sample& sample,
                        absl::Span<Score> scores) const {
  int64_t at = row * length_;
  for (const size_t index : sample) {
    const ScoreRequest& request = requests_[index];
    at += Inputs(request);
    Score score = {0, true};
    for (int64_t i = at - request.scored; i < at; ++i) {
      score.log_likelihood -= static_cast<double>(read.nll[i]);
      score.greedy = score.greedy && read.top[i] != 0;
    }
    scores[index] = score;
  }
}

absl::Status ScoreBatches::Run(Engine& engine,
                               const Pass& pass,
                               int64_t i,
                               absl::Span<Score> scores) const {
  const BatchBuffers batch = engine.StagedBatch(0);
  const int64_t first = i * batch_;
  const int64_t rows = std::min(batch_, samples() - first);
  for (int64_t row = 0; row < batch_; ++row) {
    Fill(batch, row, row < rows ? samples_[static_cast<size_t>(first + row)] : Sample());
  }
  HEARTH_RETURN_IF_ERROR(engine.UploadBatch(0));
  kernels::StepState* const state = engine.step_state();
  HEARTH_RETURN_IF_ERROR(
      engine.model().ForwardLoss(engine.exec(), pass, &state->loss_sum, &state->weight_sum));
  HEARTH_ASSIGN_OR_RETURN(const Engine::Scores read, engine.ReadScores());
  for (int64_t row = 0; row < rows; ++row) {
    Read(read, row, samples_[static_cast<size_t>(first + row)], scores);
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
