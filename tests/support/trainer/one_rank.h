// What the parts of a rank are made with, for tests of one part.
#pragma once

#include <utility>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/spec/plan/plan_inputs.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/trainer/test_link.h"
#include "worker/trainer/comm/rendezvous/key_value_store.h"
#include "worker/trainer/rank/job_data.h"
#include "worker/trainer/rank/meeting.h"
#include "worker/trainer/rank/rank_context.h"
#include "worker/trainer/rank/rank_session.h"

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

// The only rank of SmallJob, or of a job made of it, with all of its parts open; the test takes the
// steps. `rank_number` > 0: a rank that reports and writes nothing by itself.
struct OpenRank {
  explicit OpenRank(const v1::JobSpec& spec, Env& env = Env::Real(), int rank_number = 0)
      : link(MakeTask(spec, folder.path() + "/checkpoints", rank_number), store),
        rank(Options(env)) {
    rank.agreed.micro_batch = spec.batch().micro_batch_size();
    rank.agreed.batch = *spec::ResolveBatchPlan(spec, rank.agreed.micro_batch, 1);
    EXPECT_TRUE(meeting.Meet().ok());
    EXPECT_TRUE(data.Open().ok());
    const absl::Status opened = session.Open(spec, RankSession::Purpose::kJob, nullptr);
    EXPECT_TRUE(opened.ok()) << opened;
  }

  // The next step, which must be a good one.
  StepResult Step() {
    absl::StatusOr<StepResult> result = session.trainer().Step({});
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->verdict, Verdict::kGood);
    return *std::move(result);
  }

  TempDir folder;
  FakeClock clock;
  LocalKeyValueStore store;
  FakeLink link;
  RankContext rank;
  Meeting meeting{rank};
  JobData data{rank, ""};
  RankSession session{rank, meeting, data, ""};

 private:
  RankOptions Options(Env& env) {
    RankOptions options = OptionsOf(link);
    options.env = &env;
    options.clock = &clock;
    return options;
  }
};

}  // namespace hearth::trainer
