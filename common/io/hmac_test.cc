#include "common/io/hmac.h"

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

// RFC 4231, 4.3.
TEST(HmacSha256Test, PublishedCase_IsMet) {
  EXPECT_EQ(absl::BytesToHexString(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace hearth
