#include "jobctl/client/history.h"

#include "common/base/status_macros.h"

namespace hearth::jobctl {

void Append(History& history, const v1::MetricRecord& record) {
  if (record.has_step()) {
    history.energy_joules += record.step().energy_joules();
    history.steps.push_back(record.step());
    return;
  }
  // The energy of these steps stays in the sum, because it was used.
  while (record.has_rewind() && !history.steps.empty() &&
         history.steps.back().step() > record.rewind().to_step()) {
    history.steps.pop_back();
    ++history.voided_steps;
  }
}

absl::StatusOr<History> LoadHistory(Client& client, const std::string& job_id) {
  v1::StreamMetricsRequest request;
  request.set_job_id(job_id);
  History history;
  HEARTH_RETURN_IF_ERROR(
      client.StreamMetrics(request, [&history](const v1::StreamMetricsResponse& response) {
        for (const v1::MetricRecord& record : response.records()) {
          Append(history, record);
        }
        return true;
      }));
  return history;
}

}  // namespace hearth::jobctl
