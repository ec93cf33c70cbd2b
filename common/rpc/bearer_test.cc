#include "common/rpc/bearer.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/base/system.h"
#include "common/io/env.h"
#include "common/io/private_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::rpc {
namespace {

using ::testing::HasSubstr;

class BearerTest : public testing::Test {
 protected:
  BearerTest() {
    SetEnv("HEARTH_HOME", home_.c_str());
    std::filesystem::create_directory(home_ + "/tokens");
  }

  // A file of mode 0600 in the home folder.
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = home_ + "/" + name;
    EXPECT_TRUE(WritePrivateFile(path, text).ok());
    return path;
  }

  const TempDir temp_;
  const std::string home_ = temp_.path();
};

TEST_F(BearerTest, LocalTokenPath_NamesPortAndKind) {
  EXPECT_EQ(LocalTokenPath("/h", 7070, LocalToken::kAdmin), "/h/tokens/local-7070");
  EXPECT_EQ(LocalTokenPath("/h", 1, LocalToken::kWorker), "/h/tokens/local-1-worker");
}

TEST_F(BearerTest, ReadToken_FirstLineWithoutBlanks) {
  for (const char* text : {"secret", "secret\n", "  secret \r\nand more\n"}) {
    EXPECT_EQ(*ReadToken(Write("token", text)), "secret") << text;
  }
}

TEST_F(BearerTest, ReadToken_NoToken_IsRefused) {
  for (const char* text : {"", "\n", " \nsecret\n", "two words\n", "\x01\n", "secr\xc3\xa9t\n"}) {
    const absl::Status refused = ReadToken(Write("token", text)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(home_ + "/token"));
  }
  EXPECT_EQ(ReadToken(home_ + "/absent").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(BearerTest, ReadToken_OthersCanReadIt_IsRefusedWithAdvice) {
  const std::string path = Write("token", "secret\n");
  for (const mode_t mode : {0644u, 0604u, 0666u}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const absl::Status refused = ReadToken(path).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("chmod 600 " + path));
  }
}

TEST_F(BearerTest, FindToken_FileGiven_IsReadWhateverTheAddress) {
  const std::string path = Write("mine", "secret\n");
  Write("tokens/local-7070", "local\n");
  for (const char* address : {"127.0.0.1:7070", "lab:7070"}) {
    EXPECT_EQ(*FindToken(address, path, LocalToken::kAdmin), "secret") << address;
  }
  EXPECT_EQ(FindToken("127.0.0.1:7070", home_ + "/absent", LocalToken::kAdmin).status().code(),
            absl::StatusCode::kNotFound)
      << "the local one does not stand in for it";
}

TEST_F(BearerTest, FindToken_Loopback_TakesTheFileOfThePort) {
  Write("tokens/local-7070", "admin\n");
  Write("tokens/local-7070-worker", "worker\n");
  for (const char* address : {"127.0.0.1:7070", "[::1]:7070", "localhost:7070"}) {
    EXPECT_EQ(*FindToken(address, "", LocalToken::kAdmin), "admin") << address;
    EXPECT_EQ(*FindToken(address, "", LocalToken::kWorker), "worker") << address;
  }
  for (const char* address : {"127.0.0.1:7071", "10.0.0.1:7070", "lab:7070",
                              "localhost.evil.example:7070", "127.0.0.1"}) {
    EXPECT_EQ(*FindToken(address, "", LocalToken::kAdmin), "") << address;
  }
  ASSERT_EQ(chmod((home_ + "/tokens/local-7070").c_str(), 0644), 0);
  EXPECT_EQ(FindToken("127.0.0.1:7070", "", LocalToken::kAdmin).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(BearerTest, CheckTokenStaysSecret_ClearTextBeyondTheMachine_IsRefused) {
  const Credentials with{.token = "secret", .act_as = ""};
  const Credentials without{.token = "", .act_as = "bob"};
  for (const char* address : {"lab:7070", "10.0.0.1:7070", "0.0.0.0:7070"}) {
    const absl::Status refused = CheckTokenStaysSecret(address, with, false, false);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--tls-ca"));
    EXPECT_THAT(std::string(refused.message()), testing::Not(HasSubstr("secret")));
    EXPECT_TRUE(CheckTokenStaysSecret(address, with, /*tls=*/true, false).ok());
    EXPECT_TRUE(CheckTokenStaysSecret(address, with, false, /*insecure=*/true).ok());
    EXPECT_TRUE(CheckTokenStaysSecret(address, without, false, false).ok());
  }
  EXPECT_TRUE(CheckTokenStaysSecret("127.0.0.1:7070", with, false, false).ok());
  EXPECT_TRUE(CheckTokenStaysSecret("[::1]:7070", with, false, false).ok());
}

}  // namespace
}  // namespace hearth::rpc
