#include "jobctl/views/output/table.h"

#include <string>

#include "gtest/gtest.h"

namespace hearth::jobctl {
namespace {

TEST(Table, Render_AlignsColumnsWithoutTrailingBlanks) {
  Table table({"NAME", "STATE", "AGE"});
  table.Add({"a-long-name", "RUNNING", "5s"});
  table.Add({"b", "PAUSED", ""});
  EXPECT_EQ(table.Render(),
            "NAME         STATE    AGE\n"
            "a-long-name  RUNNING  5s\n"
            "b            PAUSED\n");
}

TEST(Table, Render_FitsTheTerminal) {
  Table table({"NAME", "REASON", "AGE"});
  table.Add({"a", "waits for 8 workers with device cuda, 2 are free", "5s"});
  EXPECT_EQ(table.Render(30),
            "NAME  REASON               AGE\n"
            "a     waits for 8 work...  5s\n");
  Table events({"TIME", "WHAT"});
  events.Add({"10:00", "checkpoint of step 100 in /data/somewhere"});
  EXPECT_EQ(events.Render(30),
            "TIME   WHAT\n"
            "10:00  checkpoint of step 100\n"
            "       in /data/somewhere\n");
  EXPECT_EQ(events.Render().find("100\n"), std::string::npos) << "off a terminal: full width";
}

TEST(Table, Cells_CannotCommandTheTerminal) {
  Table table({"NAME", "WHAT"});
  table.Add({"a\033[2Jb", "one\ntwo\r\tthree"});
  const std::string text = table.Render();
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(text.find("a\\u001b[2Jb  one\\u000atwo\\u000d\tthree\n"), std::string::npos) << text;
}

TEST(Table, Paths_AreShortenedAndWholeWhenWide) {
  Table table({"STEP", "PATH"});
  table.ShortenLast();
  table.Add({"10", "/data/checkpoints/a-job/e1/step-00000010"});
  EXPECT_EQ(table.Render(30),
            "STEP  PATH\n"
            "10    /data...e1/step-00000010\n");
  EXPECT_EQ(table.Width(), 46);
  table.Whole();
  EXPECT_EQ(table.Render(30),
            "STEP  PATH\n"
            "10    /data/checkpoints/a-job/e1/step-00000010\n");
}

}  // namespace
}  // namespace hearth::jobctl
