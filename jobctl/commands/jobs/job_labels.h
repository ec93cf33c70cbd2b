// Jobs chosen by their labels: -l key=value.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace hearth::jobctl {

// The option -l, --label: `what` says which jobs it means.
void AddLabels(CLI::App& app, std::vector<std::string>& labels, const std::string& what);

// The terms of ListJobsRequest.filter for jobs that have all of these labels; "" = no label is
// asked for.
std::string LabelFilter(const std::vector<std::string>& labels);

}  // namespace hearth::jobctl
