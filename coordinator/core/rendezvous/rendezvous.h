// The key-value space of each job's present epoch, through which its ranks find each other.
//
// A put is stored (Effects::kv_puts), though answers do not wait for that, so a restart of the
// coordinator in mid-rendezvous restarts no gang: agents ask again and are answered from restored
// rows, or when a put that was not stored yet comes again. Waits are not kept.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/core.h"

namespace hearth::coordinator {

// Bounds: keys of 256 bytes, values of 1 MiB, 64 MiB a job, 2^18 keys that are waited for a job.
// Not thread-safe.
class Rendezvous {
 public:
  // What a rank of the job is to be told.
  struct Answer {
    int rank = 0;
    v1::KvValue value;
  };
  struct PutResult {
    std::vector<Answer> answers;  // to ranks that wait for the key; of a refused put, its rank too
    std::string refused;          // why the put is over the bounds; empty = it was kept
  };

  void Restore(const v1::KvRecord& record);

  // Appends the row to kv_puts.
  PutResult Put(
      const std::string& job_id, int64_t epoch, int rank, const v1::KvPut& put, Effects& effects);
  // The value, or the error of a key that was refused or cannot be waited for; nullopt: a later
  // Put answers. A key over the bound is ignored, as no put can ever answer it.
  std::optional<v1::KvValue> Wait(const std::string& job_id, int rank, const std::string& key);
  // Drops what the ranks told one another about checkpoints up to that step of the epoch.
  void ForgetCheckpoints(const std::string& job_id, int64_t epoch, int64_t step, Effects& effects);
  // The epoch is over.
  void Clear(const std::string& job_id, Effects& effects);
  // The job is deleted; its rows go with its own.
  void Drop(const std::string& job_id) { spaces_.erase(job_id); }

 private:
  struct Space {
    std::map<std::string, std::string> values;
    std::map<std::string, std::string> refused;  // keys whose put failed -> why
    std::map<std::string, std::set<int>> waits;  // key -> ranks
    int64_t bytes = 0;                           // of keys and values
  };

  std::map<std::string, Space> spaces_;  // by job id
};

}  // namespace hearth::coordinator
