// The real store on a disk that loses power, for the simulated coordinator.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "absl/types/span.h"
#include "coordinator/store/store.h"
#include "tests/sim/world.h"
#include "tests/support/common/sim_disk.h"
#include "tests/support/coordinator/sim_disk_vfs.h"

namespace hearth::sim {

class Durable {
 public:
  explicit Durable(uint64_t seed);
  ~Durable();
  Durable(const Durable&) = delete;
  Durable& operator=(const Durable&) = delete;

  // What a start of the coordinator finds; the power may fail meanwhile and come back.
  absl::StatusOr<core::RestoredState> Start();
  int64_t generation() const { return store_->generation(); }

  // False: the disk has failed, at the end of the program or of the machine. Whether the effects
  // are on it nobody knows before the next start.
  bool Commit(absl::Span<const core::Effects> batch);
  // The end comes at one of the next `most` changes of the disk.
  void ArmEnd(int64_t most);
  // The coordinator ends: killed, or with the machine's power.
  void End(bool power_fails);

  // What the store has and the model lacks, or the other way round; "" = they agree. `state` of
  // the last Start.
  std::string Difference(const Store& model, const core::RestoredState& state) const;

 private:
  std::string HistoryDifference(const Store& model) const;

  std::mt19937_64 random_;
  std::string dir_;
  SimDisk disk_;
  core::SimDiskVfs vfs_;
  std::unique_ptr<core::Store> store_;
};

}  // namespace hearth::sim
