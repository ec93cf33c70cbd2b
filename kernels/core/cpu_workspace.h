// Workspace for ops on the CPU.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "kernels/core/exec.h"

namespace hearth::kernels {

// Owns `bytes` bytes of memory, aligned as workspaces must be; their content is undefined.
class CpuWorkspace {
 public:
  explicit CpuWorkspace(size_t bytes)
      : memory_(::operator new (bytes, std::align_val_t{kAlignment})), bytes_(bytes) {}

  // Valid as long as this object.
  Workspace workspace() const { return {memory_.get(), bytes_}; }
  // `exec` with this workspace.
  Exec With(Exec exec = Exec()) const {
    exec.workspace = workspace();
    return exec;
  }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(void* memory) const {
      ::operator delete (memory, std::align_val_t{kAlignment});
    }
  };

  std::unique_ptr<void, Free> memory_;
  size_t bytes_;
};

}  // namespace hearth::kernels
