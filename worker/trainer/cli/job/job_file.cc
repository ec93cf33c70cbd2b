#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/io/env.h"
#include "common/spec/fields/idle.h"
#include "worker/trainer/cli/verbs.h"

namespace hearth::trainer {

absl::StatusOr<v1::JobSpec> LoadJob(const JobOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, Env::Real().ReadFile(options.job_file));
  HEARTH_ASSIGN_OR_RETURN(v1::JobSpec spec, config::ParseJobSpec(text, options.job_file));
  for (const std::string& assignment : options.overrides) {
    HEARTH_RETURN_IF_ERROR(config::ApplyOverride(spec, assignment));
  }
  HEARTH_RETURN_IF_ERROR(spec::ResolveSubmitted(spec));
  return spec;
}

absl::Status VerifyFiles(const std::vector<RecordedFile>& files) {
  // The disk is seldom faster than so many cores hash.
  constexpr int kThreads = 4;
  return FileVerifier(VerifiedFilesFolder(), kThreads).Verify(files);
}

int ThreadsOrAll(int given) {
  int threads = given;
  if (threads <= 0) {
    cpu_set_t cpus;
    threads = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  }
  threads = std::max(1, threads);
  omp_set_num_threads(threads);
  return threads;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "hearth-trainer: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace hearth::trainer
