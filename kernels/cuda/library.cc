#include "kernels/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/system.h"

namespace hearth::kernels {
namespace {

std::vector<std::string> Folders() {
  std::vector<std::string> folders = {""};
  if (const char* given = GetEnv("HEARTH_CUDA_LIBRARIES"); given != nullptr) {
    for (absl::string_view folder : absl::StrSplit(given, ':', absl::SkipEmpty())) {
      folders.push_back(absl::StrCat(folder, "/"));
    }
  }
  if (const char* home = GetEnv("CUDA_HOME"); home != nullptr) {
    folders.push_back(absl::StrCat(home, "/lib64/"));
  }
  folders.push_back("/usr/local/cuda/lib64/");
  return folders;
}

}  // namespace

absl::StatusOr<Library> Library::Open(const std::vector<std::string>& names) {
  std::string tried;
  for (const std::string& name : names) {
    const std::vector<std::string> folders =
        name.find('/') == std::string::npos ? Folders() : std::vector<std::string>{""};
    for (const std::string& folder : folders) {
      const std::string path = folder + name;
      if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
        return Library(handle, path);
      }
      const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one a thread
      absl::StrAppend(&tried, tried.empty() ? "" : "; ", why == nullptr ? path : why);
    }
  }
  return absl::UnavailableError(absl::StrCat("no library could be loaded: ", tried));
}

absl::StatusOr<void*> Library::Symbol(const char* name) const {
  void* symbol = dlsym(handle_, name);
  if (symbol == nullptr) {
    return absl::UnavailableError(absl::StrCat(path_, " has no ", name));
  }
  return symbol;
}

}  // namespace hearth::kernels
