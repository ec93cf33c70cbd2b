// Memory of the ranks of one host, as each of them sees it. For the copy transport.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/comm/collective.h"

namespace hearth::trainer {

// A piece of host memory that every rank has mapped and its GPU can signal through, zeroed.
class SharedWords {
 public:
  // All ranks of `comm`, which are on one host (and see one /dev/shm). kFailedPrecondition: they do
  // not.
  static absl::StatusOr<SharedWords> Map(Collective& comm, size_t bytes);
  SharedWords() = default;
  SharedWords(SharedWords&& other) noexcept;
  SharedWords& operator=(SharedWords&& other) noexcept;
  ~SharedWords();

  // For this rank's GPU.
  void* device() const { return device_; }

 private:
  void Release();
  void* host_ = nullptr;
  void* device_ = nullptr;
  size_t bytes_ = 0;
  bool registered_ = false;
};

// Device memory of every rank.
class PeerMemory {
 public:
  // All ranks of `comm` with their own allocation [base, base + bytes). `cuda` is the GPU of
  // `base`. kFailedPrecondition: the GPUs do not see one another's memory.
  static absl::StatusOr<PeerMemory> Open(Collective& comm, int ordinal, void* base, size_t bytes);
  PeerMemory() = default;
  PeerMemory(PeerMemory&& other) noexcept;
  PeerMemory& operator=(PeerMemory&& other) noexcept;
  ~PeerMemory();

  // Where `rank`'s allocation begins for this rank.
  const uint8_t* base(int rank) const { return base_[static_cast<size_t>(rank)]; }

 private:
  void Release();
  std::vector<const uint8_t*> base_;
  std::vector<void*> opened_;  // by cudaIpcOpenMemHandle
};

}  // namespace hearth::trainer
