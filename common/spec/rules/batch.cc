#include <limits>

#include "common/spec/fields/rows.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {

void CheckBatch(const v1::JobSpec& job, Checker& check) {
  const v1::BatchSpec& batch = job.batch();
  const int64_t sequence = job.data().sequence_length();
  const int64_t micro = batch.micro_batch_size();
  const int64_t tokens = batch.global_batch_tokens();
  // Without a sound sequence length there is nothing to compare with, and the text would mislead.
  if (!batch.has_global_batch_tokens() ||
      !InRange(batch, v1::BatchSpec::kMicroBatchSizeFieldNumber) ||
      !InRange(job.data(), v1::DataSpec::kSequenceLengthFieldNumber)) {
    return;
  }
  const bool automatic = micro == 0;
  const int64_t unit = automatic ? sequence : micro * sequence;
  if (tokens < 1 || tokens % unit != 0) {
    const int64_t below = tokens < 1 ? 0 : tokens / unit * unit;
    const std::string product = automatic
                                    ? Text("data.sequence_length ", sequence)
                                    : Text("micro_batch_size * data.sequence_length = ", micro,
                                           " * ", sequence, " = ", unit);
    check.Add("batch.global_batch_tokens",
              Text(tokens, " is not a positive multiple of ", product,
                   "; nearest: ", below > 0 ? Text(below, " or ") : "",
                   below > std::numeric_limits<int64_t>::max() - unit ? below : below + unit));
    return;
  }
  const int64_t workers = job.resources().workers();
  if (InRange(job.resources(), v1::ResourceSpec::kWorkersFieldNumber) && tokens / unit < workers) {
    check.Add(
        "batch.global_batch_tokens",
        Text(tokens, " make only ", tokens / unit, automatic ? " sequences" : " micro-batches",
             " for ", workers, " workers; each needs one: at least ", unit * workers,
             " tokens, or fewer resources.workers"));
  }
}

}  // namespace hearth::spec
