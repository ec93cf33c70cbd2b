// What a plan and a command cost, counted.
#pragma once

#include <cstdint>

namespace hearth::coordinator {

// How often something was looked at. Neither a plan nor a Tick may grow with the jobs that wait, or
// with workers times jobs.
struct Visits {
  int64_t jobs = 0;
  int64_t workers = 0;
};

}  // namespace hearth::coordinator
