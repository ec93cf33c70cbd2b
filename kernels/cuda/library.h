// Shared libraries of the CUDA toolkit, loaded when they are first needed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace hearth::kernels {

// An opened library; never closed (its threads and static state outlive any owner).
class Library {
 public:
  // Tries `names` in order: plain names through the loader's search path, then in the folders of
  // CUDA toolkits (CUDA_HOME, /usr/local/cuda, HEARTH_CUDA_LIBRARIES = colon-separated folders).
  // kUnavailable: none opened; the text lists what was tried and the loader's words.
  static absl::StatusOr<Library> Open(const std::vector<std::string>& names);

  const std::string& path() const { return path_; }
  // kUnavailable: no such symbol, with the library's path.
  absl::StatusOr<void*> Symbol(const char* name) const;

 private:
  Library(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
};

}  // namespace hearth::kernels
