#include "common/fault/points.h"

#include "absl/strings/str_format.h"

namespace hearth::fault {
namespace {

constexpr Point kPoints[] = {
    {"io.open", "about to open a file for writing"},
    {"io.write", "about to write to a file"},
    {"io.allocate", "about to take the disk space for a file"},
    {"io.sync", "about to sync a file"},
    {"io.rename", "about to rename a file or folder"},
    {"io.sync_folder", "about to sync a folder"},
    {"io.create_folder", "about to make a folder"},
    {"io.remove", "about to remove a file or folder"},
    {"io.truncate", "about to shorten a file"},
    {"coordinator.before_serve", "store loaded, generation stored, ports not yet open"},
    {"coordinator.call", "a call has arrived, nothing is known of it yet"},
    {"coordinator.receive", "a message was read from a worker's stream, not looked at"},
    {"coordinator.send", "a message is about to be written to a worker's stream"},
    {"coordinator.apply", "a command was taken from the queue, nothing changed yet"},
    {"coordinator.before_reply", "the change is durable, the caller does not know yet"},
    {"coordinator.before_ack", "reports are durable, the worker has not been told"},
    {"notify.send", "a notification is about to be sent, by HTTP or by a command"},
    {"notify.answer", "the receiver has taken a notification, the coordinator does not know"},
    {"store.before_commit", "a batch is ready, nothing of it is durable"},
    {"store.after_commit", "the batch is durable, nobody knows yet"},
    {"store.db_write", "about to write to store.db or its WAL"},
    {"store.db_sync", "about to sync store.db or its WAL"},
    {"store.db_truncate", "about to shorten store.db or its WAL"},
    {"store.db_remove", "about to remove a file beside store.db"},
    {"store.before_flush", "committed records are about to be moved to their files"},
    {"store.after_flush", "committed records are in their files, which is not recorded"},
    {"agent.before_connect", "about to dial a coordinator"},
    {"agent.before_hello", "connected, Hello not sent"},
    {"agent.send", "a message is about to be written to the stream"},
    {"agent.receive", "a message was read from the stream, not handled"},
    {"agent.before_spawn", "an assignment was accepted, no process exists"},
    {"agent.spawn", "all is ready for a trainer's process but the fork"},
    {"agent.after_spawn", "the trainer runs, nobody has been told"},
    {"agent.trainer_send", "bytes are about to be written to a trainer's pipe"},
    {"agent.trainer_receive", "a trainer's pipe has bytes, which are not read"},
    {"agent.before_kill", "the trainer's process group is about to be killed"},
    {"agent.after_reap", "the trainer was reaped, its end is not reported"},
    {"trainer.send", "a message is about to be written to the worker's pipe"},
    {"trainer.receive", "a message of the worker was read, not handled"},
    {"trainer.allocate", "about to allocate the arena, on the device of the job"},
    {"trainer.upload", "about to send values to the device of the job, which may be the CPU"},
    {"rendezvous.listen", "about to open the port for the other ranks"},
    {"rendezvous.dial", "about to connect to another rank"},
    {"rendezvous.send", "a part of the handshake is about to be sent to another rank"},
    {"rendezvous.receive", "a part of the handshake can be read, it is not known from whom"},
    {"comm.collective", "about to begin an operation among the ranks"},
    {"trainer.start", "task read, nothing allocated"},
    {"trainer.before_rendezvous", "data and checkpoint opened, peers not contacted"},
    {"trainer.native_gemm",
     "error: a product fails on block-scaled units before the first step of a quantised recipe, on "
     "the CPU too; not once such products are emulated"},
    {"trainer.native_product",
     "error: the first product that is compared with its emulation before the first step counts as "
     "wrong; on a GPU with block-scaled units"},
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
    {"trainer.evaluate", "before a model of task: eval is read"},
    {"trainer.before_exit", "all done and reported, process about to exit"},
    {"checkpoint.before_write", "snapshot taken, no file written"},
    {"checkpoint.before_shard", "the folder is there, this rank's part is not"},
    {"checkpoint.before_rename", "all files written and synced under the temporary name"},
    {"checkpoint.after_rename", "the folder has its name, not announced"},
    {"dataset.before_spawn", "about to start the tokenizer's process"},
    {"dataset.document", "a document was added to a dataset's shards, nothing is saved"},
    {"dataset.saved", "the state of a dataset build is durable"},
    {"dataset.before_publish", "all datasets of a build are whole, none has its name"},
    {"dataset.after_split", "a dataset of a split has its name, the next one may not"},
    {"checkpoint.before_load", "a checkpoint was chosen, nothing read"},
    {"jobctl.call", "jobctl is about to call the coordinator"},
    {"jobctl.answer", "the coordinator has answered a call, jobctl has not looked at it"},
    {"jobctl.stream", "jobctl has read a message of a stream, nothing is shown of it"},
};

}  // namespace

absl::Span<const Point> Points() {
  return kPoints;
}

std::string PointList() {
  std::string list =
      "HEARTH_FAULTS=POINT=ACTION[@VISIT],... makes a program that reaches a point\n"
      "crash | stop | error | full (a full disk) | delay:100ms | hang | hold:FILE (until FILE "
      "exists)\n"
      "@N: only the N-th visit, @N+: from the N-th on; at points by step N is a step.\n\n";
  for (const Point& point : Points()) {
    absl::StrAppendFormat(&list, "%-28s %s%s\n", point.name, point.where,
                          point.by_step ? " (by step)" : "");
  }
  return list;
}

}  // namespace hearth::fault
