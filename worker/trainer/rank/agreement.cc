#include "worker/trainer/rank/agreement.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/plan/plan_inputs.h"
#include "worker/trainer/device/rank_device.h"

namespace hearth::trainer {
namespace {

// The next start may have a GPU with more memory, or with more of it free. A machine has what it
// has.
v1::ExitReason BlameForMemory(const AgreementParts& parts, const absl::Status& status) {
  return absl::IsResourceExhausted(status) && absl::StartsWith(parts.task->device(), "cuda")
             ? v1::EXIT_REASON_DEVICE
             : v1::EXIT_REASON_BAD_SPEC;
}

// No micro-batch of `form` fits the memory to plan with, as `status` says: marked if none would fit
// a GPU that nobody else uses either.
absl::Status MarkIfTooSmall(const AgreementParts& parts,
                            const v1::JobSpec& form,
                            spec::ShardLevel shard,
                            const absl::Status& status) {
  if (BlameForMemory(parts, status) != v1::EXIT_REASON_DEVICE) {
    return status;
  }
  const absl::Status of_whole =
      spec::ResolveMicroBatch(form, parts.task->world_size(), parts.task->threads(),
                              parts.whole_bytes, shard)
          .status();
  return absl::IsResourceExhausted(of_whole) ? DeviceTooSmallError(std::string(of_whole.message()))
                                             : status;
}

}  // namespace

absl::StatusOr<spec::ShardLevel> AgreeOnShardLevel(const AgreementParts& parts,
                                                   v1::ExitReason& blame) {
  blame = v1::EXIT_REASON_BAD_SPEC;
  int32_t highest = 0;
  for (const v1::JobSpec& form : parts.forms) {
    HEARTH_ASSIGN_OR_RETURN(
        const spec::ShardLevel of_form,
        spec::ResolveShardLevel(form, parts.task->world_size(), parts.task->threads(),
                                parts.plan_bytes, form.batch().micro_batch_size()));
    highest = std::max(highest, static_cast<int32_t>(of_form));
  }
  blame = v1::EXIT_REASON_COMM;
  // The rank with the least memory decides: with more divided the job fits everywhere.
  HEARTH_RETURN_IF_ERROR(parts.comm->AllReduceMax(absl::MakeSpan(&highest, 1)));
  return static_cast<spec::ShardLevel>(highest);
}

absl::StatusOr<int64_t> AgreeOnMicroBatch(const AgreementParts& parts,
                                          spec::ShardLevel shard,
                                          v1::ExitReason& blame) {
  blame = v1::EXIT_REASON_BAD_SPEC;
  const v1::BatchSpec& batch = parts.forms.front().batch();
  const bool automatic = batch.micro_batch_size() == 0;
  // The order of the sums depends on it, and so does an open global batch: a resume must not choose
  // again. Another number of ranks sums in another order anyway, and has other shares of a given
  // batch and of the memory.
  const bool keep = automatic && parts.resumed != nullptr &&
                    parts.resumed->meta.micro_batch_size > 0 &&
                    (parts.resumed->meta.world_size == parts.task->world_size() ||
                     !batch.has_global_batch_tokens());
  int64_t micro_batch = keep ? parts.resumed->meta.micro_batch_size : 0;
  for (const v1::JobSpec& form : parts.forms) {
    if (keep) {
      break;
    }
    const absl::StatusOr<int64_t> of_form = spec::ResolveMicroBatch(
        form, parts.task->world_size(), parts.task->threads(), parts.plan_bytes, shard);
    if (!of_form.ok()) {
      blame = BlameForMemory(parts, of_form.status());
      return MarkIfTooSmall(parts, form, shard, of_form.status());
    }
    micro_batch = micro_batch == 0 ? *of_form : std::min(micro_batch, *of_form);
  }
  // The smallest of all ranks, as the largest of the complements.
  uint64_t complement = ~static_cast<uint64_t>(micro_batch);
  blame = v1::EXIT_REASON_COMM;
  HEARTH_RETURN_IF_ERROR(parts.comm->AllReduceMax(absl::MakeSpan(&complement, 1)));
  return static_cast<int64_t>(~complement);
}

absl::Status CheckSame(Collective& comm, std::string_view what, int64_t value) {
  const auto word = static_cast<uint64_t>(value);
  // The largest value and the largest complement, which is that of the smallest: one reduction for
  // both.
  uint64_t bounds[2] = {word, ~word};
  HEARTH_RETURN_IF_ERROR(comm.AllReduceMax(absl::MakeSpan(bounds)));
  return bounds[0] == ~bounds[1] ? absl::OkStatus()
                                 : absl::DataLossError(absl::StrCat(
                                       std::string(what), ": ", ~bounds[1], " and ", bounds[0]));
}

}  // namespace hearth::trainer
