#include "coordinator/core/folders/roots.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class RootsTest : public testing::Test {
 protected:
  RootsTest() {
    worker_.worker().set_worker_id("w");
    worker_.connection = 7;
  }
  std::vector<std::string> Due(bool seen = true, bool open = true) {
    return roots_.TakeDue([&](const std::string&) { return seen ? &worker_ : nullptr; },
                          [&](uint64_t) { return open; }, now_.monotonic);
  }
  v1::CheckpointFolders Answer(int64_t request_id) {
    v1::CheckpointFolders answer;
    answer.set_request_id(request_id);
    return answer;
  }

  Now now_{absl::FromUnixSeconds(1700000000), absl::Seconds(1000)};
  WorkerState worker_;
  Roots roots_;
};

TEST_F(RootsTest, LookAt_IsDueOnce_AndNotAtOnceAgain) {
  roots_.LookAt("r", absl::Seconds(5), now_.monotonic);
  EXPECT_THAT(Due(), IsEmpty());
  now_.monotonic += absl::Seconds(5);
  EXPECT_THAT(Due(), ElementsAre("r"));
  const int64_t question = roots_.Ask("r", worker_, now_.monotonic);
  EXPECT_TRUE(roots_.TakeAnswer("r", 7, Answer(question), now_));
  roots_.Keep("r", {v1::CheckpointFolder()}, now_.monotonic);
  roots_.LookAt("r", absl::ZeroDuration(), now_.monotonic);
  EXPECT_THAT(Due(), IsEmpty());
  now_.monotonic += absl::Seconds(30);
  EXPECT_THAT(Due(), ElementsAre("r"));
}

TEST_F(RootsTest, TakeAnswer_OfAnEarlierQuestionOrStream_IsRefused) {
  roots_.LookAt("r", absl::ZeroDuration(), now_.monotonic);
  EXPECT_THAT(Due(), ElementsAre("r"));
  const int64_t question = roots_.Ask("r", worker_, now_.monotonic);
  EXPECT_FALSE(roots_.TakeAnswer("r", 8, Answer(question), now_));
  EXPECT_FALSE(roots_.TakeAnswer("r", 7, Answer(question - 1), now_));
  EXPECT_FALSE(roots_.TakeAnswer("other", 7, Answer(question), now_));
  EXPECT_TRUE(roots_.TakeAnswer("r", 7, Answer(question), now_));
}

TEST_F(RootsTest, Question_WhoseStreamEnds_IsAskedAgain) {
  roots_.LookAt("r", absl::ZeroDuration(), now_.monotonic);
  EXPECT_THAT(Due(), ElementsAre("r"));
  roots_.Ask("r", worker_, now_.monotonic);
  EXPECT_THAT(Due(), IsEmpty());
  EXPECT_THAT(Due(true, /*open=*/false), ElementsAre("r"));
}

TEST_F(RootsTest, RootThatNobodySees_IsForgotten_UnlessItHoldsFolders) {
  roots_.LookAt("empty", absl::ZeroDuration(), now_.monotonic);
  roots_.LookAt("full", absl::ZeroDuration(), now_.monotonic);
  roots_.Keep("full", {v1::CheckpointFolder()}, now_.monotonic);
  EXPECT_THAT(Due(/*seen=*/false), IsEmpty());
  EXPECT_EQ(roots_.all().count("empty"), 0u);
  EXPECT_EQ(roots_.all().count("full"), 1u);
}

TEST_F(RootsTest, EmptyRoot_WhoseWorkerGoesBeforeItAnswers_IsForgotten) {
  roots_.LookAt("r", absl::ZeroDuration(), now_.monotonic);
  EXPECT_THAT(Due(), ElementsAre("r"));
  roots_.Ask("r", worker_, now_.monotonic);
  EXPECT_THAT(Due(/*seen=*/false, /*open=*/false), IsEmpty());
  EXPECT_EQ(roots_.all().size(), 1u) << "when it was asked is remembered for a while";
  now_.monotonic += absl::Seconds(30);
  EXPECT_THAT(Due(/*seen=*/false, /*open=*/false), IsEmpty());
  EXPECT_TRUE(roots_.all().empty());
}

TEST_F(RootsTest, Unchanged_CountsFromTheFirstListingThatLooksTheSame) {
  roots_.LookAt("r", absl::ZeroDuration(), now_.monotonic);
  v1::CheckpointFolder folder;
  folder.set_job_id("j-abcde");
  folder.set_name("step-00000004.tmp-12");
  folder.set_bytes(100);
  EXPECT_EQ(roots_.Unchanged("r", folder, now_.monotonic), absl::ZeroDuration());
  for (int i = 0; i < 2; ++i) {  // a second listing begins nothing again
    roots_.Keep("r", {folder}, now_.monotonic);
    now_.monotonic += absl::Seconds(30);
  }
  EXPECT_EQ(roots_.Unchanged("r", folder, now_.monotonic), absl::Seconds(60));
  folder.set_bytes(200);
  EXPECT_EQ(roots_.Unchanged("r", folder, now_.monotonic), absl::ZeroDuration());
  roots_.Keep("r", {folder}, now_.monotonic);
  now_.monotonic += absl::Seconds(1);
  folder.mutable_change_time()->set_nanos(1);
  EXPECT_EQ(roots_.Unchanged("r", folder, now_.monotonic), absl::ZeroDuration());
}

}  // namespace
}  // namespace hearth::coordinator
