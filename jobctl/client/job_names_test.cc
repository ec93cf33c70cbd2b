#include "jobctl/client/job_names.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/jobctl/unary_client.h"

namespace hearth::jobctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A coordinator that knows these jobs, newest first.
class JobsClient : public UnaryClient {
 public:
  std::vector<std::string> ids;
  absl::Status down;  // what each call returns, if it is an error

 private:
  absl::Status CallUnary(const google::protobuf::Message& request,
                         google::protobuf::Message& response) override {
    if (!down.ok()) {
      return down;
    }
    if (const auto* get = dynamic_cast<const v1::GetJobRequest*>(&request); get != nullptr) {
      dynamic_cast<v1::Job&>(response).set_job_id(get->job_id());
      return std::find(ids.begin(), ids.end(), get->job_id()) == ids.end()
                 ? absl::NotFoundError("no job " + get->job_id())
                 : absl::OkStatus();
    }
    const auto& list = dynamic_cast<const v1::ListJobsRequest&>(request);
    auto& page = dynamic_cast<v1::ListJobsResponse&>(response);
    const size_t at = list.page_token().empty() ? 0 : std::stoul(list.page_token());
    page.add_jobs()->set_job_id(ids.at(at));  // pages of one job
    page.set_next_page_token(at + 1 < ids.size() ? std::to_string(at + 1) : "");
    return absl::OkStatus();
  }
};

TEST(WholeJobId, AnIdOrItsBeginning_IsTheJob) {
  JobsClient client;
  client.ids = {"run-10", "run-1", "first-run-x7k2m"};
  EXPECT_EQ(*WholeJobId(client, "run-1"), "run-1") << "a whole id goes before the beginning of one";
  EXPECT_EQ(*WholeJobId(client, "first"), "first-run-x7k2m");
  const absl::Status two = WholeJobId(client, "run").status();
  EXPECT_EQ(two.message(), "no job run; several begin with it: run-10, run-1");
  EXPECT_TRUE(absl::IsInvalidArgument(two));
  EXPECT_TRUE(absl::IsNotFound(WholeJobId(client, "second").status()));
  for (const char* no_id : {"", "name=x", "Run", "a b"}) {
    EXPECT_TRUE(absl::IsNotFound(WholeJobId(client, no_id).status())) << no_id;
  }
  client.ids = {"a1", "a2", "a3", "a4", "a5", "a6"};
  EXPECT_THAT(std::string(WholeJobId(client, "a").status().message()),
              HasSubstr("a1, a2, a3, a4, a5, ..."));
}

TEST(WholeJobId, ErrorsOfTheCoordinator_AreNotTakenForUnknownJobs) {
  JobsClient client;
  client.ids = {"run-1"};
  client.down = absl::UnavailableError("away");
  EXPECT_TRUE(absl::IsUnavailable(WholeJobId(client, "run").status()));
}

// The jobs that "command ..." is about after its ids were completed.
struct Command {
  explicit Command(const std::string& line, JobsClient& client, BeginningRule rule = {}) {
    CLI::App app("", "jobctl");
    CLI::App& pause = *app.add_subcommand("pause", "");
    pause.add_option("job", jobs, "")->required();
    pause.add_flag("--yes", yes, "");
    CLI::App& diff = *app.add_subcommand("diff", "");
    diff.add_option("job", one, "")->required();
    diff.add_option("other", other, "")->required();
    app.add_subcommand("submit", "")->add_option("--after", after, "");
    CLI::App& checkpoints = *app.add_subcommand("checkpoints", "");
    checkpoints.add_subcommand("prune", "")->add_option("--job", one, "");
    checkpoints.add_subcommand("average", "")->add_option("source", jobs, "");
    app.add_subcommand("plan", "")->add_option("--job-id", one, "");
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    status = CompleteJobIds(
        app, [&client](const std::string& typed) { return WholeJobId(client, typed); }, rule);
  }

  std::vector<std::string> jobs;
  std::string one;
  std::string other;
  std::string after;
  bool yes = false;
  absl::Status status;
};

TEST(CompleteJobIds, Beginnings_BecomeIds) {
  JobsClient client;
  client.ids = {"b-2", "a-1"};
  const Command several("pause a b-2 none", client);
  EXPECT_TRUE(several.status.ok()) << several.status;
  EXPECT_THAT(several.jobs, ElementsAre("a-1", "b-2", "none"));
  const Command two("diff a b", client);
  EXPECT_EQ(two.one + " " + two.other, "a-1 b-2");
  EXPECT_EQ(Command("submit --after b", client).after, "b-2");
  EXPECT_EQ(Command("checkpoints prune --job a", client).one, "a-1");
  EXPECT_EQ(Command("plan --job-id a", client).one, "a") << "the id of a new job";
}

TEST(CompleteJobIds, AFolder_GoesBeforeAJob) {
  JobsClient client;
  client.ids = {"b-2", "dev-1"};
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path("/");  // has a folder dev
  const Command average("checkpoints average dev b", client);
  std::filesystem::current_path(before);
  EXPECT_TRUE(average.status.ok()) << average.status;
  EXPECT_THAT(average.jobs, ElementsAre("dev", "b-2"));
}

TEST(CompleteJobIds, WithoutAWayBack_NeedsTheWholeId) {
  JobsClient client;
  client.ids = {"run-10"};
  const Command beginning("pause run-1 --yes", client);
  EXPECT_EQ(beginning.status.message(), "no job run-1; with --yes give the whole id: run-10?");
  EXPECT_TRUE(Command("pause run-10 --yes", client).status.ok());
}

TEST(CompleteJobIds, InAScript_AVerbThatChangesNamesTheWholeId) {
  JobsClient client;
  client.ids = {"run-10", "other"};
  const BeginningRule whole_ids = {.taken = false, .told = false};
  const Command changes("pause other run-1", client, whole_ids);
  EXPECT_TRUE(absl::IsNotFound(changes.status)) << changes.status;
  EXPECT_THAT(std::string(changes.status.message()),
              HasSubstr("no job run-1; did you mean run-10? pause needs the whole id in a script"));
  EXPECT_TRUE(Command("pause run-10 none", client, whole_ids).status.ok());
  const Command shows("diff run ot", client, {.taken = true, .told = false});
  EXPECT_TRUE(shows.status.ok()) << shows.status;
  EXPECT_EQ(shows.one + " " + shows.other, "run-10 other");
}

TEST(CompleteJobIds, ACoordinatorThatIsAway_IsForTheCommandToTell) {
  JobsClient client;
  client.down = absl::UnavailableError("away");
  const Command command("pause a", client);
  EXPECT_TRUE(command.status.ok());
  EXPECT_THAT(command.jobs, ElementsAre("a"));
}

}  // namespace
}  // namespace hearth::jobctl
