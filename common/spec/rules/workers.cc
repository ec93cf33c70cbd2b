#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {

void CheckWorkers(const v1::JobSpec& job, Checker& check) {
  const v1::ResourceSpec& r = job.resources();
  if (r.min_workers() > r.workers()) {
    check.Add("resources.min_workers",
              Text(r.min_workers(), " is out of range; must be 1..workers = ", r.workers()));
  }
}

}  // namespace hearth::spec
