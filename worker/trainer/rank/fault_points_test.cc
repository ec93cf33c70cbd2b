// A rank's life when something fails at any of its fault points: the error says where, no
// half-written checkpoint stays, and the next epoch ends in the bits of a run that nothing
// disturbed.
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/fault/fault.h"
#include "common/io/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_gang.h"
#include "tests/support/trainer/test_run.h"

namespace hearth::trainer {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 2;

struct Row {
  const char* point;
  const char* action;
  v1::ExitReason reason;  // of a rank that fails
  bool resumed = false;   // it is reached only by a run that goes on from a checkpoint
};

// A fault before the ranks meet comes to both of them: else the other one would wait.
constexpr Row kRows[] = {
    {"trainer.start", "error", v1::EXIT_REASON_INTERNAL},
    {"trainer.before_rendezvous", "error", v1::EXIT_REASON_BAD_DATA},
    {"checkpoint.before_load", "error", v1::EXIT_REASON_BAD_DATA, true},
    {"trainer.allocate", "error", v1::EXIT_REASON_DEVICE},
    {"trainer.upload", "error", v1::EXIT_REASON_INTERNAL, true},
    {"comm.collective", "error@40", v1::EXIT_REASON_INTERNAL},
    {"trainer.step", "error@7", v1::EXIT_REASON_INTERNAL},
    {"trainer.before_allreduce", "error@7", v1::EXIT_REASON_INTERNAL},
    {"trainer.after_allreduce", "error@7", v1::EXIT_REASON_INTERNAL},
    {"trainer.after_step", "error@1", v1::EXIT_REASON_INTERNAL},
    {"checkpoint.before_write", "error@2", v1::EXIT_REASON_IO},
    {"checkpoint.before_shard", "error@3", v1::EXIT_REASON_IO},
    {"checkpoint.before_rename", "error@2", v1::EXIT_REASON_IO},
    {"checkpoint.after_rename", "error@2", v1::EXIT_REASON_IO},
};

class FaultPointsTest : public testing::Test {
 protected:
  ~FaultPointsTest() override { EXPECT_TRUE(fault::Configure("").ok()); }

  // Two ranks, six steps, a checkpoint every second one with a part of each rank.
  v1::JobSpec Job() {
    v1::JobSpec spec = SmallJob(dir_.path());
    spec.mutable_schedule()->set_name("constant");  // else its end depends on the last step
    spec.mutable_train()->set_steps(6);
    spec.mutable_checkpoint()->set_every_steps(2);
    spec.mutable_parallel()->set_shard("optimizer");
    return spec;
  }

  Gang Run(const v1::JobSpec& spec,
           const std::string& name,
           const v1::CheckpointAnnouncement* from) {
    LocalKeyValueStore store;  // of one epoch
    return RunGang(store, spec, kRanks, dir_.path() + "/" + name, ++epoch_, from);
  }

  static std::string Digest(const v1::CheckpointAnnouncement& checkpoint) {
    return *Sha256HexOfFile(Env::Real(), checkpoint.path() + "/model.safetensors");
  }

  // All that the ranks said at their ends and before.
  static std::vector<std::string> Said(const Gang& gang) {
    std::vector<std::string> said;
    for (size_t rank = 0; rank < gang.links.size(); ++rank) {
      said.push_back(gang.exits[rank].message());
      said.insert(said.end(), gang.links[rank]->logs.begin(), gang.links[rank]->logs.end());
    }
    return said;
  }

  void ExpectErrorThatNamesThePoint(const Row& row, const Gang& gang) {
    const std::string injected = absl::StrCat("injected fault at ", row.point);
    EXPECT_THAT(Said(gang), Contains(HasSubstr(injected)));
    for (const v1::TrainerExit& exit : gang.exits) {
      if (exit.message().find(injected) != std::string::npos) {
        EXPECT_EQ(exit.reason(), row.reason) << exit.message();
      }
    }
  }

  const TempDir dir_;
  int64_t epoch_ = 0;
};

TEST_F(FaultPointsTest, EachFails_TheErrorNamesItAndTheNextEpochEndsInTheSameBits) {
  const v1::JobSpec spec = Job();
  const Gang whole = Run(spec, "whole", nullptr);
  ASSERT_EQ(whole.exits[0].reason(), v1::EXIT_REASON_FINISHED) << whole.exits[0].message();
  const std::string bits = Digest(whole.links[0]->checkpoints.back());
  v1::JobSpec begin = spec;
  begin.mutable_train()->set_steps(2);
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.point);
    const std::string folder = absl::StrCat("of-", row.point);
    std::vector<v1::CheckpointAnnouncement> known;
    if (row.resumed) {
      known = Run(begin, folder, nullptr).links[0]->checkpoints;
    }
    ASSERT_TRUE(fault::Configure(absl::StrCat(row.point, "=", row.action)).ok());
    const Gang failed = Run(spec, folder, known.empty() ? nullptr : &known.back());
    ASSERT_TRUE(fault::Configure("").ok());
    ExpectErrorThatNamesThePoint(row, failed);
    const auto& announced = failed.links[0]->checkpoints;
    known.insert(known.end(), announced.begin(), announced.end());

    const Gang next = Run(spec, folder, known.empty() ? nullptr : &known.back());
    ASSERT_EQ(next.exits[0].reason(), v1::EXIT_REASON_FINISHED) << next.exits[0].message();
    // A rank's part that could not be written is made up for by the next checkpoint.
    const auto& saved = next.links[0]->checkpoints;
    EXPECT_EQ(Digest(saved.empty() ? known.back() : saved.back()), bits);
    EXPECT_THAT(*Env::Real().ListDir(dir_.path() + "/" + folder), Each(Not(HasSubstr(".tmp"))));
  }
}

}  // namespace
}  // namespace hearth::trainer
