#include "worker/trainer/comm/peer_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

absl::Status Cannot(const std::string& what, cudaError_t error) {
  cudaGetLastError();
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

// What a rank says of its allocation.
struct Introduction {
  int64_t process = 0;
  uint64_t address = 0;  // of the allocation's first byte
  uint64_t shared_bytes = 0;
  char pci_bus_id[32] = {};
  cudaIpcMemHandle_t handle = {};
};

absl::Status Introduce(int ordinal, void* base, size_t bytes, Introduction& mine) {
  mine.process = getpid();
  mine.address = reinterpret_cast<uintptr_t>(base);
  mine.shared_bytes = bytes;
  if (const cudaError_t error =
          cudaDeviceGetPCIBusId(mine.pci_bus_id, sizeof(mine.pci_bus_id), ordinal);
      error != cudaSuccess) {
    return Cannot("PCI address", error);
  }
  if (const cudaError_t error = cudaIpcGetMemHandle(&mine.handle, base); error != cudaSuccess) {
    return Cannot("IPC handle", error);
  }
  return absl::OkStatus();
}

absl::StatusOr<const uint8_t*> OpenPeer(const Introduction& peer, int ordinal, void*& opened) {
  int device = 0;
  const cudaError_t seen = cudaDeviceGetByPCIBusId(&device, peer.pci_bus_id);
  if (seen != cudaSuccess) {
    return Cannot(absl::StrCat("GPU ", peer.pci_bus_id, " is not shown to this process"), seen);
  }
  int possible = 0;
  const cudaError_t asked = cudaDeviceCanAccessPeer(&possible, ordinal, device);
  if (asked != cudaSuccess || possible == 0) {
    return Cannot(absl::StrCat("no peer access to GPU ", peer.pci_bus_id), asked);
  }
  if (peer.process == getpid()) {
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(device, 0);
    if (enabled != cudaSuccess && enabled != cudaErrorPeerAccessAlreadyEnabled) {
      return Cannot(absl::StrCat("peer access to GPU ", peer.pci_bus_id), enabled);
    }
    cudaGetLastError();
    return reinterpret_cast<const uint8_t*>(peer.address);
  }
  const cudaError_t error =
      cudaIpcOpenMemHandle(&opened, peer.handle, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) {
    opened = nullptr;
    return Cannot(absl::StrCat("memory of GPU ", peer.pci_bus_id), error);
  }
  return static_cast<const uint8_t*>(opened);
}

// Whether all ranks are `well`: what one of them cannot do the others must not begin.
absl::Status Agree(Collective& comm, const absl::Status& well) {
  int32_t failed = well.ok() ? 0 : 1;
  HEARTH_RETURN_IF_ERROR(comm.AllReduceMax(absl::MakeSpan(&failed, 1)));
  if (failed == 0 || !well.ok()) {
    return well;
  }
  return absl::FailedPreconditionError("another rank cannot");
}

absl::StatusOr<void*> MapWords(const std::string& name, bool create, size_t bytes) {
  const int file = shm_open(name.c_str(), create ? O_CREAT | O_EXCL | O_RDWR : O_RDWR, 0600);
  if (file < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory ", name, ": ", strerrordesc_np(errno)));
  }
  if (create && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(file);
    shm_unlink(name.c_str());
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory ", name, ": ", strerrordesc_np(error)));
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? absl::StatusOr<void*>(absl::FailedPreconditionError(
                                    absl::StrCat("mmap of ", name, ": ", strerrordesc_np(errno))))
                              : memory;
}

std::string NewName() {
  std::random_device random;
  return absl::StrCat("/hearth-", getpid(), "-", absl::Hex(random()), absl::Hex(random()));
}

}  // namespace

SharedWords::SharedWords(SharedWords&& other) noexcept {
  *this = std::move(other);
}

SharedWords& SharedWords::operator=(SharedWords&& other) noexcept {
  Release();
  host_ = std::exchange(other.host_, nullptr);
  device_ = std::exchange(other.device_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  registered_ = std::exchange(other.registered_, false);
  return *this;
}

SharedWords::~SharedWords() {
  Release();
}

void SharedWords::Release() {
  if (registered_) {
    cudaHostUnregister(host_);
  }
  if (host_ != nullptr) {
    munmap(host_, bytes_);
  }
  host_ = nullptr;
  registered_ = false;
}

absl::StatusOr<SharedWords> SharedWords::Map(Collective& comm, size_t bytes) {
  SharedWords words;
  words.bytes_ = bytes;
  std::string name;
  absl::Status mine;
  const auto map = [&](bool create) {
    absl::StatusOr<void*> memory = MapWords(name, create, bytes);
    mine = memory.status();
    words.host_ = memory.ok() ? *memory : nullptr;
  };
  if (comm.rank() == 0) {
    name = NewName();
    map(true);
  }
  HEARTH_ASSIGN_OR_RETURN(name, BroadcastString(comm, name, 0));
  if (comm.rank() != 0) {
    map(false);
  }
  if (mine.ok()) {
    const cudaError_t error =
        cudaHostRegister(words.host_, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    words.registered_ = error == cudaSuccess;
    mine = words.registered_ ? absl::OkStatus() : Cannot("pinned shared memory", error);
  }
  if (mine.ok()) {
    const cudaError_t error = cudaHostGetDevicePointer(&words.device_, words.host_, 0);
    mine = error == cudaSuccess ? absl::OkStatus() : Cannot("mapped shared memory", error);
  }
  const absl::Status all = Agree(comm, mine);
  if (comm.rank() == 0) {  // everybody who could has it open
    shm_unlink(name.c_str());
  }
  HEARTH_RETURN_IF_ERROR(all);
  return words;
}

PeerMemory::PeerMemory(PeerMemory&& other) noexcept {
  *this = std::move(other);
}

PeerMemory& PeerMemory::operator=(PeerMemory&& other) noexcept {
  Release();
  base_ = std::exchange(other.base_, {});
  opened_ = std::exchange(other.opened_, {});
  return *this;
}

PeerMemory::~PeerMemory() {
  Release();
}

void PeerMemory::Release() {
  for (void* memory : opened_) {
    cudaIpcCloseMemHandle(memory);
  }
  opened_.clear();
}

absl::StatusOr<PeerMemory> PeerMemory::Open(Collective& comm,
                                            int ordinal,
                                            void* base,
                                            size_t bytes) {
  Introduction own;
  absl::Status mine = Introduce(ordinal, base, bytes, own);
  HEARTH_RETURN_IF_ERROR(Agree(comm, mine));
  PeerMemory memory;
  for (int rank = 0; rank < comm.world_size(); ++rank) {
    Introduction peer = own;
    auto* const raw = reinterpret_cast<uint8_t*>(&peer);
    HEARTH_RETURN_IF_ERROR(comm.Broadcast(absl::MakeSpan(raw, sizeof(peer)), rank));
    if (rank == comm.rank() || !mine.ok()) {
      memory.base_.push_back(static_cast<const uint8_t*>(base));
      continue;
    }
    if (peer.shared_bytes != bytes) {
      mine = absl::FailedPreconditionError("the ranks' memory is not laid out alike");
    }
    void* opened = nullptr;
    absl::StatusOr<const uint8_t*> first = OpenPeer(peer, ordinal, opened);
    mine = mine.ok() ? first.status() : mine;
    memory.base_.push_back(first.ok() ? *first : nullptr);
    if (opened != nullptr) {
      memory.opened_.push_back(opened);
    }
  }
  HEARTH_RETURN_IF_ERROR(Agree(comm, mine));
  return memory;
}

}  // namespace hearth::trainer
