#include "worker/daemon/options.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::worker {
namespace {

using ::testing::HasSubstr;

class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() {
    SetEnv("HEARTH_HOME", "/tmp/hearth-home");
    UnsetEnv("HEARTH_COORDINATOR");
  }
  static std::string Error(const std::vector<std::string>& arguments) {
    const auto options = ParseOptions(arguments);
    EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(options.status().message());
  }
};

TEST_F(OptionsTest, ParseOptions_Nothing_GivesDefaults) {
  const auto options = ParseOptions({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->coordinator, "127.0.0.1:7070");
  EXPECT_EQ(options->device, "cpu");
  EXPECT_EQ(options->home, "/tmp/hearth-home");
}

TEST_F(OptionsTest, ParseOptions_Flags_OverrideTheEnvironment) {
  SetEnv("HEARTH_COORDINATOR", "127.0.0.1:1");
  EXPECT_EQ(ParseOptions({})->coordinator, "127.0.0.1:1");
  const auto options = ParseOptions({"--coordinator", "127.0.0.1:2,localhost", "--name", "w1",
                                     "--threads", "3", "--label", "zone=a", "--label", "x=y=z"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->coordinator, "127.0.0.1:2,localhost");
  EXPECT_EQ(options->name, "w1");
  EXPECT_EQ(options->threads, 3);
  EXPECT_EQ(options->labels.at("zone"), "a");
  EXPECT_EQ(options->labels.at("x"), "y=z");
}

TEST_F(OptionsTest, ParseOptions_Bad_NamesTheFlag) {
  EXPECT_THAT(Error({"--nonsense"}), HasSubstr("--nonsense"));
  EXPECT_THAT(Error({"--threads", "many"}), HasSubstr("--threads"));
  EXPECT_THAT(Error({"--label", "novalue"}), HasSubstr("--label novalue"));
  EXPECT_THAT(Error({"--label", "a=1", "--label", "a=2"}), HasSubstr("twice"));
  EXPECT_THAT(Error({"--name", "a b"}), HasSubstr("--name"));
  EXPECT_THAT(Error({"--coordinator", ""}), HasSubstr("--coordinator"));
}

TEST_F(OptionsTest, ParseOptions_ClearTextBeyondTheMachine_NeedsInsecure) {
  EXPECT_THAT(Error({"--coordinator", "10.0.0.1:7070"}), HasSubstr("--insecure"));
  EXPECT_THAT(Error({"--http", "0.0.0.0:0"}), HasSubstr("--insecure"));
  EXPECT_TRUE(ParseOptions({"--coordinator", "10.0.0.1:7070", "--insecure"}).ok());
  EXPECT_TRUE(ParseOptions({"--coordinator", "10.0.0.1:7070", "--tls-ca", "ca.pem"}).ok());
  EXPECT_TRUE(ParseOptions({"--http", "0.0.0.0:0", "--insecure"}).ok());
}

TEST_F(OptionsTest, ParseOptions_Confinement_IsOnUnlessTurnedOff) {
  const auto plain = ParseOptions({});
  EXPECT_TRUE(plain->trainer_filter);
  EXPECT_FALSE(plain->trainer_limits.any());
  const auto options =
      ParseOptions({"--trainer-user", "hearth-trainer", "--trainer-memory", "64GiB",
                    "--trainer-pids", "500", "--trainer-cpus", "7.5", "--no-trainer-filter"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->trainer_user, "hearth-trainer");
  EXPECT_EQ(options->trainer_limits.memory_bytes, int64_t{64} << 30);
  EXPECT_EQ(options->trainer_limits.processes, 500);
  EXPECT_EQ(options->trainer_limits.cpus, 7.5);
  EXPECT_FALSE(options->trainer_filter);
  EXPECT_THAT(Error({"--trainer-memory", "much"}), HasSubstr("--trainer-memory"));
  EXPECT_THAT(Error({"--trainer-pids", "0"}), HasSubstr("--trainer-pids"));
}

TEST_F(OptionsTest, ParseOptions_HelpAndVersion_AreTheMessage) {
  const auto help = ParseOptions({"--help"});
  EXPECT_EQ(help.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(help.status().message()), HasSubstr("Exit codes"));
  EXPECT_THAT(std::string(ParseOptions({"--version"}).status().message()),
              HasSubstr("hearth-worker 0."));
}

}  // namespace
}  // namespace hearth::worker
