// What may leave the coordinator before it is on the disk: the table of all that a command can have
// as its effects.
//
// A commit takes as long as the disk likes, half a second on a busy one, and the event loop makes
// one at a time. Whatever waits for a commit of its own makes a restart that much longer, so a row
// waits only if a crash could do harm without:
//
//   at once        a message that leaves before its rows are stored
//   next commit    it waits for a commit, but asks for none: the next one, which others ask for or
//                  which comes by itself soon (group_commit.h), makes it durable
//   durable first  it asks for a commit now, and leaves after it
//
// Why a crash between the sending and the commit does no harm. The store always has a prefix of
// what the core applied: a commit takes all effects that wait, in order. So after a crash the
// coordinator stands where it stood a few reports earlier (at most what a commit's pause holds), as
// if those had not come. Then it holds:
//
//  1. Nothing acknowledged is lost. Answers to users, states, audit records and tokens are durable
//     first, and by the prefix so is all that they rest on. An ack waits for its report's rows.
//  2. Each report is applied once. An agent keeps a report until its ack, which is not sent before
//     the commit; after the crash it sends the report again under the same number, and the
//     restored applied_seq, stored in the same transaction as the report's rows, says that it is
//     new. So a step is once in the history, a log line once in the log.
//  3. No worker does what the store does not know. Starts, kills, stops, removals of checkpoints
//     and the order to forget a task are durable first: an epoch that runs is stored, and so is
//     what makes it stale. So fencing does not depend on what was lost.
//  4. Readers see what is stored: view, metrics and streams get effects after their commit, in
//     order. What they saw stays.
//
// KvValue is all that the core sends at once. It tells a rank what another rank of the same epoch
// has put; the epoch is stored (3). If the crash loses the put, its agent has the report still (2)
// and puts the same value again; nothing else in the core follows from it. If that agent is gone
// as well, so is the rank, and the gang ends as a whole: the next epoch begins with no keys. Values
// are for live trainers; nobody reads one after its epoch.
//
// Exits, steps and checkpoints that wait cost no more than a report that comes again; if its agent
// dies in the same pause, it is as if it had died before the report. A worker that an exit has
// freed may get another task meanwhile: that is a start, whose commit stores the exit before it.
#pragma once

#include <string_view>
#include <vector>

#include "coordinator/core/core.h"

namespace hearth::coordinator {

// Ordered by how long it waits.
enum class Leaves { kAtOnce, kNextCommit, kDurableFirst };

// A kind of effect that is no message to an agent.
struct EffectRow {
  const char* name;
  Leaves leaves;
  bool stored;  // the store writes it; else it only follows what is stored
  bool (*there)(const Effects& effects);
  const char* why;
};
// At least one for each member of Effects: a member without a row does not compile.
const std::vector<EffectRow>& EffectTable();

// A kind of message to an agent.
struct MessageRow {
  v1::CoordinatorMessage::MessageCase kind;
  Leaves leaves;
  const char* why;
};
// One for each message of the proto.
const std::vector<MessageRow>& MessageTable();
// Aborts if there is none.
const MessageRow& RowOf(v1::CoordinatorMessage::MessageCase kind);

// The latest of all that is in there; kAtOnce if there is nothing.
Leaves LeavesOf(const Effects& effects);

}  // namespace hearth::coordinator
