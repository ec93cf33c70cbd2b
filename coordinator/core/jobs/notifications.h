// Notifications about jobs: what is sent to which receiver, and the progress of that
// (docs/notify.md).
//
// A notification is added to its job's record in the turn of its event, so the two are committed
// together and a crash forgets neither. It stays pending until a receiver has taken it or the last
// attempt has failed; what was under way when the coordinator ended is sent again after the start.
// So each is delivered at least once. How often it was tried is part of the record, so pauses go
// on growing over restarts.
//
// Receivers do not wait for one another: each command, and each scheme, host and port of URLs, has
// a queue of its own with at most one delivery under way, the earliest event first. One that hangs
// holds up what is to go to itself alone.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "coordinator/core/core.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// What can be told: the values of NotifySpec.on.
struct NotificationKind {
  const char* name;
  const char* event_type;  // of the events that it tells of
  v1::JobState to_state;   // ... into this state; UNSPECIFIED = whatever the state
  const char* phrase;      // completes "job x "
};
absl::Span<const NotificationKind> NotificationKinds();

// The body of a notification, as docs/notify.md describes it: a JSON object in UTF-8.
std::string NotificationBody(const v1::Job& job,
                             const v1::Notification& notification,
                             const v1::PendingNotification& pending);

// kInvalidArgument, with all violations: the spec names a command that is not configured, or a URL
// that begins with none of the prefixes that are allowed.
absl::Status CheckReceiversAllowed(const v1::JobSpec& spec, const CoreOptions& options);

// The pause after so many attempts (>= 1) that failed.
absl::Duration NotificationPause(int attempts);
// After so many failed attempts, about 14 hours, it is given up.
inline constexpr int kNotificationAttemptsMax = 24;
// Deliveries that may be under way, each to another receiver; the Notifier has a thread for each.
inline constexpr size_t kDeliveriesMax = 16;
// Notifications of one job: so many may be pending, more than can be under way, and so many of the
// others are kept.
inline constexpr int kPendingNotificationsMax = 64;
inline constexpr int kEndedNotificationsKept = 20;

// Not thread-safe.
class Notifications {
 public:
  // All that is passed in outlives this.
  Notifications(Turn& turn, const CoreOptions& options, Jobs& jobs, JobStates& states)
      : turn_(turn), options_(options), jobs_(jobs), states_(states) {}

  static std::vector<CommandRow> Rows();

  // After a start: what is pending is due at once.
  void Restore(const v1::JobRecord& record);
  // After each command: adds what its events tell of.
  void TakeEvents();
  // In a Tick, and when a receiver is free again: hands out what is due. A receiver hears of things
  // in their order unless an attempt fails. Gives up what the settings no longer allow.
  void Send();
  int64_t pending() const { return static_cast<int64_t>(attempts_.size()); }

 private:
  using Key = std::pair<int64_t, int>;  // the event's revision and the receiver's number
  struct Attempt {
    std::string job_id;
    std::string receiver;  // a key of queues_
    absl::Duration due;    // monotonic
    bool under_way = false;
  };
  // What is pending for a receiver and not under way.
  using Queue = std::set<std::pair<absl::Duration, Key>>;

  static Key KeyOf(const std::string& id);
  void Done(const DeliveryDone& done);
  // Takes down what came of it.
  void Note(const DeliveryDone& done);
  void Add(JobState& job, const v1::JobEvent& event, const NotificationKind& kind);
  void MakeRoom(JobState& job);
  void Expect(const std::string& job_id, const v1::PendingNotification& pending);
  void Forget(const Key& key);
  void Queued(const Key& key, const Attempt& attempt);
  void Unqueue(const Key& key, const Attempt& attempt);
  // Hands out the first of a receiver's that is due and whose job is still there.
  void SendTo(const std::string& receiver);
  // Why this one is not sent any more, as the operator has changed the settings; empty: it is.
  std::string RefusalOf(const v1::Job& job, const v1::PendingNotification& pending) const;
  // It is over, one way or the other.
  void End(JobState& job, int index, v1::NotificationState state);

  Turn& turn_;
  const CoreOptions& options_;
  Jobs& jobs_;
  JobStates& states_;
  std::map<Key, Attempt> attempts_;      // all that are pending
  std::map<std::string, Queue> queues_;  // by receiver; none is empty
  std::map<Key, std::string> busy_;      // what is under way, and the receiver
  std::string last_sent_to_;             // so that all receivers have their turn
};

}  // namespace hearth::coordinator
