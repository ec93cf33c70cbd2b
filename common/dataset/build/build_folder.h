// The folder in which a dataset is built: found again by the build that follows a killed one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"

namespace hearth::dataset {

// Holds the folder with a lock. It lies beside `out` as `<out>.building`; when `out` is there and
// gets folders of its own (it may be a mount point or a link), it is `<out>/.building`. Nothing
// else is ever removed. Destroyed before Publish, it goes with all that is in it. Not thread-safe.
class BuildFolder {
 public:
  // `splits`: names of the folders that come to lie in `out`; empty: `out` is the dataset.
  // kAlreadyExists: `out` is there and is not empty, or another folder has the name;
  // kFailedPrecondition: another process builds there.
  static absl::StatusOr<std::unique_ptr<BuildFolder>> Open(const std::string& out,
                                                           std::vector<std::string> splits,
                                                           Env& env);
  // Where it would lie.
  static std::string PathFor(const std::string& out, bool has_splits, Env& env);
  ~BuildFolder();

  const std::string& path() const { return path_; }
  // The folder that becomes the i-th dataset (of one without splits), and where it is written.
  std::string DataPath(size_t i) const;
  std::string WorkPath(size_t i) const;

  // What SaveState wrote last, by a process that was killed. Moves the datasets back to where they
  // are written.
  absl::StatusOr<std::optional<std::string>> LoadState();
  absl::Status SaveState(std::string_view state);
  absl::Status Clear();  // all but the lock

  // Gives the datasets, which are at DataPath, their places in `out`. Call it once, last, after
  // SaveState.
  absl::Status Publish();

 private:
  BuildFolder(std::string out, std::vector<std::string> splits, Env& env);
  absl::Status Lock();

  const std::string out_;
  const std::vector<std::string> splits_;
  const std::string path_;
  const bool inside_;  // in `out`
  Env& env_;
  int lock_ = -1;
};

}  // namespace hearth::dataset
