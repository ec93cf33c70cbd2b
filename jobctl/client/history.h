// A job's whole step history, as the coordinator keeps it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobctl/client/client.h"

namespace hearth::jobctl {

struct History {
  std::vector<v1::StepReport> steps;  // those in force, ascending
  // The energy of all steps, including those that a resume discarded: they cost money too.
  double energy_joules = 0.0;
  int64_t voided_steps = 0;
};

// Adds a record of the whole stream (cursor 0); a rewind takes back the steps after it.
void Append(History& history, const v1::MetricRecord& record);

// kNotFound: no such job.
absl::StatusOr<History> LoadHistory(Client& client, const std::string& job_id);

}  // namespace hearth::jobctl
