#include "common/log/log.h"

#include <cstdlib>
#include <string>

#include "common/base/system.h"
#include "common/log/task_scope.h"
#include "gtest/gtest.h"

namespace hearth::log {
namespace {

std::string Captured(void (*body)()) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, Info_AtLevelInfo_PrintsProgramAndMessage) {
  const std::string text = Captured([] {
    ASSERT_TRUE(Init("prog", "info").ok());
    HEARTH_LOG_INFO("job {} has {} workers", "a", 2);
    HEARTH_LOG_DEBUG("hidden");
  });
  EXPECT_NE(text.find("prog["), std::string::npos) << text;
  EXPECT_NE(text.find("job a has 2 workers\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("hidden"), std::string::npos) << text;
}

TEST(Log, SetLevel_Debug_ShowsDebugLines) {
  const std::string text = Captured([] {
    ASSERT_TRUE(Init("prog", "error").ok());
    HEARTH_LOG_WARNING("too low");
    ASSERT_TRUE(SetLevel("debug").ok());
    HEARTH_LOG_DEBUG("shown");
  });
  EXPECT_EQ(text.find("too low"), std::string::npos) << text;
  EXPECT_NE(text.find("shown"), std::string::npos) << text;
}

TEST(Log, Json_SpecialCharacters_AreEscapedOnOneLine) {
  const std::string text = Captured([] {
    ASSERT_TRUE(Init("prog", "info", /*json=*/true).ok());
    HEARTH_LOG_ERROR("a \"b\"\n\x01");
  });
  EXPECT_NE(text.find("\"level\":\"error\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"msg\":\"a \\\"b\\\"\\n\\u0001\"}\n"), std::string::npos) << text;
}

TEST(Log, Json_InATaskScope_NamesTheTask) {
  const std::string text = Captured([] {
    ASSERT_TRUE(Init("prog", "info", /*json=*/true).ok());
    {
      const TaskScope outer("run-1", 2, 3);
      HEARTH_LOG_INFO("first");
      {
        const TaskScope inner("run\"2", 5);
        HEARTH_LOG_INFO("second");
        const TaskScope whole_job("run-3", -1);
        HEARTH_LOG_INFO("removed");
      }
      HEARTH_LOG_INFO("third");
    }
    HEARTH_LOG_INFO("fourth");
  });
  const std::string task = "\"job_id\":\"run-1\",\"epoch\":2,\"rank\":3,\"msg\":\"";
  EXPECT_NE(text.find(task + "first\"}\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\"job_id\":\"run\\\"2\",\"epoch\":5,\"msg\":\"second\"}\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\"job_id\":\"run-3\",\"msg\":\"removed\"}\n"), std::string::npos) << text;
  EXPECT_NE(text.find(task + "third\"}\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("job_id", text.find("third")), std::string::npos) << text;
}

TEST(Log, Init_LevelFromEnvironment_IsUsed) {
  SetEnv("HEARTH_LOG_LEVEL", "error");
  const std::string text = Captured([] {
    ASSERT_TRUE(Init("prog").ok());
    HEARTH_LOG_INFO("hidden");
    HEARTH_LOG_ERROR("shown");
  });
  UnsetEnv("HEARTH_LOG_LEVEL");
  EXPECT_EQ(text.find("hidden"), std::string::npos) << text;
  EXPECT_NE(text.find("shown"), std::string::npos) << text;
}

TEST(Log, Init_UnknownLevel_IsInvalidArgument) {
  EXPECT_EQ(Init("prog", "loud").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SetLevel("loud").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::log
