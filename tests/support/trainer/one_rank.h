// What the parts of a rank are made with, for tests of one part.
#pragma once

#include "tests/support/trainer/test_link.h"
#include "worker/trainer/comm/key_value_store.h"
#include "worker/trainer/rank/rank_context.h"

namespace hearth::trainer {

inline RankOptions OptionsOf(Link& link) {
  RankOptions options;
  options.link = &link;
  return options;
}

// The only rank of a job.
struct OneRank {
  explicit OneRank(const v1::JobSpec& spec = v1::JobSpec()) : link(MakeTask(spec, ""), store) {}

  LocalKeyValueStore store;
  FakeLink link;
  RankContext rank{OptionsOf(link)};
};

}  // namespace hearth::trainer
