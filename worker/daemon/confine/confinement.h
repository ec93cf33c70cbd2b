// What keeps a trainer from doing more than it needs. Each measure is a row of a table: what it
// checks and opens before the first trainer, what a new process does, and how logs and `describe
// worker` name it. Linux only.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/daemon/confine/cgroup.h"

namespace hearth::worker {

struct ConfinementOptions {
  std::string user;             // account of trainers, "" = ours; needs root
  bool filter_calls = true;     // call_filter.h
  CgroupLimits limits;          // for all processes of this worker's trainers together
  std::string name;             // of the worker, for its cgroup
  bool gpu = false;             // trainers open the devices of GPUs and of their networks
  std::string checkpoint_root;  // trainers write there
  std::string home;             // parent of the folder that becomes HEARTH_HOME of another account
};

// Immutable once prepared; Enter() from any thread.
class Confinement {
 public:
  // What Enter() returned: the row that failed and its errno; 0 = all measures are in force.
  struct Failure {
    int measure = -1;
    int error = 0;
  };

  // Checks that a process can be confined so and can then still do its work, with a process that
  // tries it. Hands checkpoint_root and its jobs over to `user`. kInvalidArgument,
  // kFailedPrecondition, kPermissionDenied: the text names the flag, why not, and what to do.
  // `programs`: what trainers run.
  static absl::StatusOr<Confinement> Prepare(const ConfinementOptions& options,
                                             const std::vector<std::string>& programs);
  // Nothing but no_new_privs.
  Confinement() = default;

  // Confines the calling process for good. Only system calls, for use between fork and exec. It
  // takes away the parent-death signal where the account changes: ask for it afterwards.
  Failure Enter() const;
  static std::string_view MeasureName(const Failure& failure);

  // One text a measure that is in force, for people: "account hearth-trainer".
  std::vector<std::string> InForce() const;
  // "KEY=value" that replace what trainers inherit: the other account's home.
  const std::vector<std::string>& environment() const { return environment_; }
  // Folder for what trainers keep between jobs ($HEARTH_HOME); "" = that of the worker.
  const std::string& trainer_home() const { return trainer_home_; }

 private:
  struct Measure {
    std::string_view name;
    // Null: nothing to prepare.
    absl::Status (*prepare)(Confinement& self, const ConfinementOptions& options);
    // 0 or errno; does nothing if the measure is not in force.
    int (*enter)(const Confinement& self);
    // Empty: it is not in force.
    std::string (*in_force)(const Confinement& self);
  };
  static absl::Span<const Measure> Measures();

  static absl::Status PrepareLimits(Confinement& self, const ConfinementOptions& options);
  static int EnterLimits(const Confinement& self);
  static std::string LimitsInForce(const Confinement& self);
  static absl::Status PrepareCapabilities(Confinement& self, const ConfinementOptions& options);
  static int EnterCapabilities(const Confinement& self);
  static absl::Status PrepareAccount(Confinement& self, const ConfinementOptions& options);
  static int EnterAccount(const Confinement& self);
  static absl::Status PrepareFilter(Confinement& self, const ConfinementOptions& options);
  static int EnterFilter(const Confinement& self);

  absl::Status FindAccount(const std::string& user);
  absl::Status HandOver(const ConfinementOptions& options);
  // Confines a process and has it check what trainers need.
  absl::Status Try(const ConfinementOptions& options, const std::vector<std::string>& programs);

  Cgroup cgroup_;
  CgroupLimits limits_;
  bool drops_capabilities_ = false;
  bool drops_bounding_ = false;
  int last_capability_ = 0;
  std::string user_;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
  std::vector<gid_t> groups_;
  std::string trainer_home_;
  std::vector<std::string> environment_;
  std::vector<sock_filter> filter_;
};

}  // namespace hearth::worker
