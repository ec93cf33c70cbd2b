#include "coordinator/core/uncommitted.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>

#include "common/base/status_macros.h"

namespace hearth::coordinator {
namespace {

template <typename T>
bool Holds(const std::vector<T>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const T& row) {
    if constexpr (requires { row.durable; }) {
      return row.durable;
    } else {
      return true;
    }
  });
}
template <typename T>
bool Holds(const std::optional<T>& value) {
  return value.has_value();
}

template <auto Member>
bool There(const Effects& effects) {
  return Holds(effects.*Member);
}
bool ChangesState(const Effects& effects) {
  return std::any_of(effects.events.begin(), effects.events.end(),
                     [](const v1::JobEvent& event) { return event.type() == "state"; });
}
bool Never(const Effects& /*effects*/) {
  return false;
}

// All members, in order.
[[maybe_unused]] auto MembersOf(const Effects& effects) {
  const auto& [jobs, job_deletes, events, history, logs, workers, worker_deletes, requests,
               request_deletes, kv_clears, kv_deletes, kv_puts, token_deletes, token_puts, audit,
               messages, closes, inspections, deliveries, reply, planned, visits, checkpoint_writes,
               delivery_outcomes] = effects;
  return std::tie(jobs, job_deletes, events, history, logs, workers, worker_deletes, requests,
                  request_deletes, kv_clears, kv_deletes, kv_puts, token_deletes, token_puts, audit,
                  messages, closes, inspections, deliveries, reply, planned, visits,
                  checkpoint_writes, delivery_outcomes);
}

constexpr bool kStored = true;
constexpr bool kNotStored = false;

constexpr EffectRow kEffectRows[] = {
    {"state change", Leaves::kDurableFirst, kStored, &ChangesState,
     "people and agents act on states"},
    {"event", Leaves::kNextCommit, kStored, &There<&Effects::events>,
     "a note on a report or a look at the clock, which comes again"},
    {"job", Leaves::kNextCommit, kStored, &There<&Effects::jobs>,
     "follows reports: numbers applied, steps, checkpoints, exits of ranks; changes of state have "
     "an event"},
    {"job_delete", Leaves::kDurableFirst, kStored, &There<&Effects::job_deletes>,
     "its files go after the commit, and the name is free"},
    {"history", Leaves::kNextCommit, kStored, &There<&Effects::history>, "the step comes again"},
    {"log", Leaves::kNextCommit, kStored, &There<&Effects::logs>, "the lines come again"},
    {"worker", Leaves::kNextCommit, kStored, &There<&Effects::workers>,
     "flags of users have an answer, names and keys a Welcome; health comes with a report"},
    {"worker_delete", Leaves::kNextCommit, kStored, &There<&Effects::worker_deletes>,
     "one that has been away for long; if a user asks, there is an answer"},
    {"request", Leaves::kDurableFirst, kStored, &There<&Effects::requests>,
     "the request must not act twice"},
    {"request_delete", Leaves::kNextCommit, kStored, &There<&Effects::request_deletes>,
     "its time is over, also after the next start"},
    {"kv_clear", Leaves::kNextCommit, kStored, &There<&Effects::kv_clears>,
     "keys of an epoch that is over are not restored"},
    {"kv_delete", Leaves::kNextCommit, kStored, &There<&Effects::kv_deletes>,
     "goes with the checkpoint that it is about"},
    {"kv_put", Leaves::kNextCommit, kStored, &There<&Effects::kv_puts>, "the put comes again"},
    {"token_delete", Leaves::kDurableFirst, kStored, &There<&Effects::token_deletes>,
     "a token that was taken back must not come back"},
    {"token_put", Leaves::kDurableFirst, kStored, &There<&Effects::token_puts>,
     "its owner is told the secret"},
    {"audit", Leaves::kDurableFirst, kStored, &There<&Effects::audit>,
     "the log has what was done before anybody sees it"},
    {"message", Leaves::kAtOnce, kNotStored, &Never, "each kind has its own row"},
    {"close", Leaves::kDurableFirst, kNotStored, &There<&Effects::closes>,
     "comes after what was sent before it, and the agent dials in again without delay"},
    {"inspection", Leaves::kDurableFirst, kNotStored, &There<&Effects::inspections>,
     "its answer names a job and a version of its spec"},
    {"delivery", Leaves::kDurableFirst, kNotStored, &There<&Effects::deliveries>,
     "people are told only what stays so"},
    {"reply", Leaves::kDurableFirst, kNotStored, &There<&Effects::reply>,
     "who has an answer relies on it"},
    {"planned", Leaves::kAtOnce, kNotStored, &Never, "a figure for the metrics"},
    {"visits", Leaves::kAtOnce, kNotStored, &Never, "a figure for the metrics"},
    {"checkpoint_write", Leaves::kAtOnce, kNotStored, &Never, "a figure for the metrics"},
    {"delivery_outcome", Leaves::kAtOnce, kNotStored, &Never, "a figure for the metrics"},
};
// Events have two rows.
static_assert(std::size(kEffectRows) ==
                  std::tuple_size_v<decltype(MembersOf(std::declval<const Effects&>()))> + 1,
              "each member of Effects needs a row");

constexpr MessageRow kMessageRows[] = {
    {v1::CoordinatorMessage::kWelcome, Leaves::kDurableFirst,
     "it binds the worker's name, and its acks make the agent forget reports"},
    {v1::CoordinatorMessage::kStart, Leaves::kDurableFirst,
     "no worker runs an epoch that the store does not know"},
    {v1::CoordinatorMessage::kControl, Leaves::kDurableFirst,
     "a gang that stops must find who asked for it"},
    {v1::CoordinatorMessage::kKill, Leaves::kDurableFirst,
     "a rank that dies must find that we killed it, or it counts as its fault"},
    {v1::CoordinatorMessage::kAck, Leaves::kNextCommit,
     "the agent forgets the report: it must be stored, but nobody waits for the ack"},
    {v1::CoordinatorMessage::kKvValue, Leaves::kAtOnce,
     "for live trainers of a stored epoch; the put comes again"},
    {v1::CoordinatorMessage::kInspect, Leaves::kAtOnce,
     "a question of the service, which changes nothing"},
    {v1::CoordinatorMessage::kDeleteCheckpoint, Leaves::kDurableFirst,
     "no record may name a folder that is gone"},
    {v1::CoordinatorMessage::kForget, Leaves::kDurableFirst,
     "it kills: that the task is not known must be stored"},
    {v1::CoordinatorMessage::kListCheckpoints, Leaves::kNextCommit,
     "a question that nobody waits for"},
    {v1::CoordinatorMessage::kReadCheckpoint, Leaves::kAtOnce,
     "a question of the service, which changes nothing"},
    {v1::CoordinatorMessage::kWrite, Leaves::kAtOnce,
     "a question of the service, which changes nothing"},
    {v1::CoordinatorMessage::kStopWriting, Leaves::kAtOnce,
     "ends a question of the service, which changes nothing"},
};

}  // namespace

const std::vector<EffectRow>& EffectTable() {
  static const auto* const table =
      new std::vector<EffectRow>(std::begin(kEffectRows), std::end(kEffectRows));
  return *table;
}

const std::vector<MessageRow>& MessageTable() {
  static const auto* const table =
      new std::vector<MessageRow>(std::begin(kMessageRows), std::end(kMessageRows));
  return *table;
}

const MessageRow& RowOf(v1::CoordinatorMessage::MessageCase kind) {
  const auto* const found =
      std::find_if(std::begin(kMessageRows), std::end(kMessageRows),
                   [kind](const MessageRow& row) { return row.kind == kind; });
  HEARTH_CHECK(found != std::end(kMessageRows), "each message to an agent has a row");
  return *found;
}

Leaves LeavesOf(const Effects& effects) {
  Leaves latest = Leaves::kAtOnce;
  for (const EffectRow& row : kEffectRows) {
    if (row.there(effects)) {
      latest = std::max(latest, row.leaves);
    }
  }
  for (const OutgoingMessage& message : effects.messages) {
    latest = std::max(latest, RowOf(message.message.message_case()).leaves);
  }
  return latest;
}

bool Effects::NothingDurable() const {
  return std::none_of(std::begin(kEffectRows), std::end(kEffectRows),
                      [this](const EffectRow& row) { return row.stored && row.there(*this); });
}

}  // namespace hearth::coordinator
