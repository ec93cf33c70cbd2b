#include "coordinator/core/jobs/notifications.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/clip_text.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/field_violation.h"
#include "common/spec/violations/names.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/transitions.h"
#include "nlohmann/json.hpp"

namespace hearth::coordinator {
namespace {

constexpr NotificationKind kKinds[] = {
    {"succeeded", "state", v1::JOB_STATE_SUCCEEDED, "has succeeded"},
    {"failed", "state", v1::JOB_STATE_FAILED, "has failed"},
    {"cancelled", "state", v1::JOB_STATE_CANCELLED, "was cancelled"},
    {"paused", "state", v1::JOB_STATE_PAUSED, "was paused"},
    {"stuck", "stuck", v1::JOB_STATE_UNSPECIFIED, "is stuck"},
};

constexpr absl::Duration kFirstPause = absl::Seconds(5);
constexpr absl::Duration kLongestPause = absl::Hours(1);
constexpr size_t kErrorBytes = 300;
// Bytes of a reason. A pending notification has it twice; each change to the job writes it.
constexpr size_t kReasonBytes = 512;

const NotificationKind* KindOf(const v1::JobEvent& event) {
  for (const NotificationKind& kind : kKinds) {
    if (event.type() == kind.event_type &&
        (kind.to_state == v1::JOB_STATE_UNSPECIFIED || kind.to_state == event.to_state())) {
      return &kind;
    }
  }
  return nullptr;
}

bool Wants(const v1::NotifySpec& receiver, const NotificationKind& kind) {
  return std::find(receiver.on().begin(), receiver.on().end(), kind.name) != receiver.on().end();
}

std::string TextOf(const v1::Job& job, const v1::JobEvent& event, const NotificationKind& kind) {
  return absl::StrCat("job ", job.job_id(), " ", kind.phrase, " at step ", event.step(), " of ",
                      spec::TotalSteps(job), ": ", event.message());
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", FromProto(time), absl::UTCTimeZone());
}

// URLs of one server hang together.
std::string ReceiverOf(const v1::PendingNotification& pending) {
  return pending.command().empty() ? absl::AsciiStrToLower(spec::UrlOrigin(pending.url()))
                                   : absl::StrCat("command ", pending.command());
}

// Empty: the URL begins with one of `prefixes`, or any may be called.
std::string PrefixRefusal(const std::string& url, const std::vector<std::string>& prefixes) {
  const bool allowed =
      prefixes.empty() || std::any_of(prefixes.begin(), prefixes.end(), [&url](const auto& prefix) {
        return absl::StartsWith(url, prefix);
      });
  return allowed ? ""
                 : absl::StrCat("this coordinator sends to no such URL; it must begin with ",
                                absl::StrJoin(prefixes, " or "));
}

// The place of a notification in the job's list; nothing: it is not there.
std::optional<int> IndexOf(const v1::Job& job, const std::string& id) {
  for (int i = 0; i < job.notifications_size(); ++i) {
    if (job.notifications(i).id() == id) {
      return i;
    }
  }
  return std::nullopt;
}

const v1::PendingNotification* PendingOf(const v1::JobRecord& record, const std::string& id) {
  for (const v1::PendingNotification& pending : record.pending_notifications()) {
    if (pending.id() == id) {
      return &pending;
    }
  }
  return nullptr;
}

}  // namespace

absl::Span<const NotificationKind> NotificationKinds() {
  return kKinds;
}

absl::Duration NotificationPause(int attempts) {
  absl::Duration pause = kFirstPause;
  for (int i = 1; i < attempts && pause < kLongestPause; ++i) {
    pause *= 2;
  }
  return std::min(pause, kLongestPause);
}

std::string NotificationBody(const v1::Job& job,
                             const v1::Notification& notification,
                             const v1::PendingNotification& pending) {
  const v1::JobEvent& event = pending.event();
  nlohmann::json labels = nlohmann::json::object();
  for (const auto& [key, value] : job.spec().labels()) {
    labels[key] = value;
  }
  const nlohmann::json body = {{"version", 1},
                               {"id", notification.id()},
                               {"on", notification.on()},
                               {"time", TimeText(event.time())},
                               {"text", pending.text()},
                               {"job",
                                {{"job_id", job.job_id()},
                                 {"name", job.spec().name()},
                                 {"owner", job.owner()},
                                 {"labels", labels},
                                 {"state", StateName(event.to_state())},
                                 {"reason_code", event.reason_code()},
                                 {"reason", event.message()},
                                 {"epoch", event.epoch()},
                                 {"step", event.step()},
                                 {"steps", spec::TotalSteps(job)}}}};
  // Reasons may quote what is no UTF-8.
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status CheckReceiversAllowed(const v1::JobSpec& spec, const CoreOptions& options) {
  std::vector<spec::FieldViolation> violations;
  const std::vector<std::string_view> commands(options.notify_commands.begin(),
                                               options.notify_commands.end());
  for (int i = 0; i < spec.notify_size(); ++i) {
    const v1::NotifySpec& receiver = spec.notify(i);
    const std::string path = absl::StrCat("notify[", i, "]");
    if (!receiver.command().empty() && !options.notify_commands.contains(receiver.command())) {
      violations.push_back(
          {path + ".command",
           commands.empty()
               ? "this coordinator has no commands: its operator names them in the file of "
                 "hearth-coordinator --notify"
               : spec::UnknownNameText(receiver.command(), "command", commands)});
    }
    const std::string refusal = PrefixRefusal(receiver.url(), options.notify_url_prefixes);
    if (!receiver.url().empty() && !refusal.empty()) {
      violations.push_back({path + ".url", refusal});
    }
  }
  return spec::ViolationsToStatus(violations);
}

std::vector<CommandRow> Notifications::Rows() {
  return {
      Row<&Notifications::Done>("delivery_done"),
  };
}

Notifications::Key Notifications::KeyOf(const std::string& id) {
  const std::vector<std::string> parts = absl::StrSplit(id, '-');
  Key key;
  // What damage may have left is a key like any other.
  static_cast<void>(absl::SimpleAtoi(parts.front(), &key.first));
  static_cast<void>(absl::SimpleAtoi(parts.back(), &key.second));
  return key;
}

void Notifications::Restore(const v1::JobRecord& record) {
  for (const v1::PendingNotification& pending : record.pending_notifications()) {
    Expect(record.job().job_id(), pending);
  }
}

void Notifications::Expect(const std::string& job_id, const v1::PendingNotification& pending) {
  const Key key = KeyOf(pending.id());
  Forget(key);  // damage may have left an id twice; no queue may keep what is not expected
  attempts_[key] = {job_id, ReceiverOf(pending), turn_.mono()};
  Queued(key, attempts_[key]);
}

void Notifications::Forget(const Key& key) {
  if (const auto found = attempts_.find(key); found != attempts_.end()) {
    Unqueue(key, found->second);
    attempts_.erase(found);
  }
}

void Notifications::Queued(const Key& key, const Attempt& attempt) {
  queues_[attempt.receiver].emplace(attempt.due, key);
}

void Notifications::Unqueue(const Key& key, const Attempt& attempt) {
  const auto queue = queues_.find(attempt.receiver);
  if (queue == queues_.end()) {
    return;
  }
  queue->second.erase({attempt.due, key});
  if (queue->second.empty()) {
    queues_.erase(queue);
  }
}

void Notifications::TakeEvents() {
  // What is added here makes events, too; nobody is told of those.
  const size_t count = turn_.effects().events.size();
  for (size_t i = 0; i < count; ++i) {
    const NotificationKind* const kind = KindOf(turn_.effects().events[i]);
    if (kind == nullptr) {
      continue;
    }
    v1::JobEvent event = turn_.effects().events[i];  // a copy: the list grows below
    event.set_message(ClipText(event.message(), kReasonBytes));
    if (JobState* const job = jobs_.Edit(event.job_id()); job != nullptr) {
      Add(*job, event, *kind);
    }
  }
}

void Notifications::Add(JobState& job, const v1::JobEvent& event, const NotificationKind& kind) {
  int number = 0;
  const auto add = [&](const v1::NotifySpec& receiver, const std::string& target) {
    const std::string id = absl::StrCat(event.revision(), "-", number++);
    MakeRoom(job);
    v1::Notification& shown = *job.notifications().Add();
    shown.set_id(id);
    shown.set_on(kind.name);
    shown.set_target(target);
    shown.set_state(v1::NOTIFICATION_STATE_PENDING);
    *shown.mutable_event_time() = event.time();
    v1::PendingNotification& pending = *job.pending_notifications().Add();
    pending.set_id(id);
    pending.set_url(receiver.url());
    pending.set_command(receiver.command());
    *pending.mutable_event() = event;
    pending.set_text(TextOf(job.job(), event, kind));
    Expect(job.job().job_id(), pending);
    jobs_.Mark(job, true);
  };
  for (const v1::NotifySpec& receiver : job.job().spec().notify()) {
    if (Wants(receiver, kind)) {
      add(receiver, receiver.command().empty() ? receiver.url() : "command " + receiver.command());
    }
  }
  // Readers of the job need not know what the operator keeps in a URL.
  for (const v1::NotifySpec& receiver : options_.notify) {
    if (Wants(receiver, kind)) {
      add(receiver, receiver.command().empty() ? spec::UrlOrigin(receiver.url())
                                               : "command " + receiver.command());
    }
  }
}

// A receiver that is away for long must not let the record grow without bound.
void Notifications::MakeRoom(JobState& job) {
  while (job.record().pending_notifications_size() >= kPendingNotificationsMax) {
    // Not one that is under way: it may be told yet.
    auto& pending = job.pending_notifications();
    const auto idle = std::find_if(pending.begin(), pending.end(), [this](const auto& other) {
      return !busy_.contains(KeyOf(other.id()));
    });
    // Damage may have left one id many times.
    const auto oldest = idle == pending.end() ? pending.begin() : idle;
    const std::string id = oldest->id();
    const std::optional<int> index = IndexOf(job.job(), id);
    if (!index.has_value()) {
      pending.erase(oldest);
      continue;
    }
    job.notifications()[*index].set_error(
        absl::StrCat("more than ", kPendingNotificationsMax, " were pending"));
    End(job, *index, v1::NOTIFICATION_STATE_ABANDONED);
  }
}

void Notifications::Send() {
  // From the receiver behind the one that came last, round to that: a copy, as queues come and go.
  std::vector<std::string> due;
  std::vector<std::string> due_later;
  for (const auto& [receiver, queue] : queues_) {
    if (queue.begin()->first <= turn_.mono()) {
      (receiver > last_sent_to_ ? due : due_later).push_back(receiver);
    }
  }
  due.insert(due.end(), due_later.begin(), due_later.end());
  std::set<std::string> taken;
  for (const auto& [key, receiver] : busy_) {
    taken.insert(receiver);
  }
  for (const std::string& receiver : due) {
    if (busy_.size() >= kDeliveriesMax) {
      return;
    }
    if (!taken.contains(receiver)) {
      SendTo(receiver);
    }
  }
}

void Notifications::SendTo(const std::string& receiver) {
  for (auto queue = queues_.find(receiver);
       queue != queues_.end() && queue->second.begin()->first <= turn_.mono();
       queue = queues_.find(receiver)) {
    const Key key = queue->second.begin()->second;
    Attempt& attempt = attempts_.at(key);
    JobState* const job = jobs_.Edit(attempt.job_id);
    const std::string id = absl::StrCat(key.first, "-", key.second);
    const v1::PendingNotification* const pending =
        job == nullptr ? nullptr : PendingOf(job->record(), id);
    const std::optional<int> index = pending == nullptr ? std::nullopt : IndexOf(job->job(), id);
    if (!index.has_value()) {  // its job was deleted
      Forget(key);
      continue;
    }
    // The operator may have changed the settings since the job was submitted.
    if (const std::string refusal = RefusalOf(job->job(), *pending); !refusal.empty()) {
      job->notifications()[*index].set_error(refusal);
      End(*job, *index, v1::NOTIFICATION_STATE_ABANDONED);
      continue;
    }
    Unqueue(key, attempt);
    attempt.under_way = true;
    busy_.emplace(key, receiver);
    last_sent_to_ = receiver;
    turn_.effects().deliveries.push_back(
        {attempt.job_id, id, pending->url(), pending->command(),
         NotificationBody(job->job(), job->job().notifications(*index), *pending)});
    return;
  }
}

std::string Notifications::RefusalOf(const v1::Job& job,
                                     const v1::PendingNotification& pending) const {
  if (!pending.command().empty()) {
    return options_.notify_commands.contains(pending.command())
               ? ""
               : absl::StrCat("no command ", pending.command(),
                              " is configured at the coordinator");
  }
  const auto has_url = [&pending](const auto& receiver) { return receiver.url() == pending.url(); };
  if (std::any_of(options_.notify.begin(), options_.notify.end(), has_url)) {
    return "";
  }
  const std::string refusal = PrefixRefusal(pending.url(), options_.notify_url_prefixes);
  // A receiver of all jobs that was changed never had to keep to the prefixes.
  const auto& own = job.spec().notify();
  return refusal.empty() || std::any_of(own.begin(), own.end(), has_url)
             ? refusal
             : "no receiver of the job or of the coordinator has this URL any more";
}

void Notifications::Done(const DeliveryDone& done) {
  Note(done);
  Send();
}

void Notifications::Note(const DeliveryDone& done) {
  const Key key = KeyOf(done.id);
  busy_.erase(key);
  const auto attempt = attempts_.find(key);
  if (attempt == attempts_.end() || !attempt->second.under_way) {
    return;
  }
  attempt->second.under_way = false;
  JobState* job = jobs_.Edit(attempt->second.job_id);
  const std::optional<int> index = job == nullptr ? std::nullopt : IndexOf(job->job(), done.id);
  if (!index.has_value()) {
    Forget(key);
    return;
  }
  v1::Notification& shown = job->notifications()[*index];
  shown.set_attempts(shown.attempts() + 1);
  *shown.mutable_attempt_time() = ToProto(turn_.wall());
  jobs_.Mark(*job, true);
  if (done.status.ok()) {
    End(*job, *index, v1::NOTIFICATION_STATE_DELIVERED);
    return;
  }
  shown.set_error(ClipText(std::string(done.status.message()), kErrorBytes));
  if (shown.attempts() >= kNotificationAttemptsMax) {
    End(*job, *index, v1::NOTIFICATION_STATE_ABANDONED);
    return;
  }
  turn_.effects().delivery_outcomes.push_back("failed");
  // The first failure is news; describe has the number of the others.
  if (shown.attempts() == 1) {
    states_.Note(*job, "notification", "coordinator",
                 absl::StrCat(shown.target(), " could not be told that the job ", shown.on(), ": ",
                              shown.error(), "; tried again"));
  }
  attempt->second.due = turn_.mono() + NotificationPause(shown.attempts());
  Queued(key, attempt->second);
}

void Notifications::End(JobState& job, int index, v1::NotificationState state) {
  v1::Notification& shown = job.notifications()[index];
  shown.set_state(state);
  const bool delivered = state == v1::NOTIFICATION_STATE_DELIVERED;
  turn_.effects().delivery_outcomes.push_back(delivered ? "delivered" : "abandoned");
  const std::string id = shown.id();
  const std::string text =
      delivered ? absl::StrCat(
                      shown.target(), " was told: ", shown.on(),
                      shown.attempts() > 1 ? absl::StrCat(" (attempt ", shown.attempts(), ")") : "")
                : absl::StrCat(shown.target(), " was not told: ", shown.on(), ", given up after ",
                               shown.attempts(),
                               shown.attempts() == 1 ? " attempt: " : " attempts: ", shown.error());
  Forget(KeyOf(id));
  auto& pending = job.pending_notifications();
  pending.erase(std::remove_if(pending.begin(), pending.end(),
                               [&id](const auto& other) { return other.id() == id; }),
                pending.end());
  // The newest of those that are over stay.
  auto& all = job.notifications();
  const auto over = [](const v1::Notification& other) {
    return other.state() != v1::NOTIFICATION_STATE_PENDING;
  };
  if (std::count_if(all.begin(), all.end(), over) > kEndedNotificationsKept) {
    all.erase(std::find_if(all.begin(), all.end(), over));
  }
  states_.Note(job, "notification", "coordinator", text);
}

}  // namespace hearth::coordinator
