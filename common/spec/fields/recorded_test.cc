#include "common/spec/fields/recorded.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::spec {
namespace {

using testing::ElementsAre;
using testing::Pair;

v1::JobSpec Job() {
  v1::JobSpec job;
  job.set_name("recorded");
  job.set_task("sft");
  job.mutable_data()->set_sequence_length(64);
  job.mutable_data()->set_packing("best_fit");
  job.mutable_data()->add_train()->set_path("x");
  return job;
}

// The keys are those of checkpoints that exist: none may be renamed.
TEST(Recorded, Keys_AreThoseOfCheckpoints) {
  EXPECT_THAT(RecordedKeys(), ElementsAre("task", "sequence_length", "packing", "attention", "deterministic"));
}

TEST(Recorded, Values_AreThoseThatTheJobSets) {
  EXPECT_THAT(RecordedValues(Job()), ElementsAre(Pair("task", RecordedValue("sft")),
                                                 Pair("sequence_length", RecordedValue(64)),
                                                 Pair("packing", RecordedValue("best_fit"))));
}

TEST(Recorded, RecordedOf_HasThemAndNothingElse) {
  const v1::JobSpec recorded = RecordedOf(Job());
  EXPECT_EQ(RecordedValues(recorded), RecordedValues(Job()));
  EXPECT_FALSE(recorded.has_name());
  EXPECT_EQ(recorded.data().train_size(), 0);
  EXPECT_FALSE(recorded.data().has_attention());
}

TEST(Recorded, SetRecorded_RefusesOtherKeysAndTypes) {
  v1::JobSpec job;
  EXPECT_FALSE(SetRecorded("name", "x", job));
  EXPECT_FALSE(SetRecorded("task", 3, job));
  EXPECT_FALSE(SetRecorded("sequence_length", "64", job));
  EXPECT_FALSE(SetRecorded("sequence_length", int64_t{1} << 40, job));
  EXPECT_EQ(job.ByteSizeLong(), 0U);
  EXPECT_TRUE(SetRecorded("attention", "document", job));
  EXPECT_EQ(job.data().attention(), "document");
}

}  // namespace
}  // namespace hearth::spec
