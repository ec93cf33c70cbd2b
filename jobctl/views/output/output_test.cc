#include "jobctl/views/output/output.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"

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

TEST(EscapeControl, WhatATerminalObeys_IsShown) {
  EXPECT_EQ(EscapeControl("plain \u00e9\u2581 text\n", true), "plain \u00e9\u2581 text\n");
  EXPECT_EQ(EscapeControl("a\033]0;title\007b\x7f", true), "a\\u001b]0;title\\u0007b\\u007f");
  EXPECT_EQ(EscapeControl("\xc2\x9b", true), "\\u009b") << "CSI as one character";
  EXPECT_EQ(EscapeControl("\x9b"
                          "2J",
                          true),
            "\\u009b2J")
      << "and as one byte";
  EXPECT_EQ(EscapeControl("\xe2\x80\xae", true), "\\u202e") << "right to left from here";
  EXPECT_EQ(EscapeControl("\xc0\x8a\xed\xa0\x80\xff", true),
            "\\u00c0\\u008a\\u00ed\\u00a0\\u0080\\u00ff")
      << "not UTF-8";
  EXPECT_EQ(EscapeControl("a\nb", false), "a\\u000ab");
}

TEST(WrapText, LongText_BreaksAtWords) {
  EXPECT_EQ(WrapText("short", 10, 4), "short");
  EXPECT_EQ(WrapText("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(WrapText("incomprehensible x", 7, 0, LongWords::kKeep), "incomprehensible\nx");
}

TEST(WrapText, ALongWord_IsBrokenAfterASlashElseWhereTheLineIsFull) {
  EXPECT_EQ(WrapText("incomprehensible x", 7, 0), "incompr\nehensib\nle x");
  EXPECT_EQ(WrapText("in /data/checkpoints/run-a/step-10", 20, 2),
            "in\n  /data/checkpoints/\n  run-a/step-10");
  EXPECT_EQ(WrapText("\u2581\u2582\u2583 x", 2, 0), "\u2581\u2582\n\u2583\nx");
}

TEST(ShortenMiddle, Path_KeepsMoreOfItsEnd) {
  EXPECT_EQ(ShortenMiddle("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(ShortenMiddle("abcdefghij", 8), "a...ghij");
  EXPECT_EQ(ShortenMiddle("\u2581bcdefghi\u2588", 8), "\u2581...ghi\u2588");
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

TEST(StateName, Job_DropsThePrefix) {
  EXPECT_EQ(StateName(v1::JOB_STATE_RUNNING), "RUNNING");
  EXPECT_EQ(StateName(v1::WORKER_STATE_IDLE), "IDLE");
}

TEST(Sparkline, FallingValues_FallsFromFullToLow) {
  EXPECT_EQ(Sparkline({8, 7, 6, 5, 4, 3, 2, 1}, 8), "█▇▆▅▄▃▂▁");
}

TEST(Sparkline, MorePointsThanWidth_AveragesStretches) {
  EXPECT_EQ(Sparkline({1, 1, 9, 9}, 2), "▁█");
  EXPECT_EQ(Sparkline({}, 8), "");
}

TEST(ToJson, Job_ShowsZeroesAndProtobufNames) {
  v1::Job job;
  job.set_job_id("j");
  const auto json = ToJson(job);
  ASSERT_TRUE(json.ok());
  EXPECT_NE(json->find("\"jobId\": \"j\""), std::string::npos);
  EXPECT_NE(json->find("\"step\": \"0\""), std::string::npos);  // int64 is a string in the mapping
}

TEST(ToYaml, Job_IsYamlOfTheJson) {
  v1::Job job;
  job.set_job_id("yes");
  const auto yaml = ToYaml(job);
  ASSERT_TRUE(yaml.ok());
  EXPECT_NE(yaml->find("jobId: \"yes\""), std::string::npos);
}

TEST(ToYaml, KeyThatYaml11TakesForTrue_IsQuoted) {
  v1::Job job;
  job.mutable_spec()->add_notify()->add_on("failed");
  const auto yaml = ToYaml(job);
  ASSERT_TRUE(yaml.ok());
  EXPECT_NE(yaml->find("\"on\":"), std::string::npos) << *yaml;
}

TEST(Number, NotFinite_IsADash) {
  EXPECT_EQ(Number(std::nan(""), 3), "-");
  EXPECT_EQ(Number(1.23456, 3), "1.235");
}

TEST(ParseOutputFormat, Unknown_NamesTheChoices) {
  EXPECT_TRUE(ParseOutputFormat("wide").ok());
  EXPECT_TRUE(*ParseOutputFormat("jsonpath={.job_id}") == OutputFormat::kJsonPath);
  constexpr struct {
    const char* typed;
    const char* told;
  } kSlips[] = {
      {"csv", "\"csv\" is not a format (one of table, wide, json, yaml, name, jsonpath)"},
      {"jsn", "\"jsn\" is not a format; did you mean json?"},
      {"wide=1", "\"wide=1\" is not a format; did you mean wide?"},
      {"custom-columns=A:.a", "did you mean --columns job_id,state of list and get?"},
      {"jsonpath", "give a path, e.g. -o jsonpath='{.jobs[*].job_id}'"},
      {"jsonpath={range .jobs[*]}", "there are no loops"},
  };
  for (const auto& slip : kSlips) {
    const std::string text(ParseOutputFormat(slip.typed).status().message());
    EXPECT_NE(text.find(slip.told), std::string::npos) << text;
  }
}

TEST(OutputFormat, ATemplate_IsData) {
  const OutputFormat format = *ParseOutputFormat("jsonpath={.job_id}");
  EXPECT_TRUE(format.data());
  EXPECT_EQ(*format.path().Print(v1::Job()), "");
}

TEST(FormatNames, LeaveTheTableOut) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(FormatNames(kPrintsText), Names());
  EXPECT_EQ(FormatNames(kPrintsData | kPrintsWide), Names({"wide", "json", "yaml"}));
  EXPECT_EQ(FormatNames(kPrintsRows), Names({"wide", "json", "yaml", "name", "jsonpath"}));
}

TEST(JsonAs, Yaml_IsTheSameValue) {
  const std::string json = "{\"a\": [1, null], \"b\": \"x\"}\n";
  EXPECT_EQ(JsonAs(OutputFormat::kJson, json), json);
  EXPECT_EQ(JsonAs(OutputFormat::kYaml, json), "a:\n  - 1\n  - ~\nb: \"x\"\n");
}

}  // namespace
}  // namespace hearth::jobctl
