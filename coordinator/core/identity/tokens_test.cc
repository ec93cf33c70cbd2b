#include "coordinator/core/identity/tokens.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

CreateToken Command(const std::string& name, v1::Role role) {
  CreateToken command;
  command.token.set_name(name);
  command.token.set_user(name);
  command.token.set_role(role);
  command.secret_sha256 = "hash of " + name;
  return command;
}

TEST(TokensTest, Create_WhatIsMissingOrTooMuch_IsRefused) {
  Tokens tokens;
  Effects effects;
  CreateToken worker = Command("w", v1::ROLE_WORKER);
  CreateToken viewer_of_worker = Command("v", v1::ROLE_VIEWER);
  viewer_of_worker.token.set_worker_id("w1");
  CreateToken bad_user = Command("v", v1::ROLE_VIEWER);
  bad_user.token.set_user("a b");
  CreateToken brief = Command("v", v1::ROLE_VIEWER);
  brief.expires_in = absl::Milliseconds(999);
  CreateToken endless = Command("v", v1::ROLE_VIEWER);
  endless.expires_in = absl::Hours(24.0 * 365 * 1000);
  for (const CreateToken& command :
       {Command("", v1::ROLE_VIEWER), Command("a b", v1::ROLE_VIEWER),
        Command("local", v1::ROLE_VIEWER), Command("a", v1::ROLE_UNSPECIFIED), worker,
        viewer_of_worker, bad_user, brief, endless}) {
    EXPECT_TRUE(absl::IsInvalidArgument(tokens.Create(command, kNow, effects).status()))
        << command.token.DebugString();
  }
  EXPECT_THAT(effects.token_puts, IsEmpty());
  worker.token.set_worker_id("w1");
  EXPECT_TRUE(tokens.Create(worker, kNow, effects).ok());
}

TEST(TokensTest, Create_ANameThatIsInUse_IsRefusedUntilItHasExpired) {
  Tokens tokens;
  Effects effects;
  CreateToken brief = Command("a", v1::ROLE_VIEWER);
  brief.expires_in = absl::Minutes(1);
  const auto made = tokens.Create(brief, kNow, effects);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->expire_time().seconds(), 1'800'000'060);
  EXPECT_TRUE(
      absl::IsAlreadyExists(tokens.Create(brief, kNow + absl::Seconds(59), effects).status()));
  EXPECT_TRUE(tokens.Create(brief, kNow + absl::Seconds(60), effects).ok());
  EXPECT_EQ(effects.token_puts.size(), 2u);
}

TEST(TokensTest, Create_ACertificate_StandsForOneToken) {
  Tokens tokens;
  Effects effects;
  CreateToken first = Command("a", v1::ROLE_VIEWER);
  first.token.set_certificate("alice");
  CreateToken second = Command("b", v1::ROLE_ADMIN);
  second.token.set_certificate("alice");
  EXPECT_TRUE(tokens.Create(first, kNow, effects).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(tokens.Create(second, kNow, effects).status()));
}

TEST(TokensTest, Revoke_And_Expire_ForgetTheRecord) {
  Tokens tokens;
  Effects effects;
  CreateToken brief = Command("brief", v1::ROLE_VIEWER);
  brief.expires_in = absl::Seconds(1);
  ASSERT_TRUE(tokens.Create(brief, kNow, effects).ok());
  ASSERT_TRUE(tokens.Create(Command("lasting", v1::ROLE_VIEWER), kNow, effects).ok());
  Tokens restored;
  restored.Restore(effects.token_puts);
  Effects later;
  restored.Expire(kNow + absl::Seconds(2), later);
  EXPECT_THAT(later.token_deletes, IsEmpty());  // people may still want to see it
  restored.Expire(kNow + Tokens::kKeepExpired + absl::Seconds(2), later);
  EXPECT_THAT(later.token_deletes, ElementsAre("brief"));
  EXPECT_TRUE(restored.Revoke("lasting", later).ok());
  EXPECT_THAT(later.token_deletes, ElementsAre("brief", "lasting"));
  EXPECT_TRUE(absl::IsNotFound(restored.Revoke("lasting", later).status()));
}

}  // namespace
}  // namespace hearth::coordinator
