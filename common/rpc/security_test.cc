#include "common/rpc/security.h"

#include <sys/stat.h>

#include "common/base/ids.h"
#include "common/io/env.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::rpc {
namespace {

using testing::HasSubstr;

TEST(ParseHostPort, TableOfAddresses_Splits) {
  struct Row {
    const char* text;
    const char* host;
    int port;
  };
  for (const Row& row : {Row{"127.0.0.1:7070", "127.0.0.1", 7070}, Row{"[::1]:0", "::1", 0},
                         Row{"node-3.example.com:65535", "node-3.example.com", 65535}}) {
    const auto parsed = ParseHostPort(row.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, row.host);
    EXPECT_EQ(parsed->port, row.port);
  }
}

TEST(ParseHostPort, Malformed_IsInvalidArgumentAndQuotesIt) {
  for (const char* bad : {"", "localhost", ":7070", "a:", "a:x", "a:65536", "a:-1", "::1:7070",
                          "[::1]", "[::1", "[::1]7070"}) {
    const absl::Status status = ParseHostPort(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("\"") + bad + "\""));
  }
}

TEST(IsLoopback, TableOfHosts_OnlyOwnMachine) {
  for (const char* host : {"127.0.0.1", "127.255.0.9", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "localhost.evil.com",
                           "127.0.0.1.evil.com", "::ffff:10.0.0.1", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(CheckListenAddress, NonLoopbackInClear_IsRefusedWithAdvice) {
  for (const char* address : {"0.0.0.0:7070", "[::]:7070", "10.0.0.1:7070", "host:7070"}) {
    const absl::Status status = CheckListenAddress(address, /*tls=*/false, /*insecure=*/false);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--tls-cert"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--insecure"));
    EXPECT_TRUE(CheckListenAddress(address, true, false).ok());
    EXPECT_TRUE(CheckListenAddress(address, false, true).ok());
  }
  EXPECT_TRUE(CheckListenAddress("127.0.0.1:0", false, false).ok());
  EXPECT_FALSE(CheckListenAddress("127.0.0.1", true, true).ok());
}

class TlsTest : public testing::Test {
 protected:
  TlsTest() : pem_(testing::TempDir() + "/security_test_" + RandomHex(6)) {
    EXPECT_TRUE(
        Env::Real()
            .WriteFileAtomically(pem_, "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
            .ok());
    EXPECT_EQ(chmod(pem_.c_str(), 0600), 0);
  }
  ~TlsTest() override { EXPECT_TRUE(Env::Real().RemoveAll(pem_).ok()); }
  const std::string pem_;
};

TEST_F(TlsTest, NoFiles_IsClearText) {
  EXPECT_TRUE(MakeServerCredentials({}).ok());
  EXPECT_TRUE(MakeChannelCredentials({}, false).ok());
}

TEST_F(TlsTest, AllFiles_GiveCredentials) {
  const TlsFiles files{pem_, pem_, pem_};
  EXPECT_TRUE(MakeServerCredentials(files).ok());
  EXPECT_TRUE(MakeChannelCredentials(files, false).ok());
  EXPECT_TRUE(MakeChannelCredentials({"", "", pem_}, false).ok());
}

TEST_F(TlsTest, IncompleteOrUnreadable_SaysWhichFlag) {
  EXPECT_EQ(MakeServerCredentials({pem_, "", ""}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeChannelCredentials({"", pem_, ""}, false).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeServerCredentials({"", "", pem_}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status absent = MakeServerCredentials({pem_, "/absent/key.pem", ""}).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.message()), HasSubstr("--tls-key"));
  EXPECT_EQ(MakeServerCredentials({"/proc/self/status", pem_, ""}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TlsTest, KeyThatOthersCanRead_IsRefused) {
  ASSERT_EQ(chmod(pem_.c_str(), 0644), 0);
  for (const absl::Status& refused : {MakeServerCredentials({pem_, pem_, ""}).status(),
                                      MakeChannelCredentials({pem_, pem_, ""}, false).status()}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--tls-key"));
  }
  EXPECT_TRUE(MakeServerCredentials({}).ok());
  EXPECT_TRUE(MakeChannelCredentials({"", "", pem_}, false).ok()) << "a CA is no secret";
}

}  // namespace
}  // namespace hearth::rpc
