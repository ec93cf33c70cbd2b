// The table of `jobctl top`. Pure: the facts come as arguments.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::jobctl {

// A line of totals, then one row per worker. `jobs`: the jobs that the workers run, by id. A
// worker's tok/s is its even share of its job's. "-" stands for what is not measured or not
// reported.
std::string RenderTop(const std::vector<v1::Worker>& workers,
                      const std::map<std::string, v1::Job>& jobs);

// `text` cut to that many lines and columns (bytes: the table is ASCII), for a screen.
std::string FitScreen(const std::string& text, int columns, int rows);

}  // namespace hearth::jobctl
