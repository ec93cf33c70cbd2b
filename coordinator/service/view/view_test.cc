#include "coordinator/service/view/view.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

JobRow MakeJob(int64_t n, v1::JobState state = v1::JOB_STATE_QUEUED) {
  JobRow row;
  v1::Job& job = *row.record.mutable_job();
  job.set_job_id(absl::StrCat("job-", n));
  job.set_state(state);
  job.set_revision(n);
  job.mutable_create_time()->set_seconds(1000 + n);
  job.mutable_spec()->set_name(n % 2 == 0 ? "even" : "odd");
  (*job.mutable_spec()->mutable_labels())["team"] = n < 3 ? "research" : "other";
  job.set_owner(n == 5 ? "ada" : "");
  return row;
}

v1::JobEvent MakeEvent(const std::string& job_id, int64_t revision) {
  v1::JobEvent event;
  event.set_job_id(job_id);
  event.set_revision(revision);
  return event;
}

void Apply(View& view, Effects effects) {
  view.Apply({&effects, 1});
}

std::string Ids(const View::Page& page) {
  std::string out;
  for (const JobPtr& job : page.jobs) {
    absl::StrAppend(&out, out.empty() ? "" : " ", job->job().job_id());
  }
  return out;
}

class ViewTest : public testing::Test {
 protected:
  ViewTest() {
    for (int64_t n = 1; n <= 7; ++n) {
      Effects effects;
      effects.jobs.push_back(MakeJob(n, n == 4 ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_QUEUED));
      Apply(view_, std::move(effects));
    }
  }
  View view_{EventBounds{.newest = 3, .notes = 2}};
};

TEST_F(ViewTest, List_InPages_ReturnsEachJobOnceNewestFirst) {
  std::string seen;
  std::string token;
  int pages = 0;
  do {
    const auto page = view_.List(*JobFilter::Parse(""), token, 3);
    ASSERT_TRUE(page.ok()) << page.status();
    absl::StrAppend(&seen, Ids(*page), " | ");
    token = page->next_token;
    ++pages;
  } while (!token.empty() && pages < 10);
  EXPECT_EQ(seen, "job-7 job-6 job-5 | job-4 job-3 job-2 | job-1 | ");
}

TEST_F(ViewTest, List_PageEndsWithTheLastJob_HasNoToken) {
  EXPECT_EQ(view_.List(*JobFilter::Parse(""), "", 7)->next_token, "");
}

TEST_F(ViewTest, List_ForeignToken_IsInvalidArgument) {
  EXPECT_EQ(view_.List(*JobFilter::Parse(""), "nonsense", 3).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ViewTest, List_Filters_AllTermsMustHold) {
  const auto list = [this](const char* text) {
    return Ids(*view_.List(*JobFilter::Parse(text), "", 100));
  };
  EXPECT_EQ(list("state=running"), "job-4");
  EXPECT_EQ(list("state=running,queued name=even"), "job-6 job-4 job-2");
  EXPECT_EQ(list("label.team=research name=odd"), "job-1");
  EXPECT_EQ(list("label.none=x"), "");
  EXPECT_EQ(list("label.none"), "");
  EXPECT_EQ(list("label.team name=odd"), list("name=odd")) << "all have it";
  EXPECT_EQ(list("owner=ada"), "job-5");
}

TEST(JobFilter, Parse_BadTerms_SayWhatIsAllowed) {
  for (const char* bad :
       {"state=sleeping", "nonsense", "colour=x", "=x", "label.=x", "label.", "state"}) {
    EXPECT_EQ(JobFilter::Parse(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_NE(JobFilter::Parse("state=sleeping").status().message().find("paused"),
            absl::string_view::npos);
}

TEST_F(ViewTest, ChangesSince_OlderThanKeptEvents_IsCompacted) {
  for (int64_t revision = 10; revision < 15; ++revision) {
    Effects effects;
    effects.events.push_back(MakeEvent("job-1", revision));
    Apply(view_, std::move(effects));
  }
  EXPECT_TRUE(view_.ChangesSince("job-1", 10).compacted);
  const View::Changes changes = view_.ChangesSince("job-1", 12);
  EXPECT_FALSE(changes.compacted);
  ASSERT_EQ(changes.events.size(), 2u);
  EXPECT_EQ(changes.events[0]->revision(), 13);
}

TEST_F(ViewTest, ChangesSince_Notes_OutliveOtherEventsWithinTheirBound) {
  const auto put = [this](int64_t revision, const std::string& type) {
    Effects effects;
    effects.events.push_back(MakeEvent("job-1", revision));
    effects.events.back().set_type(type);
    Apply(view_, std::move(effects));
  };
  const auto revisions = [this] {
    std::vector<int64_t> kept;
    for (const EventPtr& event : view_.ChangesSince("job-1", 0).events) {
      kept.push_back(event->revision());
    }
    return kept;
  };
  for (int64_t n = 10; n < 20; ++n) {
    put(n, n == 10 || n == 12 || n == 18 ? "note" : "state");
  }
  EXPECT_EQ(revisions(), (std::vector<int64_t>{10, 12, 17, 18, 19}));
  EXPECT_TRUE(view_.ChangesSince("job-1", 12).compacted) << "13 to 16 are gone";
  EXPECT_FALSE(view_.ChangesSince("job-1", 16).compacted);
  put(20, "state");
  put(21, "state");
  put(22, "state");
  EXPECT_EQ(revisions(), (std::vector<int64_t>{12, 18, 20, 21, 22})) << "the newest two";
}

TEST_F(ViewTest, Load_WithOldNotes_KnowsThatEventsAreMissingBehindThem) {
  std::vector<v1::JobEvent> events;
  for (const int64_t revision : {2, 10, 11, 12}) {
    events.push_back(MakeEvent("job-1", revision));
  }
  events.front().set_type("note");
  RestoredState restored;
  restored.jobs.push_back(MakeJob(1).record);
  View view(EventBounds{.newest = 3, .notes = 2});
  view.Load(Core({}, restored, Now{absl::UnixEpoch(), absl::ZeroDuration()}), events, restored);
  EXPECT_EQ(view.ChangesSince("job-1", 0).events.size(), 4u);
  EXPECT_TRUE(view.ChangesSince("job-1", 5).compacted);
  EXPECT_FALSE(view.ChangesSince("job-1", 9).compacted);
}

class CountingWaker : public Waker {
 public:
  void Wake() override { ++count; }
  int count = 0;
};

TEST_F(ViewTest, Subscribe_OnlyTheJobsOwnChangesWake) {
  const auto waker = std::make_shared<CountingWaker>();
  view_.Subscribe("job-1", waker);
  Effects other;
  other.jobs.push_back(MakeJob(2));
  Apply(view_, std::move(other));
  EXPECT_EQ(waker->count, 0);
  Effects own;
  own.logs.push_back({"job-1", {}, 0});
  Apply(view_, std::move(own));
  EXPECT_EQ(waker->count, 1);
}

TEST_F(ViewTest, Subscribe_ManyToJobsThatDoNotExist_LeavesNothingBehind) {
  const auto waker = std::make_shared<CountingWaker>();
  view_.Subscribe("job-1", waker);
  for (int i = 0; i < 10000; ++i) {
    view_.Subscribe("no-" + std::to_string(i), std::make_shared<CountingWaker>());  // ends at once
  }
  EXPECT_LT(view_.subscribed_jobs(), 1000u);
  Effects own;
  own.logs.push_back({"job-1", {}, 0});
  Apply(view_, std::move(own));
  EXPECT_EQ(waker->count, 1) << "a stream that lives stays subscribed";
}

TEST_F(ViewTest, Apply_Delete_ForgetsTheJobAndWakesItsWatchers) {
  const auto waker = std::make_shared<CountingWaker>();
  view_.Subscribe("job-3", waker);
  Effects effects;
  effects.job_deletes = {"job-3"};
  Apply(view_, std::move(effects));
  EXPECT_EQ(waker->count, 1);
  EXPECT_EQ(view_.FindJob("job-3"), nullptr);
  EXPECT_EQ(view_.ChangesSince("job-3", 0).job, nullptr);
  EXPECT_EQ(view_.AllJobs().size(), 6u);
}

TEST_F(ViewTest, KnowsRequest_UntilItIsForgotten) {
  Effects effects;
  effects.requests.emplace_back().set_request_id("r");
  Apply(view_, std::move(effects));
  EXPECT_TRUE(view_.KnowsRequest("r"));
  Effects expiry;
  expiry.request_deletes = {"r"};
  Apply(view_, std::move(expiry));
  EXPECT_FALSE(view_.KnowsRequest("r"));
}

}  // namespace
}  // namespace hearth::coordinator
