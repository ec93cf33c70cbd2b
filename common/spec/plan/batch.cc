#include "common/spec/plan/batch.h"

#include <algorithm>

#include "common/spec/violations/text.h"

namespace hearth::spec {

int64_t BatchPlan::CountForRank(int64_t rank) const {
  return rank >= micro_batches ? 0 : (micro_batches - rank + world_size - 1) / world_size;
}

int64_t BatchPlan::MicroBatchAt(int64_t rank, int64_t round) const {
  const int64_t turn = round - (rounds() - CountForRank(rank));
  return turn < 0 || round >= rounds() ? -1 : rank + turn * world_size;
}

absl::StatusOr<BatchPlan> MakeBatchPlan(int64_t global_batch_tokens,
                                        int64_t micro_batch_size,
                                        int64_t sequence_length,
                                        int64_t world_size) {
  if (micro_batch_size < 1 || sequence_length < 1 || world_size < 1 || global_batch_tokens < 1) {
    return absl::InvalidArgumentError(
        "batch: global_batch_tokens, micro_batch_size, sequence_length and workers must be >= 1");
  }
  const int64_t micro_tokens = micro_batch_size * sequence_length;
  const int64_t micro_batches = global_batch_tokens / micro_tokens;
  if (global_batch_tokens % micro_tokens != 0) {
    const int64_t below = micro_batches * micro_tokens;
    return absl::InvalidArgumentError(
        Text("batch.global_batch_tokens: ", global_batch_tokens,
             " is not a multiple of micro_batch_size * sequence_length = ", micro_batch_size, " * ",
             sequence_length, " = ", micro_tokens,
             "; nearest: ", below > 0 ? Text(below, " or ") : "", below + micro_tokens));
  }
  if (micro_batches < world_size) {
    return absl::InvalidArgumentError(Text("batch.global_batch_tokens: ", global_batch_tokens,
                                           " make ", micro_batches, " micro-batches of ",
                                           micro_tokens, " tokens, too few for ", world_size,
                                           " workers; give at least ", micro_tokens * world_size));
  }
  return BatchPlan{.micro_batch = micro_batch_size,
                   .sequence_length = sequence_length,
                   .micro_batches = micro_batches,
                   .world_size = world_size};
}

std::vector<int64_t> MicroBatchCandidates(int64_t global_batch_tokens,
                                          int64_t sequence_length,
                                          int64_t world_size,
                                          int64_t limit) {
  std::vector<int64_t> sizes;
  if (sequence_length < 1 || world_size < 1 || global_batch_tokens % sequence_length != 0) {
    return sizes;
  }
  const int64_t sequences = global_batch_tokens / sequence_length;
  for (int64_t size = std::min(limit, sequences / world_size); size >= 1; --size) {
    if (sequences % size == 0) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

bool CodesGradients(const v1::JobSpec& job) {
  return job.gradients().store() == "fp8";
}

bool NeedsOneMicroBatch(const v1::JobSpec& job) {
  return job.optimizer().fused() || CodesGradients(job);
}

bool HasOneMicroBatch(const v1::JobSpec& job) {
  const v1::BatchSpec& batch = job.batch();
  const int workers = std::max(1, job.resources().workers());
  if (job.resources().has_min_workers() && job.resources().min_workers() < workers) {
    return false;
  }
  return !batch.has_global_batch_tokens() ||
         OneMicroBatchEach(batch.global_batch_tokens(), job.data().sequence_length(), workers) ==
             std::vector<int64_t>{batch.micro_batch_size()};
}

std::vector<int64_t> OneMicroBatchEach(int64_t global_batch_tokens,
                                       int64_t sequence_length,
                                       int64_t world_size) {
  if (sequence_length < 1 || world_size < 1 || global_batch_tokens < 1 ||
      global_batch_tokens % (sequence_length * world_size) != 0) {
    return {};
  }
  return {global_batch_tokens / (sequence_length * world_size)};
}

}  // namespace hearth::spec
