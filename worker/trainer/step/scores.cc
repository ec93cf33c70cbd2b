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

ScoreShape ScoreShape::Of(const Engine& engine) {
  const int64_t length = engine.options().spec.data().sequence_length();
  return {engine.model_rows() / length, length, engine.shape().vocab, engine.documents()};
}

absl::StatusOr<ScoreBatches> ScoreBatches::Place(const ScoreShape& shape,
                                                 absl::Span<const ScoreRequest> requests) {
  ScoreBatches batches(requests, shape);
  for (size_t i = 0; i < requests.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(Check(requests[i], i, shape.length, shape.vocab));
  }
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (shape.shared) {
    std::stable_sort(order.begin(), order.end(), [requests](size_t a, size_t b) {
      return requests[a].tokens.size() > requests[b].tokens.size();
    });
  }
  std::multimap<int64_t, size_t> rooms;  // of samples that have any
  for (const size_t request : order) {
    const int64_t inputs = Inputs(requests[request]);
    // As documents of their own several requests share a sample, each in the fullest one with room.
    const auto best = shape.shared ? rooms.lower_bound(inputs) : rooms.end();
    size_t sample = batches.samples_.size();
    int64_t room = shape.length;
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

void ScoreBatches::FillSample(const BatchBuffers& out, int64_t row, const Sample& sample) const {
  const int64_t begin = row * shape_.length;
  const int64_t end = begin + shape_.length;
  int64_t at = begin;
  for (const size_t index : sample) {
    const ScoreRequest& request = requests_[index];
    const int64_t inputs = Inputs(request);
    const auto start = static_cast<int32_t>(at - begin);
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
  const auto start = static_cast<int32_t>(at - begin);
  for (int64_t i = 0; at < end; ++i, ++at) {
    out.tokens[at] = out.targets[at] = 0;
    out.loss_weight[at] = 0.0F;
    out.position[at] = static_cast<int32_t>(i);
    out.start[at] = start;
  }
}

void ScoreBatches::Fill(int64_t i, const BatchBuffers& out) const {
  for (int64_t row = 0; row < shape_.micro_batch; ++row) {
    const int64_t sample = i * shape_.micro_batch + row;
    FillSample(out, row, sample < samples() ? samples_[static_cast<size_t>(sample)] : Sample());
  }
}

std::vector<ScoreBatches::Scored> ScoreBatches::ScoredIn(int64_t i) const {
  std::vector<Scored> scored;
  const int64_t first = i * shape_.micro_batch;
  const int64_t rows = std::min(shape_.micro_batch, samples() - first);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t at = row * shape_.length;
    for (const size_t index : samples_[static_cast<size_t>(first + row)]) {
      at += Inputs(requests_[index]);
      scored.push_back({index, at - requests_[index].scored});
    }
  }
  return scored;
}

absl::Status ScoreBatches::Run(Engine& engine,
                               const Pass& pass,
                               int64_t i,
                               absl::Span<Score> scores) const {
  Fill(i, engine.StagedBatch(0));
  HEARTH_RETURN_IF_ERROR(engine.UploadBatch(0));
  kernels::StepState* const state = engine.step_state();
  HEARTH_RETURN_IF_ERROR(
      engine.model().ForwardLoss(engine.exec(), pass, &state->loss_sum, &state->weight_sum));
  HEARTH_ASSIGN_OR_RETURN(const Engine::Scores read, engine.ReadScores());
  for (const Scored& scored : ScoredIn(i)) {
    Score score = {0, true};
    for (int64_t row = scored.row; row < scored.row + requests_[scored.request].scored; ++row) {
      score.log_likelihood -= static_cast<double>(read.nll[row]);
      score.greedy = score.greedy && read.top[row] != 0;
    }
    scores[scored.request] = score;
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
