#include "common/fault/points.h"

#include "absl/strings/str_format.h"

namespace hearth::fault {
namespace {

constexpr Point kPoints[] = {
    {"coordinator.before_serve", "store loaded, generation stored, ports not yet open"},
    {"coordinator.apply", "a command was taken from the queue, nothing changed yet"},
    {"coordinator.before_reply", "the change is durable, the caller does not know yet"},
    {"coordinator.before_ack", "reports are durable, the worker has not been told"},
    {"store.before_commit", "a batch is ready, nothing of it is durable"},
    {"store.after_commit", "the batch is durable, nobody knows yet"},
    {"store.before_flush", "committed records are about to be moved to their files"},
    {"store.after_flush", "committed records are in their files, which is not recorded"},
    {"agent.before_connect", "about to dial a coordinator"},
    {"agent.before_hello", "connected, Hello not sent"},
    {"agent.send", "a message is about to be written to the stream"},
    {"agent.receive", "a message was read from the stream, not handled"},
    {"agent.before_spawn", "an assignment was accepted, no process exists"},
    {"agent.after_spawn", "the trainer runs, nobody has been told"},
    {"agent.before_kill", "the trainer's process group is about to be killed"},
    {"agent.after_reap", "the trainer was reaped, its end is not reported"},
    {"trainer.start", "task read, nothing allocated"},
    {"trainer.before_rendezvous", "data and checkpoint opened, peers not contacted"},
    {"trainer.native_gemm",
     "error: a product fails on block-scaled units before the first step of a quantised recipe, on "
     "the CPU too; not once such products are emulated"},
    {"trainer.attention",
     "error: cuDNN's attention counts as wrong when it is checked before the first step; on a GPU"},
    {"trainer.step", "before the forward pass of a step"},
    {"trainer.before_allreduce", "gradients of a step are ready, not reduced"},
    {"trainer.after_allreduce", "gradients reduced, optimizer not run"},
    {"trainer.nan_gradient",
     "error: an element of this step's gradient becomes NaN before ranks sum it; @N is the step",
     true},
    {"trainer.loss_spike", "error: this step's targets are other tokens; @N is the step", true},
    {"trainer.illegal_access", "error: a kernel of this step writes outside the GPU's memory"},
    {"trainer.after_step", "weights updated, report not sent"},
    {"trainer.before_exit", "all done and reported, process about to exit"},
    {"checkpoint.before_write", "snapshot taken, no file written"},
    {"checkpoint.before_shard", "the folder is there, this rank's part is not"},
    {"checkpoint.before_rename", "all files written and synced under the temporary name"},
    {"checkpoint.after_rename", "the folder has its name, not announced"},
    {"dataset.document", "a document was added to a dataset's shards, nothing is saved"},
    {"dataset.saved", "the state of a dataset build is durable"},
    {"dataset.before_publish", "all datasets of a build are whole, none has its name"},
    {"dataset.after_split", "a dataset of a split has its name, the next one may not"},
    {"checkpoint.before_load", "a checkpoint was chosen, nothing read"},
};

}  // namespace

absl::Span<const Point> Points() {
  return kPoints;
}

std::string PointList() {
  std::string list =
      "HEARTH_FAULTS=POINT=ACTION[@VISIT],... makes a program that reaches a point\n"
      "crash | stop | error | delay:100ms | hang | hold:FILE (until FILE exists)\n"
      "@N: only the N-th visit, @N+: from the N-th on; at points by step N is a step.\n\n";
  for (const Point& point : Points()) {
    absl::StrAppendFormat(&list, "%-28s %s%s\n", point.name, point.where,
                          point.by_step ? " (by step)" : "");
  }
  return list;
}

}  // namespace hearth::fault
