// What blocks keep that begin with a norm of the residual stream and a projection of its output.
#pragma once

#include "common/spec/plan/memory_plan.h"

namespace hearth::spec {

// N tokens, [N, hidden] where nothing else is said.
struct NormedBuffers {
  BufferId input;         // of the norm, the residual stream
  BufferId norm;          // its output, plain
  BufferId norm_columns;  // and as wgrad reads it quantised
  BufferId norm_stats;    // [2, N] mean and rstd
};

}  // namespace hearth::spec
