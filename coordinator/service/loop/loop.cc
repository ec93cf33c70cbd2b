#include "coordinator/service/loop/loop.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clip_text.h"
#include "common/fault/fault.h"
#include "common/log/log.h"
#include "common/rpc/grpc_status.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {
namespace {

// Pause after a Tick, in times its duration.
constexpr double kTickPause = 4;
// A commit may hold up so many reports that streams are not read until it is over; what they hold
// back, heartbeats among it, is read soon after.
constexpr absl::Duration kLongCommit = absl::Seconds(2);
constexpr absl::Duration kReadOn = absl::Seconds(1);
constexpr size_t kAuditMessageBytes = 200;

CoreOptions WithGeneration(CoreOptions options, int64_t generation) {
  options.generation = generation;
  return options;
}

Reply Refusal(absl::Status status) {
  return Reply{std::move(status), std::nullopt, std::nullopt};
}

absl::Status StoppingError() {
  return rpc::UnavailableError("the coordinator is stopping", "STOPPING", absl::Seconds(1));
}

v1::AuditRecord AuditRecordOf(const Origin& origin,
                              absl::StatusCode outcome,
                              const std::string& message) {
  v1::AuditRecord record;
  *record.mutable_caller() = origin.caller;
  record.set_method(origin.method);
  record.set_target(origin.target);
  record.set_outcome(absl::StatusCodeToString(outcome));
  record.set_message(ClipText(message, kAuditMessageBytes));
  return record;
}

void AnswerAll(const std::vector<std::pair<Loop::Done, Reply>>& replies) {
  for (const auto& [done, reply] : replies) {
    if (done != nullptr) {
      done(reply);
    }
  }
}

// Answers a batch that could not be stored.
void RefuseAll(const std::vector<std::pair<Loop::Done, Reply>>& replies,
               const absl::Status& status) {
  const absl::Status answer = rpc::MakeError(
      absl::IsResourceExhausted(status) ? absl::StatusCode::kResourceExhausted
                                        : absl::StatusCode::kInternal,
      absl::StrCat("the change could not be stored: ", status.message()), "STORE_FAILED");
  for (const auto& [done, reply] : replies) {
    if (done != nullptr) {
      done(Refusal(answer));
    }
  }
}

}  // namespace

Loop::Loop(const LoopOptions& options,
           Clock& clock,
           Store& store,
           const LoadedState& state,
           View& view,
           AgentHub& hub,
           Inspector& inspector,
           CoordinatorMetrics& metrics)
    : options_(options),
      clock_(clock),
      store_(store),
      view_(view),
      hub_(hub),
      inspector_(inspector),
      metrics_(metrics),
      last_audit_(state.audit.empty() ? 0 : state.audit.back().number()),
      applied_(ReadClock()),
      core_(WithGeneration(options.core, store.generation()), state.core, applied_),
      commits_(options.batch_max) {
  view_.Load(core_, state.events, state.core);
  view_.identity().Load(state.core.tokens, state.audit);
}

Loop::~Loop() {
  Stop();
}

void Loop::Start(Inspect inspect,
                 Deliver deliver,
                 std::function<void(const absl::Status&)> on_fatal,
                 std::function<void()> on_turn,
                 Recheck recheck) {
  inspect_ = std::move(inspect);
  deliver_ = std::move(deliver);
  on_fatal_ = std::move(on_fatal);
  on_turn_ = std::move(on_turn);
  recheck_ = std::move(recheck);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "hearth-loop");
    Run();
  });
}

void Loop::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

Now Loop::ReadClock() {
  return Now{clock_.Now(), clock_.Monotonic(), clock_.BootId()};
}

Now Loop::TimeOf(const Item& item) {
  if (item.arrived.monotonic > applied_.monotonic) {
    applied_ = item.arrived;
  }
  return applied_;
}

void Loop::Post(Command command, Done done) {
  Enqueue(Item{std::move(command), std::move(done), nullptr, std::nullopt}, true);
}

void Loop::PostFromAgent(Command command, Done done) {
  Enqueue(Item{std::move(command), std::move(done), nullptr, std::nullopt}, false);
}

void Loop::NoteRefusal(const Origin& origin, const absl::Status& status, int64_t left_out) {
  const std::string message =
      left_out == 0 ? std::string(status.message())
                    : absl::StrCat("(after ", left_out, " more refusals) ", status.message());
  Enqueue(Item{Tick{}, nullptr, nullptr, AuditRecordOf(origin, status.code(), message)}, true);
}

void Loop::Query(std::function<void(const Core*)> query) {
  Enqueue(Item{Tick{}, nullptr, std::move(query), std::nullopt}, false);
}

void Loop::Enqueue(Item item, bool limited) {
  absl::Status refusal;
  {
    absl::MutexLock lock(&mu_);
    // Agents are not limited here: their streams bound themselves (AgentStream::kInFlightMax), and
    // a report that is refused would only come again.
    if (stopping_) {
      refusal = StoppingError();
    } else if (limited && queue_.size() >= options_.queue_max) {
      refusal = rpc::UnavailableError("too many changes are waiting", "BUSY", absl::Seconds(1));
    } else {
      item.arrived = ReadClock();  // under the lock, so that times are in the order of the queue
      queue_.push_back(std::move(item));
      return;
    }
  }
  // Outside the lock, as a callback may post again.
  if (item.query != nullptr) {
    item.query(nullptr);
  } else if (item.done != nullptr) {
    item.done(Refusal(std::move(refusal)));
  }
}

void Loop::Run() {
  while (WaitForWork()) {
    const absl::Duration start = clock_.Monotonic();
    Process(TakeBatch());
    inspector_.Expire();
    hub_.Expire(clock_.Monotonic());
    metrics_.ObserveTurn(clock_.Monotonic() - start);
    metrics_.SetPendingNotifications(core_.pending_notifications());
    if (on_turn_ != nullptr) {
      on_turn_();
    }
  }
  bool failed = false;
  {
    absl::MutexLock lock(&mu_);
    failed = stopped_;
  }
  // Reports that wait would come again after the next start; their agents need not keep them.
  if (!failed) {
    CommitWaiting({});
  }
  // All who asked get an answer: those that were queued, and those held back for their turn.
  std::deque<Item> rest;
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    stopping_ = true;
    rest.swap(queue_);
  }
  rest.insert(rest.begin(), std::make_move_iterator(held_back_.begin()),
              std::make_move_iterator(held_back_.end()));
  for (Item& item : rest) {
    if (item.query != nullptr) {
      item.query(nullptr);
    } else if (item.done != nullptr) {
      item.done(Refusal(StoppingError()));
    }
  }
}

// False when the loop is to end.
bool Loop::WaitForWork() {
  const absl::Duration rest = std::min(NextTick(), commits_.DueAt()) - clock_.Monotonic();
  absl::MutexLock lock(&mu_);
  // Commands that were held back are work already; nothing will announce them.
  if (held_back_.empty() && rest > absl::ZeroDuration()) {
    clock_.AwaitWithTimeout(mu_, absl::Condition(this, &Loop::Ready),
                            std::min(rest, absl::Seconds(1)));
  }
  // A loop that stops does first what came before the stop.
  return !stopped_ && !(stopping_ && queue_.empty() && held_back_.empty());
}

std::vector<Loop::Item> Loop::TakeBatch() {
  std::vector<Item> items;
  // They came before everything in the queue, and commands are done in the order in which they
  // came.
  while (!held_back_.empty() && items.size() < options_.batch_max) {
    items.push_back(std::move(held_back_.front()));
    held_back_.pop_front();
  }
  absl::MutexLock lock(&mu_);
  taken_ = ReadClock();
  while (!queue_.empty() && items.size() < options_.batch_max) {
    items.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  metrics_.SetQueueLength(static_cast<int64_t>(queue_.size()));
  return items;
}

void Loop::Process(std::vector<Item> items) {
  Replies replies;
  std::vector<Effects> effects = ApplyAll(items, replies);
  TickIfDue(effects);
  metrics_.SetIsolated(core_.isolated());
  for (Effects& e : effects) {
    // Before a commit, which takes its time.
    for (OutgoingMessage& message : commits_.Add(std::move(e), clock_.Monotonic())) {
      hub_.Send(message.connection_id, std::move(message.message));
    }
  }
  if (commits_.DueAt() <= clock_.Monotonic()) {
    CommitWaiting(replies);
  } else {
    // Commands without an answer, and refusals: an answer would be durable first.
    AnswerAll(replies);
  }
}

std::vector<Effects> Loop::ApplyAll(std::vector<Item>& items, Replies& replies) {
  const int64_t free_bytes = store_.FreeBytes();
  const bool low_space = free_bytes >= 0 && free_bytes < options_.min_free_bytes;
  std::vector<Effects> effects;
  size_t taken = 0;
  while (taken < items.size()) {
    Item& item = items[taken++];
    HEARTH_FAULT_POINT("coordinator.apply");
    if (item.query != nullptr) {
      item.query(&core_);
      continue;
    }
    if (item.refusal.has_value()) {
      if (!low_space) {  // what strangers do must not take the last room
        effects.push_back(AuditOf(*std::move(item.refusal)));
      }
      continue;
    }
    if (low_space && item.command.NeedsDisk()) {
      replies.emplace_back(std::move(item.done), Refusal(DiskFull(free_bytes)));
      continue;
    }
    NameUnknownTasks(item.command);
    effects.push_back(Apply(item));
    Reply reply;
    if (effects.back().reply.has_value()) {
      reply = *std::move(effects.back().reply);
    }
    replies.emplace_back(std::move(item.done), std::move(reply));
    if (!effects.back().job_deletes.empty()) {
      break;  // a later command may create a job of the same name: that belongs to another commit
    }
  }
  held_back_.insert(held_back_.begin(),
                    std::make_move_iterator(items.begin() + static_cast<std::ptrdiff_t>(taken)),
                    std::make_move_iterator(items.end()));
  return effects;
}

void Loop::TickIfDue(std::vector<Effects>& effects) {
  if (!held_back_.empty() || NextTick() > taken_.monotonic) {
    return;
  }
  applied_ = taken_;
  const absl::Duration start = clock_.Monotonic();
  effects.push_back(core_.Apply(Tick{judge_from_}, taken_));
  const absl::Duration end = clock_.Monotonic();
  if (effects.back().planned) {
    metrics_.ObservePlan(end - start);
  }
  tick_allowed_ = end + kTickPause * (end - start);
}

bool Loop::CommitWaiting(const Replies& replies) {
  const bool stored = commits_.AnyStored();
  std::vector<Effects> effects = commits_.Take();
  // On the disk before anybody hears of it, as a crash must not undo what somebody was told.
  if (stored) {
    const absl::Duration start = clock_.Monotonic();
    const absl::Status status = store_.Commit(effects).status();
    const absl::Duration took = clock_.Monotonic() - start;
    metrics_.ObserveCommit(took, effects.size());
    commits_.Committed(took);
    if (took > kLongCommit) {
      judge_from_ = start + took + kReadOn;
    }
    if (!status.ok()) {
      RefuseAll(replies, status);
      Fail(status);
      return false;
    }
  }
  if (!replies.empty()) {
    HEARTH_FAULT_POINT("coordinator.before_reply");
  }
  metrics_.Observe(effects, view_);
  view_.Apply(absl::MakeSpan(effects));
  AnswerAll(replies);
  LetKnow(effects);
  return true;
}

absl::Status Loop::DiskFull(int64_t free_bytes) const {
  return rpc::MakeError(absl::StatusCode::kResourceExhausted,
                        absl::StrCat("not enough disk space for the coordinator's data dir: ",
                                     free_bytes >> 20, " MiB free, ", options_.min_free_bytes >> 20,
                                     " MiB needed; nothing was changed"),
                        "DISK_FULL");
}

// What the core does, and what the audit log says of it. The caller is judged again: since the gate
// let the call in, its token may have ended, or its job may be another one.
Effects Loop::Apply(const Item& item) {
  const Command& command = item.command;
  const Origin* origin = command.origin();
  absl::Status allowed;
  if (origin != nullptr && recheck_ != nullptr) {
    allowed = recheck_(*origin, core_.FindJob(origin->target));
  }
  Effects effects;
  if (allowed.ok()) {
    effects = core_.Apply(command, TimeOf(item));
    metrics_.CountCommand(command);
  } else {
    effects.reply = Refusal(allowed);
  }
  if (origin == nullptr || command.changes_nothing() || !effects.reply.has_value()) {
    return effects;
  }
  const absl::Status& outcome = effects.reply->status;
  v1::AuditRecord record = AuditRecordOf(
      *origin, outcome.code(), outcome.ok() ? origin->detail : std::string(outcome.message()));
  if (record.target().empty() && effects.reply->job.has_value()) {
    record.set_target(effects.reply->job->job_id());  // the job that this call has made
  }
  effects.audit = std::move(AuditOf(std::move(record)).audit);
  return effects;
}

Effects Loop::AuditOf(v1::AuditRecord record) {
  record.set_number(++last_audit_);
  *record.mutable_time() = ToProto(clock_.Now());
  Effects effects;
  effects.audit.push_back(std::move(record));
  return effects;
}

// A worker that comes with a task of a job that the store does not have is told to end it. After a
// restore these are the jobs that the copy is too old for: the log is the place to see which.
void Loop::NameUnknownTasks(const Command& command) const {
  const auto* connected = command.As<AgentConnected>();
  if (connected == nullptr) {
    return;
  }
  for (const v1::TaskStatus& task : connected->hello.tasks()) {
    if (core_.FindJob(task.job_id()) == nullptr) {
      HEARTH_LOG_WARNING(
          "worker {} has a task of job {} (epoch {}, step {}), which is not known here",
          connected->hello.worker_id(), task.job_id(), task.epoch(), task.step());
    }
  }
}

void Loop::LetKnow(std::vector<Effects>& effects) {
  for (Effects& e : effects) {
    for (OutgoingMessage& message : e.messages) {
      if (message.message.has_ack()) {
        HEARTH_FAULT_POINT("coordinator.before_ack");
      }
      hub_.Send(message.connection_id, std::move(message.message));
    }
    for (const CloseConnection& close : e.closes) {
      hub_.Close(close.connection_id, close.status);
    }
    for (const InspectionRequest& inspection : e.inspections) {
      inspect_(inspection);
    }
    for (DeliveryRequest& delivery : e.deliveries) {
      deliver_(std::move(delivery));
    }
  }
}

void Loop::Fail(const absl::Status& status) {
  HEARTH_LOG_ERROR("cannot store changes, the coordinator stops: {}", status.ToString());
  // The core is ahead of the store now: nothing more may be applied, and nobody told.
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    stopped_ = true;
  }
  on_fatal_(status);
}

}  // namespace hearth::coordinator
