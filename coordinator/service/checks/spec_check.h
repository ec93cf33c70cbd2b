// All checks of a submitted spec: rules, then what only a worker can see, then memory. CreateJob,
// validate_only, ResumeJob and the check before the first STARTING run this one function.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/core.h"
#include "coordinator/service/agents/inspector.h"
#include "coordinator/service/loop/loop.h"
#include "coordinator/service/view/view.h"
#include "hearth/v1/agent.pb.h"
#include "hearth/v1/job.pb.h"

namespace hearth::coordinator {

// The paths of a spec that workers must see: datasets and model.from, then those of evaluate.
std::vector<std::string> PathsOf(const v1::JobSpec& spec);

// Completes a resolved spec with what a worker said of PathsOf(spec), in that order. `worker_id` is
// that worker, "" = the answers were kept from several. kInvalidArgument: all violations; those of
// paths that the worker cannot use name it.
absl::Status ApplyFacts(v1::JobSpec& spec,
                        const std::vector<v1::PathInfo>& paths,
                        const std::string& worker_id);

// The differences between two specs, one line each as protobuf prints it; empty if they ask for the
// same. Both are resolved. Facts about paths that only one of them has (because no worker could be
// asked for the other) are no difference.
std::vector<std::string> SpecDifferences(const v1::JobSpec& kept, const v1::JobSpec& submitted);

// kResourceExhausted if the plan of the complete spec fits the largest of `workers` that the job
// may run on neither with all of resources.workers nor with min_workers, or if it offloads more
// than any of their hosts has for a rank. OK if it fits, or if nothing is known (no such worker,
// vocabulary unknown). kInvalidArgument, kUnimplemented as MakePlanInputs.
absl::Status CheckMemory(const v1::JobSpec& spec, const std::vector<WorkerPtr>& workers);

// The same for a resolved spec whose paths no worker has been asked about: kResourceExhausted when
// it cannot fit whatever they hold, into the largest of `workers` that it may run on, or where none
// of those is online into any device known. Else OK.
absl::Status CheckMemoryUnseen(const v1::JobSpec& spec, const std::vector<WorkerPtr>& workers);

struct CheckedSpec {
  absl::Status status;
  v1::JobSpec spec;            // resolved and completed as far as possible
  bool paths_checked = false;  // false: no worker could be asked; `warnings` says why
  std::vector<std::string> warnings;
};

// Thread-safe. The three parts outlive this.
class SpecChecker {
 public:
  using Done = std::function<void(CheckedSpec)>;
  // Keys that change nothing are refused only in a job file: a stored job keeps what it has. A job
  // that is only planned need not fit a worker, and no worker is asked where the spec says all that
  // a plan needs; kFailedPrecondition: one must be asked, and none answers, or the caller may not
  // learn of workers' paths.
  enum class Origin { kSubmitted, kStored, kPlanned, kPlannedByViewer };

  SpecChecker(Loop& loop, View& view, Inspector& inspector)
      : loop_(loop), view_(view), inspector_(inspector) {}

  // `done` is called once: on the caller's thread, the loop's, or that of the asked worker's
  // stream.
  void Check(v1::JobSpec spec, Origin origin, Done done);

  // Effects::inspections: asks the given worker and posts InspectionDone.
  void Inspect(const InspectionRequest& request);

 private:
  // Nobody can be asked about the paths, because of `why`.
  CheckedSpec Unseen(v1::JobSpec spec, Origin origin, absl::string_view why) const;
  CheckedSpec Complete(v1::JobSpec spec,
                       Origin origin,
                       const std::vector<v1::PathInfo>& paths,
                       const std::string& worker_id) const;

  Loop& loop_;
  View& view_;
  Inspector& inspector_;
};

}  // namespace hearth::coordinator
