// Batch arithmetic: which micro-batches of a global batch a rank takes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

// M micro-batches of micro_batch sequences make a global batch. Rank r of W takes micro-batches r,
// r + W, ...; all ranks go through the same number of rounds and end on the one that holds the
// all-reduce: a rank with fewer micro-batches sits out round 0 (which is free of communication),
// never the last.
struct BatchPlan {
  int64_t micro_batch = 0;      // sequences per forward pass of a rank, B
  int64_t sequence_length = 0;  // tokens, T
  int64_t micro_batches = 0;    // M, >= 1
  int64_t world_size = 1;       // W

  int64_t global_sequences() const { return micro_batch * micro_batches; }
  int64_t global_tokens() const { return global_sequences() * sequence_length; }
  // Rounds of forward and backward per step: ceil(M / W).
  int64_t rounds() const { return (micro_batches + world_size - 1) / world_size; }
  // Micro-batches of one rank: those m < M with m % W == rank.
  int64_t CountForRank(int64_t rank) const;
  // Global index of the micro-batch that `rank` runs in `round` (0-based), or -1 when it sits that
  // round out.
  int64_t MicroBatchAt(int64_t rank, int64_t round) const;
  // Global index of the first sample of a micro-batch in step `step` (1-based): samples are
  // numbered over the whole job.
  int64_t FirstSample(int64_t step, int64_t micro_batch_index) const {
    return (step - 1) * global_sequences() + micro_batch_index * micro_batch;
  }
};

// `micro_batch_size` is the resolved one (>= 1), also where the spec says auto. kInvalidArgument
// when global_batch_tokens is not a multiple of micro_batch_size * sequence_length, naming the
// nearest that is, or when a rank of `world_size` would get nothing.
absl::StatusOr<BatchPlan> MakeBatchPlan(int64_t global_batch_tokens,
                                        int64_t micro_batch_size,
                                        int64_t sequence_length,
                                        int64_t world_size);

// Micro-batch sizes that divide the global batch, largest first, at most `limit`: the candidates of
// `auto`. Each leaves every one of `world_size` ranks at least one micro-batch. Empty when
// global_batch_tokens is not a multiple of sequence_length * world_size and no size fits.
std::vector<int64_t> MicroBatchCandidates(int64_t global_batch_tokens,
                                          int64_t sequence_length,
                                          int64_t world_size,
                                          int64_t limit);

// Whether gradients wait for the update in E4M3 (gradients.store: fp8).
bool CodesGradients(const v1::JobSpec& job);

// Whether each rank must have exactly one micro-batch in a step, because nothing adds up the
// gradients of several: with fused updates and with coded gradients.
bool NeedsOneMicroBatch(const v1::JobSpec& job);

// Whether a step of the job has one micro-batch of each worker, however many of them run. Where no
// global batch is given it follows from the micro-batch, so it has. A job that gives one and leaves
// the size of its micro-batch open may get several.
bool HasOneMicroBatch(const v1::JobSpec& job);

// The size with which each of `world_size` ranks has one micro-batch in a step; empty where there
// is none.
std::vector<int64_t> OneMicroBatchEach(int64_t global_batch_tokens,
                                       int64_t sequence_length,
                                       int64_t world_size);

}  // namespace hearth::spec
