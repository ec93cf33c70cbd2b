// How far jobs have come, as `watch` says it. Pure: the facts come as arguments.
#pragma once

#include <string>
#include <vector>

#include "hearth/v1/job.pb.h"

namespace hearth::jobctl {

// "eta 3m05s": the steps after `last` at its speed; "" when none are left or the speed is unknown.
std::string EtaText(const v1::Job& job, const v1::StepReport& last);

// "step 40/60  loss 3.2500  grad 1.000  lr 3.00e-03  1.23k tok/s  eta 5s", the line about step
// `last` where nothing can be redrawn. A task that does not train has only its unit and the eta.
std::string ProgressText(const v1::Job& job, const v1::StepReport& last);

// "RUNNING: running since step 1": the state, and the reason if there is one.
std::string StateText(const v1::Job& job);

// Whether a line about `step` is due where nothing can be redrawn and the last line was about step
// `printed`: there are about a hundred lines a job, and always one about its last step (`last`).
bool ProgressDue(const v1::Job& job, int64_t step, int64_t printed, bool last);

// A table with a row for each job: state ("-" = not known yet), step, loss, speed and time left, in
// at most `columns` columns (0 = any width) and `rows` lines. If there are more jobs than that, the
// last line says how many are left out.
std::string RenderProgress(const std::vector<v1::Job>& jobs, int columns, int rows);

}  // namespace hearth::jobctl
