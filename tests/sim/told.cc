// What is owed to people: receivers that are told of jobs, and jobs that wait for a time or for
// another job. What should come about is worked out here from events and spec alone.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/core/errors.h"
#include "coordinator/core/transitions.h"
#include "tests/sim/world.h"

namespace hearth::sim {
namespace {

constexpr const char* kUrls[] = {"http://good/x", "http://slow/x", "http://flaky/x"};
constexpr const char* kTightened = "http://good/";
constexpr const char* kNeverTold = "http://never/x";  // nobody is there until the end
constexpr const char* kKinds[] = {"succeeded", "failed", "cancelled", "paused", "stuck"};

std::string NameOf(const v1::NotifySpec& receiver) {
  return receiver.command().empty() ? receiver.url() : "command " + receiver.command();
}

// What an event is called in NotifySpec.on; empty: nobody is told of it.
std::string KindOf(const v1::JobEvent& event) {
  const std::string name =
      event.type() == "state" ? core::StateName(event.to_state()) : event.type();
  return std::count(std::begin(kKinds), std::end(kKinds), name) > 0 ? name : "";
}

v1::NotifySpec OperatorsReceiver() {
  v1::NotifySpec receiver;
  receiver.set_url(kNeverTold);
  receiver.add_on("failed");
  receiver.add_on("cancelled");
  return receiver;
}

// The revision of the event that a notification tells of; 0 = the id is none.
int64_t RevisionOf(const std::string& id) {
  const std::vector<std::string> parts = absl::StrSplit(id, '-');
  int64_t revision = 0;
  return absl::SimpleAtoi(parts.front(), &revision) ? revision : 0;
}

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

}  // namespace

void World::AddReceivers(core::CoreOptions& options) const {
  options.notify = {OperatorsReceiver()};
  options.notify_commands = {"mail"};
  if (tightened_) {
    options.notify_url_prefixes = {kTightened};
  }
  // Slow trainers and those that nobody hears of.
  options.stuck = absl::Seconds(20);
}

void World::AskToBeTold(v1::JobSpec& spec, const std::function<int(int, int)>& pick) const {
  for (const char* url : kUrls) {
    if (pick(0, 2) == 0) {
      continue;
    }
    v1::NotifySpec& receiver = *spec.add_notify();
    receiver.set_url(url);
    for (const char* kind : kKinds) {
      if (pick(0, 2) > 0) {
        receiver.add_on(kind);
      }
    }
  }
  if (pick(0, 1) == 1) {
    v1::NotifySpec& receiver = *spec.add_notify();
    receiver.set_command("mail");
    receiver.add_on("paused");
    receiver.add_on("succeeded");
  }
}

bool World::AskToWait(int index, v1::JobSpec& spec, const std::function<int(int, int)>& pick) {
  const int waits = pick(0, 5);
  if (waits <= 1) {
    const absl::Time time =
        start_times_.try_emplace(index, clock_.Now() + absl::Seconds(pick(0, 60))).first->second;
    *spec.mutable_start()->mutable_not_before() = core::ToProto(time);
  }
  if (waits >= 1 && waits <= 2 && index > 0 && !no_after_.contains(index)) {
    const auto first = submitted_.find(index - 1);
    if (first == submitted_.end()) {
      return false;
    }
    spec.mutable_start()->set_after(first->second);
  }
  return true;
}

void World::Deliver(const core::DeliveryRequest& request) {
  const std::string receiver =
      request.command.empty() ? request.url : absl::StrCat("command ", request.command);
  if (!under_way_.insert(receiver).second) {
    Fail(absl::StrCat(receiver, " gets two notifications at a time"));
  }
  CheckHandedOut(receiver, request.id);
  core::DeliveryDone done;
  done.job_id = request.job_id;
  done.id = request.id;
  const bool never = receiver == kNeverTold && !healed_;
  if (never || (!healed_ && Chance(receiver == kUrls[2] ? 0.5 : 0.1))) {
    done.status = absl::UnavailableError("nobody answers");
  }
  const bool slow = !healed_ && (never || receiver == kUrls[1]);
  const int64_t generation = generation_;
  After(slow ? Ms(1000, 10000) : Ms(1, 300), [this, generation, receiver, done] {
    // It hears of it whether or not the coordinator lives to know.
    if (done.status.ok()) {
      TakeTold(receiver, done.id);
    }
    if (generation == generation_ && core_ != nullptr) {
      under_way_.erase(receiver);
      Give(done);
    }
  });
}

void World::TakeTold(const std::string& receiver, const std::string& id) {
  const auto owed = owed_.find({RevisionOf(id), receiver});
  if (owed == owed_.end()) {
    Fail(absl::StrCat(receiver, " is told ", id, ", which is owed to nobody"));
    return;
  }
  told_ += owed->second.told ? 0 : 1;
  owed->second.told = true;
}

void World::CheckHandedOut(const std::string& receiver, const std::string& id) {
  if (answered_.contains(id)) {
    Fail(absl::StrCat(receiver, " is told ", id, " again, which it has taken"));
  }
  if (!handed_out_.insert(id).second) {
    return;  // repeated
  }
  int64_t& newest = newest_handed_out_[receiver];
  if (RevisionOf(id) <= newest) {
    Fail(absl::StrCat(receiver, " is told ", id, " after revision ", newest));
  }
  newest = RevisionOf(id);
}

void World::TakeAnswer(const core::DeliveryDone& done) {
  if (done.status.ok()) {
    answered_.insert(done.id);
  }
}

void World::OweFor(const v1::JobEvent& event) {
  const std::string kind = KindOf(event);
  const auto job = store_.jobs.find(event.job_id());
  if (kind.empty() || job == store_.jobs.end()) {
    return;
  }
  std::vector<v1::NotifySpec> receivers(job->second.job().spec().notify().begin(),
                                        job->second.job().spec().notify().end());
  receivers.push_back(OperatorsReceiver());
  for (const v1::NotifySpec& receiver : receivers) {
    if (std::count(receiver.on().begin(), receiver.on().end(), kind) > 0) {
      owed_[{event.revision(), NameOf(receiver)}] = {event.job_id(), kind};
    }
  }
}

void World::CheckGivenUp(const v1::JobEvent& event) {
  if (event.type() != "notification" || !absl::StrContains(event.message(), "given up")) {
    return;
  }
  for (const char* kind : kKinds) {
    for (const char* url : kUrls) {
      if (absl::StartsWith(event.message(), absl::StrCat(url, " was not told: ", kind, ", ")) &&
          absl::StrContains(event.message(), "sends to no such URL")) {
        ++given_up_[absl::StrCat(event.job_id(), " ", kind, " ", url)];
        ++refused_;
        return;
      }
    }
  }
  Fail(absl::StrCat("given up without a reason: ", event.message()));
}

void World::CheckDropped(const v1::JobRecord& before, const v1::JobRecord& record) {
  std::set<std::string> pending;
  for (const v1::PendingNotification& other : record.pending_notifications()) {
    pending.insert(other.id());
  }
  for (const v1::PendingNotification& gone : before.pending_notifications()) {
    const std::string receiver =
        gone.command().empty() ? gone.url() : absl::StrCat("command ", gone.command());
    const auto owed = owed_.find({RevisionOf(gone.id()), receiver});
    if (pending.contains(gone.id()) || owed == owed_.end() || owed->second.told) {
      continue;
    }
    owed->second.given_up =
        --given_up_[absl::StrCat(owed->second.job_id, " ", owed->second.kind, " ", receiver)] >= 0;
    if (!owed->second.given_up) {
      Fail(absl::StrCat(gone.id(), " for ", receiver, " is dropped and was not told"));
    }
  }
}

void World::CheckOwed() {
  for (const auto& [key, owed] : owed_) {
    if (!owed.told && !owed.given_up) {
      Fail(absl::StrCat("nobody told ", key.second, " of revision ", key.first, ": ", owed.kind,
                        " of ", owed.job_id));
    }
  }
}

bool World::NoneIsPending() const {
  return std::all_of(store_.jobs.begin(), store_.jobs.end(),
                     [](const auto& job) { return job.second.pending_notifications().empty(); });
}

bool World::TimeCame(const v1::Job& job) const {
  const auto seen = latest_seen_.find(job.job_id());
  return !job.spec().start().has_not_before() ||
         (seen != latest_seen_.end() && TimeOf(job.spec().start().not_before()) <= seen->second);
}

bool World::FirstCame(const v1::Job& job) const {
  return job.spec().start().after().empty() || first_came_.contains(job.job_id());
}

void World::TakeSuccess(const std::string& first) {
  for (const auto& [id, record] : store_.jobs) {
    if (record.job().spec().start().after() == first) {
      first_came_.insert(id);
    }
  }
}

v1::JobState World::FirstsState(const v1::Job& job) const {
  const auto first = store_.last_state.find(job.spec().start().after());
  return job.spec().start().after().empty() ? v1::JOB_STATE_SUCCEEDED
         : first == store_.last_state.end() ? v1::JOB_STATE_UNSPECIFIED
                                            : first->second;
}

void World::LookAtTheClock() {
  for (const v1::JobRecord* record : core_->Jobs()) {
    absl::Time& latest =
        latest_seen_.try_emplace(record->job().job_id(), absl::InfinitePast()).first->second;
    latest = std::max(latest, clock_.Now());
  }
}

void World::CheckNotEarly(const v1::JobEvent& event) {
  const auto found = store_.jobs.find(event.job_id());
  if (event.to_state() != v1::JOB_STATE_STARTING || found == store_.jobs.end() ||
      !found->second.job().spec().has_start()) {
    return;
  }
  const v1::Job& job = found->second.job();
  if (!TimeCame(job)) {
    Fail(absl::StrCat(job.job_id(), " starts before its time"));
  }
  if (!FirstCame(job)) {
    Fail(absl::StrCat(job.job_id(), " starts before ", job.spec().start().after(),
                      " has succeeded"));
  }
  started_after_waiting_ += static_cast<int64_t>(seen_waiting_.erase(job.job_id()));
}

void World::CheckNotLate(const v1::JobRecord& record) {
  const v1::Job& job = record.job();
  const v1::StartSpec& start = job.spec().start();
  if (job.state() != v1::JOB_STATE_QUEUED) {
    return;
  }
  if (!TimeCame(job) || !FirstCame(job)) {
    seen_waiting_.insert(job.job_id());
  }
  // What has come about stays so, wherever the clock jumps; one that has started shows it.
  if (start.has_not_before() && !record.start().time_came() &&
      (TimeOf(start.not_before()) <= clock_.Now() || job.epoch() > 0)) {
    Fail(absl::StrCat(job.job_id(), " waits for a time that has come"));
  }
  if (!record.start().job_succeeded() && !start.after().empty() &&
      core::IsTerminal(FirstsState(job))) {
    Fail(absl::StrCat(job.job_id(), " waits for ", start.after(), ", which is ",
                      core::StateName(FirstsState(job))));
  }
}

void World::LetTimesCome() {
  absl::Time latest = clock_.Now();
  for (const auto& [index, time] : start_times_) {
    latest = std::max(latest, time);
  }
  // A clock that was set back by a day would hold its job for a day.
  if (latest - clock_.Now() > absl::Minutes(2)) {
    clock_.JumpWall(latest - clock_.Now());
  }
}

}  // namespace hearth::sim
