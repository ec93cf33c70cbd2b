// The key-value space of a job's present epoch, through which its ranks find each other.
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/impl.h"

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

void Core::Impl::ApplyKvPut(JobState& job, int rank, const v1::KvPut& put) {
  KvSpace& space = kv_[job.job().job_id()];
  const int64_t bytes = EntryBytes(put.key(), put.value());
  const auto old = space.values.find(put.key());
  const int64_t replaced = old == space.values.end() ? 0 : EntryBytes(old->first, old->second);
  if (put.key().size() > kKeyBytesMax || put.value().size() > kValueBytesMax ||
      space.bytes - replaced + bytes > kSpaceBytesMax) {
    return RefuseKvPut(
        job, rank, put.key(),
        absl::StrCat("key-value space: a put of ", bytes, " bytes is over the limits (",
                     space.bytes, " bytes are held)"));
  }
  space.bytes += bytes - replaced;
  space.values[put.key()] = put.value();
  space.refused.erase(put.key());
  v1::KvRecord record;
  record.set_job_id(job.job().job_id());
  record.set_epoch(job.job().epoch());
  record.set_key(put.key());
  record.set_value(put.value());
  effects_.kv_puts.push_back(std::move(record));
  v1::KvValue value;
  value.set_key(put.key());
  value.set_value(put.value());
  auto waits = space.waits.extract(put.key());
  if (!waits.empty()) {
    for (int waiting : waits.mapped()) {
      AnswerKv(job, waiting, value);
    }
  }
}

void Core::Impl::RefuseKvPut(JobState& job,
                             int rank,
                             const std::string& key,
                             const std::string& why) {
  KvSpace& space = kv_[job.job().job_id()];
  Note(job, "warning", "coordinator", why);
  std::set<int> concerned = {rank};  // who waits for it would wait in vain
  auto waits = space.waits.extract(key);
  if (!waits.empty()) {
    concerned.merge(waits.mapped());
  }
  if (space.refused.size() < kRefusedMax && key.size() <= kKeyBytesMax) {
    space.refused[key] = why;
  }
  v1::KvValue value;
  value.set_key(key.substr(0, kKeyBytesMax));
  value.set_error(why);
  for (int to : concerned) {
    AnswerKv(job, to, value);
  }
}

void Core::Impl::ForgetCheckpointKeys(JobState& job, int64_t step) {
  const auto space = kv_.find(job.job().job_id());
  if (space == kv_.end()) {
    return;
  }
  const std::string prefix = absl::StrCat("checkpoint/", job.job().epoch(), "/");
  auto& values = space->second.values;
  for (auto it = values.lower_bound(prefix);
       it != values.end() && absl::StartsWith(it->first, prefix);) {
    const std::string rest = it->first.substr(prefix.size());
    int64_t of_step = 0;
    if (!absl::SimpleAtoi(rest.substr(0, rest.find('/')), &of_step) || of_step > step) {
      ++it;
      continue;
    }
    space->second.bytes -= EntryBytes(it->first, it->second);
    v1::KvRecord& record = effects_.kv_deletes.emplace_back();
    record.set_job_id(job.job().job_id());
    record.set_epoch(job.job().epoch());
    record.set_key(it->first);
    it = values.erase(it);
  }
}

void Core::Impl::AnswerKv(JobState& job, int rank, v1::KvValue value) {
  const v1::RankRecord& record = job.record.ranks(rank);
  WorkerState* worker = FindWorker(record.worker_id());
  if (worker == nullptr || worker->worker().incarnation() != record.incarnation()) {
    return;
  }
  v1::CoordinatorMessage message;
  message.mutable_kv_value()->set_job_id(job.job().job_id());
  message.mutable_kv_value()->set_epoch(job.job().epoch());
  message.mutable_kv_value()->set_rank(rank);
  *message.mutable_kv_value()->mutable_value() = std::move(value);
  Send(*worker, std::move(message));
}

void Core::Impl::On(const AgentKvWait& command) {
  WorkerState* worker = OnConnection(command.connection_id);
  if (worker == nullptr) {
    return;
  }
  Heard(*worker);
  JobState* job = Find(command.wait.job_id());
  const int rank = job == nullptr ? -1 : RankOf(*job, command.wait.epoch(), *worker);
  if (rank < 0 || job->record.ranks(rank).gone() || command.wait.key().size() > kKeyBytesMax) {
    return;
  }
  KvSpace& space = kv_[command.wait.job_id()];
  v1::KvValue answer;
  answer.set_key(command.wait.key());
  if (auto value = space.values.find(command.wait.key()); value != space.values.end()) {
    answer.set_value(value->second);
    AnswerKv(*job, rank, std::move(answer));
  } else if (auto refused = space.refused.find(command.wait.key());
             refused != space.refused.end()) {
    answer.set_error(refused->second);
    AnswerKv(*job, rank, std::move(answer));
  } else if (space.waits.size() < kWaitsMax || space.waits.count(command.wait.key()) > 0) {
    space.waits[command.wait.key()].insert(rank);
  } else {
    answer.set_error(absl::StrCat("key-value space: ", kWaitsMax, " keys are waited for already"));
    AnswerKv(*job, rank, std::move(answer));
  }
}

void Core::Impl::ClearKv(const std::string& job_id) {
  auto it = kv_.find(job_id);
  if (it != kv_.end()) {
    if (!it->second.values.empty()) {
      effects_.kv_clears.push_back(job_id);
    }
    kv_.erase(it);
  }
}

}  // namespace hearth::coordinator
