#include "coordinator/scheduler/waiting_lines.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Told = std::vector<std::string>;

Demand Of(int64_t workers) {
  Demand demand;
  demand.wanted = demand.least = workers;
  return demand;
}

QueuePlace At(const std::string& id, int priority = 0) {
  return PlaceInQueue(priority, absl::UnixEpoch(), id, kDefaultAging);
}

// "job: reason" of those that are told.
Told Tell(WaitingLines& lines, size_t most = 100) {
  Told out;
  for (const auto& [id, text] : lines.TakeUntold(most)) {
    out.push_back(absl::StrCat(id, ": ", text.reason));
  }
  return out;
}

TEST(WaitingLines, Put_GroupsEqualDemandsInQueueOrder) {
  WaitingLines lines;
  lines.Put(Of(1), At("b"));
  lines.Put(Of(1), At("a"));
  lines.Put(Of(1), At("c", 5));
  lines.Put(Of(2), At("d"));
  ASSERT_THAT(lines.lines(), SizeIs(2));
  EXPECT_THAT(lines.lines().at(Of(1)).places(), ElementsAre(At("c", 5), At("a"), At("b")));
  EXPECT_EQ(lines.size(), 4);
}

TEST(WaitingLines, Put_OfOneThatWaits_MovesIt) {
  WaitingLines lines;
  lines.Put(Of(1), At("a"));
  lines.Put(Of(2), At("a", 7));
  ASSERT_THAT(lines.lines(), SizeIs(1));
  EXPECT_THAT(lines.lines().at(Of(2)).places(), ElementsAre(At("a", 7)));
  lines.Remove("a");
  lines.Remove("a");
  EXPECT_THAT(lines.lines(), IsEmpty());
  EXPECT_FALSE(lines.Has("a"));
}

TEST(WaitingLines, TakeUntold_TellsALongLineInPieces_EachJobOnce) {
  WaitingLines lines;
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    lines.Put(Of(1), At(id));
  }
  EXPECT_THAT(Tell(lines), IsEmpty()) << "nothing is known yet";
  lines.SetText(Of(1), {"busy", "1"});
  EXPECT_THAT(Tell(lines, 2), ElementsAre("a: 1", "b: 1"));
  lines.Put(Of(1), At("aa"));
  lines.Remove("c");
  EXPECT_THAT(Tell(lines, 2), ElementsAre("aa: 1", "d: 1"));
  EXPECT_THAT(Tell(lines, 2), ElementsAre("e: 1"));
  lines.SetText(Of(1), {"busy", "1"});
  EXPECT_THAT(Tell(lines), IsEmpty());
  lines.SetText(Of(1), {"busy", "2"});
  EXPECT_THAT(Tell(lines), SizeIs(5));
}

TEST(WaitingLines, SpokenFor_KeepsItsOwnText_UntilAPlanSaysNothingOfIt) {
  WaitingLines lines;
  lines.Put(Of(1), At("a"));
  lines.Put(Of(1), At("b"));
  lines.BeginTexts();
  lines.SpokenFor("a");
  lines.SetText(Of(1), {"busy", "1"});
  EXPECT_THAT(Tell(lines), ElementsAre("b: 1"));
  EXPECT_THAT(Tell(lines), IsEmpty());
  lines.BeginTexts();
  lines.SpokenFor("a");
  EXPECT_THAT(Tell(lines), IsEmpty());
  lines.BeginTexts();
  EXPECT_THAT(Tell(lines), ElementsAre("a: 1"));
}

TEST(WaitingLines, SetTextOfAll_TellsAllLines) {
  WaitingLines lines;
  lines.Put(Of(1), At("a"));
  lines.Put(Of(2), At("b"));
  lines.SetTextOfAll({"reattaching", "wait"});
  EXPECT_THAT(Tell(lines), ElementsAre("a: wait", "b: wait"));
}

}  // namespace
}  // namespace hearth::coordinator
