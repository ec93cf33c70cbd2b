// What is asked of the core, and the one table of all that can be asked.
//
// A call whose request says everything is its own command (v1::CancelJobRequest and so on); the
// others have a struct here. A command is one row in the file of the class that applies it
// (JobCommands, WorkerCommands and so on; part_rows.h): its type, its name, what it needs, and the
// function that applies it. The label in the metrics, the refusal on a full disk and the answer to
// a repeated request_id follow from the row.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/identity.pb.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {

// -------------------------------------------------------------------------------------------------
// Commands that are more than a request. Users' commands get an answer in Effects::reply.

// The spec is resolved and checked by the caller (spec::Resolve).
struct CreateJob {
  v1::JobSpec spec;
  std::string job_id;      // empty = made from spec.name and id_suffix
  std::string request_id;  // empty = not idempotent
  // Random [a-z0-9], >= 8 characters; the first 5 are used unless the id is taken.
  std::string id_suffix;
  // False: checked on a worker before the first STARTING (Effects::inspections).
  bool paths_checked = false;
  std::vector<std::string> warnings;
  bool validate_only = false;  // answers with the job as it would be; changes nothing
  // The spec was not checked, because the request already has an answer. If that answer has been
  // forgotten, the reply is UNAVAILABLE, and the client sends the request again.
  bool answered = false;
  std::string owner;  // the user who submits it; empty = nobody who is known
  // An operator submits it: evaluate.job must be a job of theirs.
  bool own_jobs_only = false;
};
struct FieldOverride {
  std::string field;  // "train.steps"
  std::string old_value;
  std::string new_value;
};
struct ResumeJob {
  std::string job_id;
  std::string request_id;
  std::string etag;  // of the job that `spec` was made from; empty = not checked. Differs: ABORTED
  std::optional<v1::JobSpec> spec;       // resolved, with overrides merged; unset = unchanged
  std::vector<FieldOverride> overrides;  // one event each
  bool answered = false;                 // as in CreateJob
};

// The caller has made the secret.
struct CreateToken {
  v1::Token token;            // without times
  std::string secret_sha256;  // 32 bytes; empty with a certificate
  absl::Duration expires_in = absl::InfiniteDuration();
};

// Agents. `connection_id` is unique per stream for the life of the process, > 0, chosen by the
// caller. A message of a stream that is not its worker's newest one is ignored, so late disconnects
// and crossed streams do no harm. AgentConnected's reply.status: OK; ABORTED (an older daemon of
// this name; or the agent has seen a higher generation than ours); ALREADY_EXISTS (another live
// daemon has the name or the GPU UUID, or the name is bound to another key); RESOURCE_EXHAUSTED
// (too many workers); INVALID_ARGUMENT. If not OK the caller closes the stream with it.
//
// The caller has checked each field by itself (agent_rules.h). What only the job can tell, a step
// past its end, closes the connection with INVALID_ARGUMENT and has no other effect.
struct AgentConnected {
  uint64_t connection_id = 0;
  v1::Hello hello;              // without name_key
  std::string name_key_sha256;  // of its name_key, hex; empty = it has none
  std::string address;          // IP address that the stream comes from; empty = not known
  // It is one of this machine's own, so the stream says nothing of the network.
  bool local = false;
};
struct AgentDisconnected {
  uint64_t connection_id = 0;
};
struct AgentHeartbeat {
  uint64_t connection_id = 0;
  v1::Heartbeat heartbeat;
};
struct AgentReport {
  uint64_t connection_id = 0;
  v1::TaskReport report;
};
struct AgentKvWait {
  uint64_t connection_id = 0;
  v1::TaskKvWait wait;
};
struct AgentGoodbye {
  uint64_t connection_id = 0;
  v1::Goodbye goodbye;
};
// Answer to ListCheckpointFolders.
struct AgentFolders {
  uint64_t connection_id = 0;
  v1::CheckpointFolders folders;
};

// Answer to Effects::inspections. OK: paths are good and `spec` (if set) replaces the job's.
// UNAVAILABLE or DEADLINE_EXCEEDED: asked again later. Anything else fails the job with that
// message.
struct InspectionDone {
  std::string job_id;
  // The request's etag; an answer about an older spec is ignored. Empty = not checked.
  std::string etag;
  absl::Status status;
  std::optional<v1::JobSpec> spec;
};

// Answer to Effects::deliveries. Not OK: it is tried again, after a pause.
struct DeliveryDone {
  std::string job_id;
  std::string id;
  absl::Status status;
};

// To be applied when NextDeadline() is reached. Scheduling happens here alone, so a batch of
// commands costs one Plan.
struct Tick {
  // Monotonic. Before that nobody is judged by what was heard of him: his words may not have been
  // read yet. Jobs are planned all the same.
  absl::Duration judge_from = -absl::InfiniteDuration();
};

// -------------------------------------------------------------------------------------------------
// The table.

// What a kept answer is found by.
struct RequestKey {
  std::string request_id;  // empty = the caller does not repeat it
  std::string job_id;      // empty = not known before the call
};

struct CommandRow {
  std::type_index type;
  const char* name;  // label of hearth_coordinator_commands_total
  // It writes and frees nothing: refused while the disk of the data dir is nearly full.
  bool needs_disk;
  // Not empty: the call is idempotent by its request_id. This is RequestRecord.method, so it never
  // changes. A repeated request gets the job as it is now, and `apply` is not called.
  const char* request_method;
  RequestKey (*key)(const void* args);          // null without request_method
  std::type_index part;                         // the class of the core that applies it
  void (*apply)(void* part, const void* args);  // `part` is that one
};
// All rows. Made once; lives as long as the process.
const std::vector<CommandRow>& CommandTable();
// The row of a command type; aborts if there is none.
const CommandRow& RowOf(std::type_index type);

// The caller of a command, for events, the audit log and the check before it is applied. Commands
// of agents and of the coordinator itself have none.
struct Origin {
  v1::Caller caller;
  std::string method;  // of the API: "CancelJob"
  std::string target;  // the job, worker or token that it is about; empty = none
  std::string detail;  // AuditRecord.message of a call that was not refused
  // The record by which the caller was known; null: a token that is not in the store.
  std::shared_ptr<const v1::Token> token;
  bool own_job = false;  // an operator may do it to their own jobs only (CallRow.own_job)
};

// One command: its row, its arguments and its origin, which no copy changes. Cheap to copy.
class Command {
 public:
  // Type is the one of a row.
  template <typename T, typename Type = std::remove_cvref_t<T>>
  requires(!std::is_same_v<Type, Command>)
      Command(T&& args)  // NOLINT: a command is its arguments; the constraint leaves copies alone
      : row_(&RowOf(typeid(Type))), args_(std::make_shared<const Type>(std::forward<T>(args))) {
    if constexpr (requires { As<Type>()->validate_only; }) {
      changes_nothing_ = As<Type>()->validate_only;
    }
  }

  // The same, asked by somebody.
  Command By(Origin origin) && {
    origin_ = std::make_shared<const Origin>(std::move(origin));
    return std::move(*this);
  }

  const CommandRow& row() const { return *row_; }
  // Null: nobody asks.
  const Origin* origin() const { return origin_.get(); }
  const void* args() const { return args_.get(); }
  // Null when the command is another one.
  template <typename T>
  const T* As() const {
    return row_->type == typeid(T) ? static_cast<const T*>(args_.get()) : nullptr;
  }
  // It writes and frees nothing, so it is refused while the disk is nearly full.
  bool NeedsDisk() const { return row_->needs_disk && !changes_nothing_; }
  bool changes_nothing() const { return changes_nothing_; }

 private:
  const CommandRow* row_;
  std::shared_ptr<const void> args_;
  std::shared_ptr<const Origin> origin_;
  bool changes_nothing_ = false;  // it only asks whether a change would be taken
};

}  // namespace hearth::coordinator
