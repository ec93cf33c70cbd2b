#include "jobctl/commands/jobs/job_choice.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/jobctl/unary_client.h"

namespace hearth::jobctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A coordinator whose jobs all have the labels asked for.
class LabelClient : public UnaryClient {
 public:
  std::vector<std::pair<std::string, v1::JobState>> jobs;  // newest first
  std::vector<std::string> filters;                        // of the calls

 private:
  absl::Status CallUnary(const google::protobuf::Message& request,
                         google::protobuf::Message& response) override {
    const auto& list = dynamic_cast<const v1::ListJobsRequest&>(request);
    filters.push_back(list.filter());
    auto& page = dynamic_cast<v1::ListJobsResponse&>(response);
    const size_t at = list.page_token().empty() ? 0 : std::stoul(list.page_token());
    if (at < jobs.size()) {  // pages of one job
      page.add_jobs()->set_job_id(jobs[at].first);
      page.mutable_jobs(0)->set_state(jobs[at].second);
    }
    page.set_next_page_token(at + 1 < jobs.size() ? std::to_string(at + 1) : "");
    return absl::OkStatus();
  }
};

LabelClient OneOfEach() {
  LabelClient client;
  client.jobs = {{"failed", v1::JOB_STATE_FAILED},
                 {"paused", v1::JOB_STATE_PAUSED},
                 {"pausing", v1::JOB_STATE_PAUSING},
                 {"runs", v1::JOB_STATE_RUNNING},
                 {"waits", v1::JOB_STATE_QUEUED}};
  return client;
}

JobChoice WithLabels(std::vector<std::string> labels, Labelled labelled) {
  JobChoice choice;
  choice.labels = std::move(labels);
  choice.labelled = labelled;
  return choice;
}

std::vector<std::string> Chosen(Labelled labelled) {
  LabelClient client = OneOfEach();
  return ChosenJobs(client, WithLabels({"sweep=lr"}, labelled)).value();
}

TEST(ChosenJobs, Label_MeansTheJobsThatTheCommandIsFor) {
  EXPECT_THAT(Chosen(Labelled::kAll), ElementsAre("waits", "runs", "pausing", "paused", "failed"));
  EXPECT_THAT(Chosen(Labelled::kUnderWay), ElementsAre("waits", "runs", "pausing"));
  EXPECT_THAT(Chosen(Labelled::kOpen), ElementsAre("waits", "runs", "pausing", "paused"));
  EXPECT_THAT(Chosen(Labelled::kPaused), ElementsAre("paused"));
  EXPECT_THAT(Chosen(Labelled::kAtRest), ElementsAre("paused", "failed"));
}

TEST(ChosenJobs, IdsAndLabels_AreJoined) {
  LabelClient client = OneOfEach();
  JobChoice choice;
  choice.job_ids = {"other", "runs", "other"};
  EXPECT_THAT(*ChosenJobs(client, choice), ElementsAre("other", "runs"));
  EXPECT_THAT(client.filters, IsEmpty()) << "ids need no call";
  choice.labels = {"sweep=lr", "team"};
  choice.labelled = Labelled::kUnderWay;
  EXPECT_THAT(*ChosenJobs(client, choice), ElementsAre("other", "runs", "waits", "pausing"));
  EXPECT_EQ(client.filters.front(), " label.sweep=lr label.team");
}

TEST(ChosenJobs, LabelThatNoJobHas_IsAnError) {
  LabelClient client;
  const absl::Status none = ChosenJobs(client, WithLabels({"a=b", "c"}, Labelled::kAll)).status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_EQ(none.message(), "no job has the label a=b and c");
  client.jobs = {{"done", v1::JOB_STATE_SUCCEEDED}};
  EXPECT_THAT(*ChosenJobs(client, WithLabels({"c"}, Labelled::kUnderWay)), IsEmpty());
}

TEST(ForChosenJobs, NeitherJobNorLabel_IsWrongUsage) {
  Context context;
  const auto act = [](const std::vector<std::string>&) -> absl::StatusOr<int> {
    ADD_FAILURE() << "no job was chosen";
    return kExitOk;
  };
  EXPECT_EQ(*ForChosenJobs(context, {}, act), kExitUsage);
}

}  // namespace
}  // namespace hearth::jobctl
