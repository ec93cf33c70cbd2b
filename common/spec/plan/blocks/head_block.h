// Final norm and output projection.
#pragma once

#include "common/spec/plan/memory_plan.h"

namespace hearth::spec {

struct Block;

struct HeadBuffers {
  BufferId input;
  BufferId norm;
  BufferId norm_stats;
  BufferId rows;  // the norm's output in FP8, where precision.lm_head asks for it
  BufferId columns;
};

extern const Block kHeadBlock;

}  // namespace hearth::spec
