#include "worker/trainer/rank/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/trainer/checkpoint/folder_weights.h"
#include "worker/trainer/rank/checkpoint/state.h"
#include "worker/trainer/rank/evaluation/forward_model.h"

namespace hearth::trainer {
namespace {

absl::Status BuildEngine(const EngineOptions& options,
                         std::unique_ptr<Engine>& engine,
                         v1::ExitReason& blame) {
  absl::StatusOr<std::unique_ptr<Engine>> built = Engine::Create(options);
  if (!built.ok()) {
    blame = BlameForEngine(built.status(), blame);
    return built.status();
  }
  engine = *std::move(built);
  return absl::OkStatus();
}

// The blame for an error that is not the files' fault.
v1::ExitReason BlameForDevice(const SessionOptions& options) {
  return options.engine.cuda == nullptr ? v1::EXIT_REASON_INTERNAL : v1::EXIT_REASON_DEVICE;
}

absl::Status FillWeights(const SessionOptions& options, Engine& engine, v1::ExitReason& blame) {
  blame = BlameForDevice(options);
  if (options.resumed != nullptr) {
    const absl::Status restored =
        RestoreTensors(engine.exec(), engine.parameters(), *options.resumed);
    if (absl::IsDataLoss(restored)) {
      blame = v1::EXIT_REASON_BAD_DATA;
    }
    return restored;
  }
  const v1::ModelSpec& model = engine.options().spec.model();
  if (model.has_from()) {
    blame = v1::EXIT_REASON_BAD_DATA;
    HEARTH_ASSIGN_OR_RETURN(const HostWeights weights,
                            ReadFolderWeights(*options.env, model.from(), engine.parameters()));
    blame = BlameForDevice(options);
    HEARTH_RETURN_IF_ERROR(WriteWeights(weights, engine.exec(), engine.parameters()));
  } else {
    HEARTH_RETURN_IF_ERROR(engine.Initialise());
  }
  // The average begins at the first weights. A resume restores it with the other states.
  return engine.average() == nullptr ? absl::OkStatus() : engine.average()->Start(engine.exec());
}

}  // namespace

v1::ExitReason BlameForEngine(const absl::Status& status, v1::ExitReason otherwise) {
  // Memory that somebody else holds now may be free the next time.
  return absl::IsResourceExhausted(status) || absl::IsInternal(status) ? v1::EXIT_REASON_DEVICE
                                                                       : otherwise;
}

absl::Status OpenSession(const SessionOptions& options,
                         std::unique_ptr<Engine>& engine,
                         std::unique_ptr<Trainer>& trainer,
                         v1::ExitReason& blame) {
  HEARTH_RETURN_IF_ERROR(BuildEngine(options.engine, engine, blame));
  HEARTH_RETURN_IF_ERROR(FillWeights(options, *engine, blame));
  Trainer::Parts parts = options.trainer;
  parts.engine = engine.get();
  LoadedCheckpoint* const resumed = options.resumed;
  trainer = std::make_unique<Trainer>(parts, resumed == nullptr ? 0 : resumed->meta.step);
  kernels::CudaContext* const cuda = options.engine.cuda;
  blame = BlameForDevice(options);
  HEARTH_RETURN_IF_ERROR(trainer->Prepare());
  if (const std::string& refused = trainer->program().attention().refused; !refused.empty()) {
    options.link->SendLog("warning",
                          absl::StrCat("attention runs our own kernels, which are slower, because "
                                       "the library's are not right here: ",
                                       refused));
  }
  if (cuda != nullptr) {
    if (const absl::Status saved = cuda->SavePlans(); !saved.ok()) {
      options.link->SendLog("warning", absl::StrCat("plans are not kept: ", saved.message()));
    }
    if (const int untuned = cuda->untuned_products(); untuned > 0) {
      options.link->SendLog(
          "info", absl::StrCat(untuned,
                               " matrix products run cuBLASLt's first choice: tuning ended "
                               "after ",
                               cuda->options().tuning_seconds, " s (HEARTH_TUNING_SECONDS); ",
                               cuda->options().deterministic ? "later runs keep these bits"
                                                             : "the next run tunes them"));
    }
  }
  // Restored after Prepare, which on a GPU runs everything once and resets the scales.
  bool scales = false;
  if (resumed != nullptr) {
    HEARTH_ASSIGN_OR_RETURN(scales, RestorePrecision(*engine, *resumed));
    blame = v1::EXIT_REASON_BAD_DATA;
    HEARTH_RETURN_IF_ERROR(RestoreTrainer(*trainer, resumed->meta));
    blame = BlameForDevice(options);
    // All of it is restored: the files are not read again.
    resumed->state.reset();
    resumed->shards.clear();
  }
  return trainer->StartPrecision(scales);
}

}  // namespace hearth::trainer
