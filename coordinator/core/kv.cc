// The key-value space of a job's present epoch, through which its ranks find each other.
#include "absl/strings/str_cat.h"
#include "coordinator/core/impl.h"

namespace hearth::coordinator {
namespace {

constexpr size_t kKeyBytesMax = 256;
constexpr size_t kValueBytesMax = 1 << 20;
constexpr int64_t kSpaceBytesMax = 64 << 20;

}  // namespace

void Core::Impl::ApplyKvPut(JobState& job, const v1::KvPut& put) {
  KvSpace& space = kv_[job.job().job_id()];
  const auto bytes = static_cast<int64_t>(put.key().size() + put.value().size());
  if (put.key().size() > kKeyBytesMax || put.value().size() > kValueBytesMax ||
      space.bytes + bytes > kSpaceBytesMax) {
    Note(job, "warning", "coordinator",
         absl::StrCat("key-value space: a put of ", bytes, " bytes is over the limits"));
    return;
  }
  space.bytes += bytes;
  space.values[put.key()] = put.value();
  v1::KvRecord record;
  record.set_job_id(job.job().job_id());
  record.set_epoch(job.job().epoch());
  record.set_key(put.key());
  record.set_value(put.value());
  effects_.kv_puts.push_back(std::move(record));
  auto waits = space.waits.extract(put.key());
  if (!waits.empty()) {
    for (int rank : waits.mapped()) {
      AnswerKv(job, rank, put.key(), put.value());
    }
  }
}

void Core::Impl::AnswerKv(JobState& job,
                          int rank,
                          const std::string& key,
                          const std::string& value) {
  const v1::RankRecord& record = job.record.ranks(rank);
  WorkerState* worker = FindWorker(record.worker_id());
  if (worker == nullptr || worker->worker().incarnation() != record.incarnation()) {
    return;
  }
  v1::CoordinatorMessage message;
  message.mutable_kv_value()->set_job_id(job.job().job_id());
  message.mutable_kv_value()->set_epoch(job.job().epoch());
  message.mutable_kv_value()->set_rank(rank);
  message.mutable_kv_value()->mutable_value()->set_key(key);
  message.mutable_kv_value()->mutable_value()->set_value(value);
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
  auto value = space.values.find(command.wait.key());
  if (value != space.values.end()) {
    AnswerKv(*job, rank, value->first, value->second);
  } else {
    space.waits[command.wait.key()].insert(rank);
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
