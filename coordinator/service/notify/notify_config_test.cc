#include "coordinator/service/notify/notify_config.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "common/io/private_files.h"
#include "gmock/gmock.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;

class NotifyConfigTest : public testing::Test {
 protected:
  absl::StatusOr<NotifySettings> Load(const std::string& yaml) {
    const std::string path = dir_.path() + "/notify.yaml";
    HEARTH_CHECK(Env::Real().WriteFileAtomically(path, yaml).ok(), "the file is written");
    return LoadNotifySettings(Env::Real(), path);
  }
  std::string Error(const std::string& yaml) { return std::string(Load(yaml).status().message()); }

  const TempDir dir_;
};

TEST_F(NotifyConfigTest, WholeFile_IsRead) {
  const std::string secret = dir_.path() + "/secret";
  ASSERT_TRUE(WritePrivateFile(secret, "0123456789abcdef\n").ok());
  const auto settings =
      Load(absl::StrCat("all_jobs:\n"
                        "- on: [failed, stuck]\n"
                        "  command: tell\n"
                        "commands: {tell: /bin/true}\n"
                        "secret_file: ",
                        secret, "\nurl_prefixes: [\"https://example.org/\"]\n"));
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->all_jobs.at(0).on_size(), 2);
  EXPECT_EQ(settings->commands.at("tell"), "/bin/true");
  EXPECT_EQ(settings->secret, "0123456789abcdef") << "without the end of the line";
  EXPECT_THAT(settings->url_prefixes, testing::ElementsAre("https://example.org/"));
}

TEST_F(NotifyConfigTest, Mistakes_AreNamed) {
  EXPECT_THAT(Error("comands: {}\n"),
              HasSubstr("notify.yaml:1: comands: unknown key; did you mean commands?"));
  EXPECT_THAT(Error("commands: {x: bin/true}\n"),
              HasSubstr("commands.x: \"bin/true\" is not an absolute path"));
  EXPECT_THAT(Error("commands: {x: /no/such}\n"), HasSubstr("/no/such cannot be executed"));
  EXPECT_THAT(Error("all_jobs: [{on: [done], url: \"http://h/\"}]\n"),
              HasSubstr("all_jobs[0].on[0]: \"done\" is not an event; did you mean succeeded?"));
  EXPECT_THAT(Error("all_jobs: [{on: [failed], command: x}]\n"),
              HasSubstr("all_jobs[0].command: there is no \"x\" in commands"));
  EXPECT_THAT(Error("all_jobs: [{on: [failed], url: \"ftp://h/\"}]\n"),
              HasSubstr("must begin with http:// or https://"));
  EXPECT_THAT(Error("url_prefixes: [\"https://example.org\"]\n"), HasSubstr("a / behind its host"));
}

TEST_F(NotifyConfigTest, SecretThatOthersMayRead_IsRefused) {
  const std::string secret = dir_.path() + "/secret";
  ASSERT_TRUE(WritePrivateFile(secret, "0123456789abcdef").ok());
  ASSERT_EQ(chmod(secret.c_str(), 0644), 0);
  EXPECT_EQ(Load("secret_file: " + secret + "\n").status().code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(WritePrivateFile(secret, "short").ok());
  EXPECT_THAT(Error("secret_file: " + secret + "\n"), HasSubstr("a secret has at least 16"));
}

}  // namespace
}  // namespace hearth::coordinator
