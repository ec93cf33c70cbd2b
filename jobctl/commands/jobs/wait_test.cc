#include "jobctl/commands/jobs/wait.h"

#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/support/jobctl/unary_client.h"

namespace hearth::jobctl {
namespace {

// A coordinator whose jobs are in these states. The stream of a job that rests ends; that of
// another job stays open until it is cancelled.
class StatesClient : public UnaryClient {
 public:
  std::map<std::string, v1::JobState> states;

  absl::Status WatchJob(const v1::WatchJobRequest& request,
                        const StreamSink<v1::WatchJobResponse>& sink) override {
    const auto found = states.find(request.job_id());
    if (found == states.end()) {
      return absl::NotFoundError("no job " + request.job_id());
    }
    v1::WatchJobResponse response;
    response.mutable_job()->set_job_id(request.job_id());
    response.mutable_job()->set_state(found->second);
    if (!sink(response) || request.job_id() == "deleted") {
      return absl::OkStatus();
    }
    cancelled_.WaitForNotification();
    return absl::CancelledError("interrupted");
  }

  void CancelStreams() override { cancelled_.Notify(); }

 private:
  absl::Status CallUnary(const google::protobuf::Message&, google::protobuf::Message&) override {
    return absl::UnimplementedError("");
  }

  absl::Notification cancelled_;
};

absl::StatusOr<int> Wait(const std::vector<std::string>& jobs,
                         absl::Duration timeout = absl::ZeroDuration()) {
  StatesClient client;
  client.states = {{"good", v1::JOB_STATE_SUCCEEDED}, {"paused", v1::JOB_STATE_PAUSED},
                   {"bad", v1::JOB_STATE_FAILED},     {"stopped", v1::JOB_STATE_CANCELLED},
                   {"deleted", v1::JOB_STATE_QUEUED}, {"endless", v1::JOB_STATE_RUNNING}};
  return WaitForJobs(client, jobs, timeout);
}

TEST(WaitForJobs, OneJob_ItsEndIsTheCode) {
  EXPECT_EQ(*Wait({"good"}), kExitOk);
  EXPECT_EQ(*Wait({"paused"}), kExitOk);
  EXPECT_EQ(*Wait({"bad"}), kExitJobFailed);
  EXPECT_EQ(*Wait({"stopped"}), kExitJobCancelled);
  EXPECT_EQ(*Wait({"none"}), kExitNotFound);
  EXPECT_EQ(*Wait({"endless"}, absl::Milliseconds(1)), kExitTimedOut);
}

TEST(WaitForJobs, Several_TheWorstEndIsTheCode) {
  EXPECT_EQ(*Wait({"good", "paused"}), kExitOk);
  EXPECT_EQ(*Wait({"good", "stopped", "paused"}), kExitJobCancelled);
  EXPECT_EQ(*Wait({"bad", "stopped", "good"}), kExitJobFailed);
  EXPECT_EQ(*Wait({"stopped", "endless"}, absl::Milliseconds(1)), kExitTimedOut);
}

TEST(WaitForJobs, AnUnknownJob_EndsTheWaitForTheOthers) {
  EXPECT_EQ(*Wait({"endless", "none", "good"}), kExitNotFound);
  EXPECT_EQ(*Wait({"endless", "deleted", "good"}), kExitNotFound) << "while it waited";
}

}  // namespace
}  // namespace hearth::jobctl
