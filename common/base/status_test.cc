#include "common/base/status.h"

#include "common/base/status_macros.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

TEST(Annotate, Error_KeepsCodeAndPayloads) {
  absl::Status status = absl::NotFoundError("gone");
  status.SetPayload("type.googleapis.com/x", absl::Cord("bytes"));
  const absl::Status out = Annotate(status, "reading a");
  EXPECT_EQ(out.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(out.message(), "reading a: gone");
  EXPECT_EQ(out.GetPayload("type.googleapis.com/x"), absl::Cord("bytes"));
}

TEST(Annotate, Ok_StaysOk) {
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
}

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) {
    return absl::InvalidArgumentError("odd");
  }
  return x / 2;
}

absl::StatusOr<int> Quarter(int x) {
  HEARTH_ASSIGN_OR_RETURN(const int half, Half(x));
  HEARTH_ASSIGN_OR_RETURN(const int quarter, Half(half));
  HEARTH_RETURN_IF_ERROR(absl::OkStatus());
  return quarter;
}

TEST(Macros, Error_ReturnsFromTheEnclosingFunction) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

TEST(MacrosDeathTest, FailedCheck_AbortsWithItsText) {
  EXPECT_DEATH(HEARTH_CHECK(1 == 2, "one is two"), "one is two");
}

}  // namespace
}  // namespace hearth
