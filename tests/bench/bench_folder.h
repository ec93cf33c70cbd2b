// The data directory of a benchmark's coordinator.
#pragma once

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"

namespace hearth {

// The folder that the user named, which stays; without a name a new one, which goes away with the
// object.
class BenchFolder {
 public:
  // `bench` names the new one. It lies on a disk, which /tmp may not be.
  BenchFolder(const std::string& bench, const std::string& named)
      : temporary_(named.empty()),
        path_(temporary_ ? absl::StrCat("/var/tmp/", bench, "_", RandomHex(4)) : named) {}
  ~BenchFolder() {
    if (temporary_) {
      std::filesystem::remove_all(path_);
    }
  }
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  const bool temporary_;
  const std::string path_;
};

}  // namespace hearth
