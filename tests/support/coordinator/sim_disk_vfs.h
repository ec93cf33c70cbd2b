// SQLite on a SimDisk. For tests.
#pragma once

#include <memory>
#include <string>

#include "tests/support/common/sim_disk.h"

namespace hearth::coordinator {

// Registers a file system of SQLite's (a VFS) under a name of its own, for one connection at a time
// to each database. Databases on it are closed before it ends; `disk` outlives it.
class SimDiskVfs {
 public:
  explicit SimDiskVfs(SimDisk& disk);
  ~SimDiskVfs();
  SimDiskVfs(const SimDiskVfs&) = delete;
  SimDiskVfs& operator=(const SimDiskVfs&) = delete;

  const std::string& name() const;

 private:
  struct Registration;
  std::unique_ptr<Registration> registration_;
};

}  // namespace hearth::coordinator
