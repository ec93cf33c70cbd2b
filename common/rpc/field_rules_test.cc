#include "common/rpc/field_rules.h"

#include <cmath>
#include <limits>
#include <string>

#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::rpc {
namespace {

using testing::HasSubstr;

constexpr FieldRule kRows[] = {
    {.field = "LogBatch.dropped", .max = 100},
    {.field = "LogBatch.lines", .max_entries = 2},
    {.field = "LogLine.text", .max_bytes = 5, .text = TextKind::kText},
    {.field = "StepReport.loss", .any_number = true},
    {.field = "AgentMessage.hello", .max_message_bytes = 64},
    {.field = "Hello.LabelsEntry.value", .max_bytes = 3},
};

std::string Problem(const v1::AgentMessage& message) {
  static const auto* const rules = new FieldRules(FieldRule{.max_bytes = 20}, kRows);
  return std::string(rules->Check(message).message());
}

TEST(FieldRulesTest, Check_NamesFieldValueAndBound) {
  v1::AgentMessage message;
  v1::LogBatch& logs = *message.mutable_report()->mutable_logs();
  logs.set_dropped(100);
  EXPECT_EQ(Problem(message), "");
  logs.set_dropped(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Problem(message),
            "report.logs.dropped is 9223372036854775807; it must be within 0..100");
  logs.set_dropped(-1);
  EXPECT_THAT(Problem(message), HasSubstr("report.logs.dropped is -1"));
  const absl::Status status = FieldRules(FieldRule{}, kRows).Check(message);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(GetDetail(status, info));
  EXPECT_EQ(info.reason(), "FIELD_OUT_OF_BOUNDS");
  EXPECT_EQ(info.metadata().at("field"), "report.logs.dropped");
}

TEST(FieldRulesTest, Check_ListsStringsAndMaps) {
  v1::AgentMessage message;
  v1::LogBatch& logs = *message.mutable_report()->mutable_logs();
  logs.add_lines()->set_text("a\nb");
  EXPECT_EQ(Problem(message), "");
  logs.add_lines()->set_text("123456");
  EXPECT_EQ(Problem(message), "report.logs.lines[1].text has 6 bytes; the limit is 5");
  logs.mutable_lines(1)->set_text("\x1b[0m");
  EXPECT_EQ(Problem(message), "report.logs.lines[1].text has the control character 0x1b");
  logs.mutable_lines(1)->clear_text();
  logs.add_lines();
  EXPECT_EQ(Problem(message), "report.logs.lines has 3 entries; the limit is 2");
  v1::AgentMessage hello;
  (*hello.mutable_hello()->mutable_labels())["zone"] = "abcd";
  EXPECT_EQ(Problem(hello), "hello.labels[0].value has 4 bytes; the limit is 3");
  hello.mutable_hello()->clear_labels();
  hello.mutable_hello()->set_host("line\nline");
  EXPECT_THAT(Problem(hello), HasSubstr("hello.host has the control character 0x0a"));
  hello.mutable_hello()->set_host("aaaaaaaaaaaaaaaaaaaa");
  hello.mutable_hello()->set_version("aaaaaaaaaaaaaaaaaaaa");
  hello.mutable_hello()->set_root_uuid("aaaaaaaaaaaaaaaaaaaa");
  EXPECT_THAT(Problem(hello), HasSubstr("hello has 66 bytes; the limit is 64"));
}

TEST(FieldRulesTest, Check_NumbersAndEnums) {
  v1::AgentMessage message;
  v1::StepReport& step = *message.mutable_report()->mutable_step();
  step.set_loss(std::nan(""));
  EXPECT_EQ(Problem(message), "");
  step.set_step_seconds(std::nan(""));
  EXPECT_EQ(Problem(message), "report.step.step_seconds is no finite number");
  step.set_step_seconds(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(Problem(message), "report.step.step_seconds is no finite number");
  v1::AgentMessage exit;
  exit.mutable_report()->mutable_exit()->mutable_exit()->set_reason(
      static_cast<v1::ExitReason>(4711));
  EXPECT_EQ(Problem(exit), "report.exit.exit.reason has the unknown value 4711");
}

TEST(FieldRulesTest, Check_UnknownFields_AreBounded) {
  v1::AgentMessage message;
  google::protobuf::UnknownFieldSet& unknown =
      *message.mutable_hello()->GetReflection()->MutableUnknownFields(message.mutable_hello());
  unknown.AddLengthDelimited(4000, std::string(1000, 'x'));
  EXPECT_THAT(Problem(message), HasSubstr("hello has"));
  v1::AgentMessage heartbeat;
  heartbeat.GetReflection()
      ->MutableUnknownFields(&heartbeat)
      ->AddLengthDelimited(4000, std::string(1000, 'x'));
  EXPECT_EQ(Problem(heartbeat), "hearth.v1.AgentMessage has unknown fields of more than 20 bytes");
}

}  // namespace
}  // namespace hearth::rpc
