#include "worker/trainer/rank/rank_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/spec/data/sample_tables.h"
#include "common/spec/recipe/recipe.h"
#include "kernels/gemm/native_error.h"

namespace hearth::trainer {

RankSession::RankSession(RankContext& rank,
                         Meeting& meeting,
                         JobData& data,
                         std::string dump_gradients)
    : rank_(rank), meeting_(meeting), data_(data), dump_gradients_(std::move(dump_gradients)) {}

absl::Status RankSession::Open(const v1::JobSpec& spec,
                               Purpose purpose,
                               LoadedCheckpoint* resumed) {
  purpose_ = purpose;
  HEARTH_RETURN_IF_ERROR(OpenOnce(spec, resumed));
  rank_.pulse.Restart(trainer_->step());
  return absl::OkStatus();
}

absl::Status RankSession::OpenOnce(const v1::JobSpec& spec, LoadedCheckpoint* resumed) {
  rank_.pulse.Begin(Activity::kOther, "loading");
  SessionOptions options;
  options.engine.spec = spec;
  options.engine.micro_batch = rank_.agreed.micro_batch;
  options.engine.threads = std::max(1, rank_.task.threads());
  options.engine.cuda = rank_.cuda.get();
  options.engine.world_size = std::max(1, rank_.task.world_size());
  options.engine.rank = rank_.task.rank();
  options.engine.shard = rank_.agreed.shard;
  options.engine.host_bytes = rank_.host_bytes;
  if (spec::SeesOwnDocument(spec.data())) {
    rank_.blame = v1::EXIT_REASON_BAD_DATA;
    HEARTH_ASSIGN_OR_RETURN(options.engine.seen, data_.train().SeenShare());
  }
  options.trainer.comm = &meeting_.comm();
  options.trainer.train = &data_.train();
  options.trainer.validation = data_.validation();
  options.trainer.clock = &rank_.clock;
  options.trainer.batch = rank_.agreed.batch;
  options.trainer.pulse = &rank_.pulse;
  options.trainer.dump_gradients = purpose_ == Purpose::kTrial ? "" : dump_gradients_;
  options.env = &rank_.env;
  options.link = &rank_.link;
  options.resumed = resumed;
  rank_.blame = v1::EXIT_REASON_BAD_SPEC;
  const absl::Status opened = OpenSession(options, engine_, trainer_, rank_.blame);
  // All ranks have GPUs and libraries of one kind, so the library refuses a product to all of them
  // or to none. Any other failure may be this rank's alone or have spoilt the device, and ends the
  // run. If ranks differ all the same, those that go on meet a deadline where they wait for peers.
  const spec::Recipe* recipe = spec::RecipeFor(spec.precision());
  const bool native_or_nothing =
      recipe->on_cuda == spec::Execution::kEmulated && !spec.precision().emulate();
  if (!kernels::IsNativeGemmError(opened) || !absl::IsUnimplemented(opened) || native_or_nothing) {
    return opened;
  }
  return OpenWithoutNativeBlocks(options, opened);
}

absl::Status RankSession::OpenWithoutNativeBlocks(SessionOptions& options,
                                                  const absl::Status& refused) {
  rank_.link.SendLog("warning",
                     absl::StrCat("going on without block-scaled matrix units, as a product "
                                  "failed on them: ",
                                  refused.message()));
  HEARTH_RETURN_IF_ERROR(Close());
  rank_.link.SendPhase(purpose_ == Purpose::kTrial ? "trial" : "loading");
  options.engine.no_native_blocks = std::string(refused.message());
  options.trainer.comm = &meeting_.comm();
  rank_.blame = v1::EXIT_REASON_BAD_SPEC;
  return OpenSession(options, engine_, trainer_, rank_.blame);
}

absl::Status RankSession::Close() {
  if (rank_.cuda != nullptr && meeting_.comm().world_size() > 1) {
    // Peers may have the engine's memory mapped until their communicators are gone, which they are
    // when all have met again.
    rank_.blame = v1::EXIT_REASON_COMM;
    HEARTH_RETURN_IF_ERROR(Part());
    HEARTH_RETURN_IF_ERROR(meeting_.Meet());
  }
  trainer_.reset();
  engine_.reset();
  return absl::OkStatus();
}

bool RankSession::Bound() const {
  // Between two engines peers that have not parted yet may have the first one's memory mapped.
  return meeting_.met() || engine_ != nullptr;
}

absl::Status RankSession::Part() {
  // Peers may hold this rank's memory mapped until their communicators are gone, and those wait for
  // the graphs that hold their operations.
  HEARTH_RETURN_IF_ERROR(meeting_.comm().Barrier());
  trainer_.reset();
  meeting_.Leave();
  return absl::OkStatus();
}

int64_t RankSession::JobStep() const {
  return trainer_ == nullptr || purpose_ == Purpose::kTrial ? 0 : trainer_->step();
}

}  // namespace hearth::trainer
