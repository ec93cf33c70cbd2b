// Everything about a job, as text.
#pragma once

#include <string>

#include "hearth/v1/job.pb.h"

namespace hearth::jobctl {

// `usage` are whole lines, or empty; `temperature_limit` in degrees Celsius; `columns` as in
// Table::Render.
std::string DescribeText(const v1::Job& job,
                         const v1::ListEventsResponse& events,
                         const v1::GetVersionResponse& version,
                         const std::string& usage,
                         double temperature_limit,
                         int columns);

}  // namespace hearth::jobctl
