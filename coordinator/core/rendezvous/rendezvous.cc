#include "coordinator/core/rendezvous/rendezvous.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hearth::coordinator {
namespace {

constexpr size_t kKeyBytesMax = 256;
constexpr size_t kValueBytesMax = 1 << 20;
constexpr int64_t kSpaceBytesMax = 64 << 20;
constexpr size_t kRefusedMax = 1024;
constexpr size_t kWaitsMax = 1 << 18;

int64_t EntryBytes(const std::string& key, const std::string& value) {
  return static_cast<int64_t>(key.size() + value.size());
}

}  // namespace

void Rendezvous::Restore(const v1::KvRecord& record) {
  Space& space = spaces_[record.job_id()];
  space.values[record.key()] = record.value();
  space.bytes += EntryBytes(record.key(), record.value());
}

Rendezvous::PutResult Rendezvous::Put(
    const std::string& job_id, int64_t epoch, int rank, const v1::KvPut& put, Effects& effects) {
  Space& space = spaces_[job_id];
  const int64_t bytes = EntryBytes(put.key(), put.value());
  const auto old = space.values.find(put.key());
  const int64_t replaced = old == space.values.end() ? 0 : EntryBytes(old->first, old->second);
  // A put that is refused also answers those who wait: the value will not come.
  std::set<int> concerned;
  if (auto waits = space.waits.extract(put.key()); !waits.empty()) {
    concerned = std::move(waits.mapped());
  }
  PutResult out;
  v1::KvValue value;
  if (put.key().size() > kKeyBytesMax || put.value().size() > kValueBytesMax ||
      space.bytes - replaced + bytes > kSpaceBytesMax) {
    out.refused = absl::StrCat("key-value space: a put of ", bytes, " bytes is over the limits (",
                               space.bytes, " bytes are held)");
    // Kept for those who come to wait later; bounded, because a rank may try many keys.
    if (space.refused.size() < kRefusedMax && put.key().size() <= kKeyBytesMax) {
      space.refused[put.key()] = out.refused;
    }
    concerned.insert(rank);
    value.set_key(put.key().substr(0, kKeyBytesMax));
    value.set_error(out.refused);
  } else {
    space.bytes += bytes - replaced;
    space.values[put.key()] = put.value();
    space.refused.erase(put.key());
    v1::KvRecord& record = effects.kv_puts.emplace_back();
    record.set_job_id(job_id);
    record.set_epoch(epoch);
    record.set_key(put.key());
    record.set_value(put.value());
    value.set_key(put.key());
    value.set_value(put.value());
  }
  for (const int to : concerned) {
    out.answers.push_back({to, value});
  }
  return out;
}

std::optional<v1::KvValue> Rendezvous::Wait(const std::string& job_id,
                                            int rank,
                                            const std::string& key) {
  if (key.size() > kKeyBytesMax) {
    return std::nullopt;
  }
  Space& space = spaces_[job_id];
  v1::KvValue answer;
  answer.set_key(key);
  if (auto value = space.values.find(key); value != space.values.end()) {
    answer.set_value(value->second);
  } else if (auto refused = space.refused.find(key); refused != space.refused.end()) {
    answer.set_error(refused->second);
  } else if (space.waits.size() < kWaitsMax || space.waits.count(key) > 0) {
    space.waits[key].insert(rank);
    return std::nullopt;
  } else {
    answer.set_error(absl::StrCat("key-value space: ", kWaitsMax, " keys are waited for already"));
  }
  return answer;
}

void Rendezvous::ForgetCheckpoints(const std::string& job_id,
                                   int64_t epoch,
                                   int64_t step,
                                   Effects& effects) {
  const auto space = spaces_.find(job_id);
  if (space == spaces_.end()) {
    return;
  }
  // Under these keys the ranks met while they wrote their parts
  // (worker/trainer/checkpoint/shards.cc). A checkpoint that is recorded needs them no more.
  const std::string prefix = absl::StrCat("checkpoint/", epoch, "/");
  auto& values = space->second.values;
  for (auto it = values.lower_bound(prefix);
       it != values.end() && absl::StartsWith(it->first, prefix);) {
    const std::string rest = it->first.substr(prefix.size());
    // Steps are compared as numbers: as text, 10 would come before 9.
    int64_t of_step = 0;
    if (!absl::SimpleAtoi(rest.substr(0, rest.find('/')), &of_step) || of_step > step) {
      ++it;
      continue;
    }
    space->second.bytes -= EntryBytes(it->first, it->second);
    v1::KvRecord& record = effects.kv_deletes.emplace_back();
    record.set_job_id(job_id);
    record.set_epoch(epoch);
    record.set_key(it->first);
    it = values.erase(it);
  }
}

void Rendezvous::Clear(const std::string& job_id, Effects& effects) {
  const auto space = spaces_.find(job_id);
  if (space == spaces_.end()) {
    return;
  }
  // Only values are stored. Waits and refusals live in this process alone.
  if (!space->second.values.empty()) {
    effects.kv_clears.push_back(job_id);
  }
  spaces_.erase(space);
}

}  // namespace hearth::coordinator
