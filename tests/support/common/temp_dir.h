// A folder for the files of one test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/base/status_macros.h"
#include "gtest/gtest.h"

namespace hearth {

// A new, empty folder that goes away with the object, whatever is in it by then. A fixture declares
// it before the members that keep files open in it.
class TempDir {
 public:
  TempDir() : path_(std::filesystem::canonical(testing::TempDir()) / "hearth_XXXXXX") {
    HEARTH_CHECK(mkdtemp(path_.data()) != nullptr, path_.c_str());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  // Absolute and without links.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hearth
