#include "coordinator/service/identity/sessions.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TokenPtr TokenOf(const std::string& name) {
  v1::Token token;
  token.set_name(name);
  return std::make_shared<const v1::Token>(token);
}

TEST(SessionsTest, Check_EndsThoseWhoseTokenIsGone_OnceASecondAtMost) {
  Sessions sessions;
  std::vector<std::string> ended;
  for (const std::string token : {"a", "b"}) {
    sessions.Add(TokenOf(token), [&ended, token](const absl::Status& status) {
      if (!status.ok()) {
        ended.push_back(token);
      }
      return true;
    });
  }
  std::string revoked;
  const Sessions::Judge judge = [&revoked](const TokenPtr& token) {
    return token->name() == revoked ? absl::UnauthenticatedError("revoked") : absl::OkStatus();
  };
  sessions.Check(absl::Seconds(1), judge);
  EXPECT_EQ(sessions.size(), 2u);
  revoked = "a";
  sessions.Check(absl::Seconds(1.5), judge);
  EXPECT_THAT(ended, IsEmpty());
  sessions.Check(absl::Seconds(2), judge);
  EXPECT_THAT(ended, ElementsAre("a"));
  EXPECT_EQ(sessions.size(), 1u);
}

TEST(SessionsTest, Check_ForgetsStreamsThatHaveEnded) {
  Sessions sessions;
  sessions.Add(TokenOf("a"), [](const absl::Status&) { return false; });
  sessions.Check(absl::Seconds(1), [](const TokenPtr&) { return absl::OkStatus(); });
  EXPECT_EQ(sessions.size(), 0u);
}

}  // namespace
}  // namespace hearth::coordinator
