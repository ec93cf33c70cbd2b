// Refuses formats that the optimizer's row cannot use, and what does not go with updates that are
// made bucket by bucket.
#include <cstdint>
#include <string>
#include <vector>

#include "common/spec/fields/rows.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/batch.h"
#include "common/spec/plan/offload.h"
#include "common/spec/plan/shard_levels.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

// Refuses a batch with several micro-batches of a worker. `why`: a clause with the reason, to which
// "so a step has one micro-batch of each worker" is added.
void CheckOneMicroBatch(const v1::JobSpec& job,
                        const char* field,
                        const char* why,
                        Checker& check) {
  const v1::BatchSpec& batch = job.batch();
  const int64_t sequence = job.data().sequence_length();
  const int64_t workers = job.resources().workers();
  const std::string one_each = Text(why, ", so a step has one micro-batch of each worker; ");
  if (job.resources().has_min_workers() && job.resources().min_workers() < workers) {
    check.Add(field, Text(one_each, "with resources.min_workers ", job.resources().min_workers(),
                          " a worker might get several: set it to ", workers));
  }
  if (!batch.has_global_batch_tokens() ||
      !InRange(batch, v1::BatchSpec::kMicroBatchSizeFieldNumber) ||
      !InRange(job.data(), v1::DataSpec::kSequenceLengthFieldNumber) ||
      !InRange(job.resources(), v1::ResourceSpec::kWorkersFieldNumber)) {
    return;
  }
  const int64_t tokens = batch.global_batch_tokens();
  const int64_t micro = batch.micro_batch_size();
  const std::vector<int64_t> one = OneMicroBatchEach(tokens, sequence, workers);
  if (one.empty() || (micro > 0 && micro != one.front())) {
    check.Add(field, Text(one_each, "batch.global_batch_tokens ", tokens,
                          " is not workers * micro_batch_size * data.sequence_length = ", workers,
                          " * ", micro > 0 ? Text(micro) : "n", " * ", sequence));
  }
}

// With fused updates a layer's old weights and gradients are gone before the step has ended, so
// nothing that needs all of them at one time can work.
void CheckFused(const v1::JobSpec& job, Checker& check) {
  if (!job.optimizer().fused()) {
    return;
  }
  CheckOneMicroBatch(job, "optimizer.fused",
                     "each layer is updated as soon as its gradient is complete", check);
  if (job.train().spike_grad_sigma() > 0) {
    check.Add("train.spike_grad_sigma",
              "optimizer.fused updates the layers before the norm of the step's gradient is known, "
              "so such a step cannot be refused; must be 0");
  }
  if (job.precision().stats_every() > 0) {
    check.Add("precision.stats_every",
              "weights are counted together with their gradients, and optimizer.fused has updated "
              "them by then; must be 0");
  }
}

void CheckStore(const v1::JobSpec& job, Checker& check) {
  if (!CodesGradients(job)) {
    return;
  }
  if (job.optimizer().fused()) {
    check.Add("gradients.store",
              "with optimizer.fused no gradient waits for the update; leave it out");
    return;
  }
  CheckOneMicroBatch(job, "gradients.store", "fp8 is too coarse to add up gradients in", check);
}

// Refuses what cuts a state of whole matrices into parts.
void CheckWholeStates(const v1::JobSpec& job, Checker& check) {
  const StateSpec* const state = FindWholeState(job.optimizer());
  if (state == nullptr) {
    return;
  }
  const std::string whole = Text(job.optimizer().name(), " keeps its ", state->name, " in ",
                                 job.optimizer().state(), " matrix by matrix, ");
  for (const ShardRow& row : ShardRows()) {
    if (row.optimizer && job.parallel().shard() == row.name) {
      check.Add("parallel.shard", Text(whole, "so workers cannot divide it; must be off or auto"));
    }
  }
  for (const OffloadRow& row : OffloadRows()) {
    if ((job.offload().*row.get)() && !MayBeAway(job, row)) {
      check.Add(Text("offload.", row.name),
                Text(whole, "so it cannot pass through a GPU in parts"));
    }
  }
}

}  // namespace

void CheckOptimizer(const v1::JobSpec& job, Checker& check) {
  const v1::OptimizerSpec& optimizer = job.optimizer();
  const OptimizerRow* row = FindOptimizer(optimizer.name());
  if (row == nullptr) {
    return;
  }
  for (const StateSpec& state : row->states) {
    if (!state.narrow && optimizer.state() != StateFormatRows()[0].name) {
      check.Add("optimizer.state",
                Text(row->name, " keeps ", state.name, " in ", DTypeName(state.dtype),
                     " only, not in ", optimizer.state()));
      break;
    }
  }
  if (row->needs_master() && KeepsNoMasters(job)) {
    check.Add("optimizer.master", Text(row->name, " needs fp32 masters"));
  }
  CheckWholeStates(job, check);
  CheckFused(job, check);
  CheckStore(job, check);
}

}  // namespace hearth::spec
