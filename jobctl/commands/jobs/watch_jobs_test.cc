#include "jobctl/commands/jobs/watch_jobs.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/common/valid_job.h"

namespace hearth::jobctl {
namespace {

v1::Job JobAt(const std::string& id, v1::JobState state, int64_t step) {
  v1::Job job = spec::JobIn(state, id);
  job.set_step(step);
  job.mutable_spec()->mutable_train()->set_steps(10);
  job.mutable_last_report()->set_step(step);
  job.mutable_last_report()->set_loss(2.0);
  return job;
}

v1::Job Unheard(const std::string& id) {
  v1::Job job;
  job.set_job_id(id);
  return job;
}

class WatchViewTest : public testing::Test {
 protected:
  WatchView Piped() { return WatchView({Out(), Err(), nullptr}); }
  WatchView OnTerminal() {
    return WatchView({Out(), Err(), [] { return TerminalSize{.columns = 80, .rows = 24}; }});
  }
  // What was written since the last call.
  std::string Written() {
    std::string written;
    written.swap(written_);
    return written;
  }

 private:
  std::function<void(const std::string&)> Out() {
    return [this](const std::string& text) { written_ += text; };
  }
  std::function<void(const std::string&)> Err() {
    return [this](const std::string& text) { written_ += "2> " + text; };
  }

  std::string written_;
};

TEST_F(WatchViewTest, Piped_EachLineNamesItsJob) {
  WatchView view = Piped();
  view.Show({Unheard("a"), JobAt("b", v1::JOB_STATE_RUNNING, 3)}, {}, false);
  EXPECT_EQ(Written(),
            "b step 3/10  loss 2.0000  grad 0.000  lr 0.00e+00  0 tok/s  \n"
            "b RUNNING\n");
  v1::Job failed = JobAt("a", v1::JOB_STATE_FAILED, 0);
  failed.set_reason("no\nluck");
  view.Show({failed, JobAt("b", v1::JOB_STATE_RUNNING, 3)}, {"reconnecting, 1 s"}, false);
  EXPECT_EQ(Written(), "2> reconnecting, 1 s\na FAILED: no\\u000aluck\n");
  view.Show({failed, JobAt("b", v1::JOB_STATE_SUCCEEDED, 10)}, {}, true);
  EXPECT_EQ(Written(),
            "b step 10/10  loss 2.0000  grad 0.000  lr 0.00e+00  0 tok/s  \n"
            "b SUCCEEDED\n");
}

TEST_F(WatchViewTest, OnATerminal_TheTableIsDrawnOverTheOneBefore) {
  WatchView view = OnTerminal();
  const v1::Job queued = JobAt("a", v1::JOB_STATE_QUEUED, 0);
  view.Show({queued, JobAt("b", v1::JOB_STATE_RUNNING, 3)}, {}, false);
  EXPECT_EQ(Written(),
            "a QUEUED\n"
            "b RUNNING\n"
            "NAME  STATE    STEP  LOSS    TOK/S  LEFT\n"
            "a     QUEUED   0/10  -       -      -\n"
            "b     RUNNING  3/10  2.0000  -      -\n");
  view.Show({queued, JobAt("b", v1::JOB_STATE_SUCCEEDED, 10)}, {"reconnecting, 1 s"}, true);
  EXPECT_EQ(Written(),
            "\033[3A\r\033[J"
            "2> reconnecting, 1 s\n"
            "b SUCCEEDED\n"
            "NAME  STATE      STEP   LOSS    TOK/S  LEFT\n"
            "a     QUEUED     0/10   -       -      -\n"
            "b     SUCCEEDED  10/10  2.0000  -      -\n");
}

}  // namespace
}  // namespace hearth::jobctl
