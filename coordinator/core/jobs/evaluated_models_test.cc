#include "coordinator/core/jobs/evaluated_models.h"

#include <optional>
#include <string>
#include <vector>

#include "common/spec/evaluation/evaluation_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/coordinator/queued_job.h"

namespace hearth::coordinator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EvaluatedModelsTest : public testing::Test {
 protected:
  // Recorded checkpoints, the newest first as in a record.
  void Add(const std::vector<v1::Checkpoint>& checkpoints) {
    JobState job = QueuedJob("trained");
    job.checkpoints().Assign(checkpoints.begin(), checkpoints.end());
    jobs_.Add(std::move(job), now_);
  }
  static v1::Checkpoint At(int64_t step, int64_t epoch = 1, const std::string& root = "root") {
    v1::Checkpoint checkpoint;
    checkpoint.set_step(step);
    checkpoint.set_epoch(epoch);
    checkpoint.set_root_uuid(root);
    return checkpoint;
  }
  v1::EvaluateSpec& Evaluate() {
    spec_.set_task("eval");
    return *spec_.mutable_evaluate();
  }
  // "step/epoch" or the path of each; the test fails on an error.
  std::vector<std::string> Models() const {
    const auto models = EvaluatedModels(spec_, jobs_, std::nullopt);
    EXPECT_TRUE(models.ok()) << models.status();
    std::vector<std::string> names;
    if (models.ok()) {
      for (const v1::EvaluatedModel& model : *models) {
        const v1::Checkpoint& checkpoint = model.checkpoint();
        names.push_back(!checkpoint.path().empty() ? checkpoint.path()
                                                   : std::to_string(checkpoint.step()) + "/" +
                                                         std::to_string(checkpoint.epoch()));
      }
    }
    return names;
  }
  std::string Refused() const {
    const absl::Status status = EvaluatedModels(spec_, jobs_, std::nullopt).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  Now now_{absl::FromUnixSeconds(1700000000), absl::Seconds(1000), "boot"};
  PlanTimer plan_{absl::Seconds(1000)};
  Jobs jobs_{plan_, kDefaultAging, 41};
  v1::JobSpec spec_;
};

TEST_F(EvaluatedModelsTest, TaskThatTrains_HasNone) {
  spec_.set_task("pretrain");
  EXPECT_THAT(Models(), ElementsAre());
}

TEST_F(EvaluatedModelsTest, Folders_AreTakenInTheirOrder) {
  Evaluate().add_models("/models/b");
  Evaluate().add_models("/models/a");
  EXPECT_THAT(Models(), ElementsAre("/models/b", "/models/a"));
}

TEST_F(EvaluatedModelsTest, Checkpoints_AllOfAJob_TheEarliestFirst) {
  Add({At(300), At(200), At(100)});
  Evaluate().set_job("trained");
  EXPECT_THAT(Models(), ElementsAre("100/1", "200/1", "300/1"));
}

TEST_F(EvaluatedModelsTest, StepThatSeveralEpochsRecorded_IsTheNewestEpochs) {
  Add({At(200, 2), At(200, 1), At(100, 1)});
  Evaluate().set_job("trained");
  EXPECT_THAT(Models(), ElementsAre("100/1", "200/2"));
}

TEST_F(EvaluatedModelsTest, Steps_ChooseAmongThem) {
  Add({At(300), At(200), At(100)});
  Evaluate().set_job("trained");
  Evaluate().add_steps(300);
  Evaluate().add_steps(100);
  EXPECT_THAT(Models(), ElementsAre("100/1", "300/1"));
  Evaluate().add_steps(150);
  EXPECT_THAT(Refused(), HasSubstr("evaluate.steps: trained has no checkpoint of step 150; "
                                   "recorded are 100, 200, 300"));
}

TEST_F(EvaluatedModelsTest, NothingThere_IsRefused) {
  Evaluate().set_job("trained");
  EXPECT_THAT(Refused(), HasSubstr("there is no job trained"));
  Add({});
  EXPECT_THAT(Refused(), HasSubstr("no checkpoint of trained is recorded"));
}

TEST_F(EvaluatedModelsTest, TwoRoots_AreRefused) {
  Add({At(200, 1, "other"), At(100)});
  Evaluate().set_job("trained");
  EXPECT_THAT(Refused(), HasSubstr("steps 100 and 200 lie in two checkpoint roots"));
  Evaluate().add_steps(200);
  EXPECT_THAT(Models(), ElementsAre("200/1"));
}

TEST_F(EvaluatedModelsTest, TooMany_AreRefused) {
  std::vector<v1::Checkpoint> checkpoints;
  for (int64_t step = spec::kEvaluatedModelsMax + 1; step > 0; --step) {
    checkpoints.push_back(At(step));
  }
  Add(checkpoints);
  Evaluate().set_job("trained");
  EXPECT_THAT(Refused(), HasSubstr("the most that a job evaluates"));
  for (int64_t step = 1; step <= spec::kEvaluatedModelsMax; ++step) {
    Evaluate().add_steps(step);
  }
  EXPECT_EQ(Models().size(), static_cast<size_t>(spec::kEvaluatedModelsMax));
}

}  // namespace
}  // namespace hearth::coordinator
