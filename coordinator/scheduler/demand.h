// What a waiting job demands of workers: everything that a plan reads, except the job's place in
// the queue.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {

// Jobs with equal demands are interchangeable, so the fields are what decisions and reasons are
// made of, and no more.
struct Demand {
  std::string device;  // as the spec names it; empty = it names none, which means cpu
  std::map<std::string, std::string> selector;
  bool span_hosts = true;
  std::string root_uuid;        // root of the checkpoint to resume from; empty = none
  int64_t checkpoint_step = 0;  // for the reason text; 0 without a checkpoint
  int64_t wanted = 0;           // workers
  int64_t least = 0;            // 1 <= least <= wanted
  int64_t batch_ranks = 0;      // MaxRanks, if that is fewer than `least`; else 0
  // Devices with so much memory were too small for the job: it takes those with more. 0 = all.
  int64_t too_small_bytes = 0;

  // clang-tidy 14 takes the 0 that <=> compares with for a pointer.
  auto operator<=>(const Demand&) const = default;  // NOLINT(modernize-use-nullptr)
  bool operator==(const Demand&) const = default;
};

// `root_uuid`, `checkpoint_step`: of the checkpoint to resume from, if there is one.
// `too_small_bytes`: as in v1::JobRecord.
Demand DemandOf(const v1::JobSpec& spec,
                std::string_view root_uuid,
                int64_t checkpoint_step,
                int64_t too_small_bytes);

// Most ranks that can share a global batch so that each has work: its micro-batches, or its
// sequences while micro_batch_size is auto.
int64_t MaxRanks(const v1::JobSpec& spec);

// True if the worker's device kind and labels suit the job; for a demand also its memory.
bool Suits(const v1::Worker& worker, const v1::ResourceSpec& resources);
bool Suits(const v1::Worker& worker, const Demand& demand);

}  // namespace hearth::coordinator
