#include "common/rpc/grpc_status.h"

#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace hearth::rpc {
namespace {

TEST(ToGrpc, EveryCode_ComesBackUnchanged) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "text");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
    EXPECT_EQ(static_cast<int>(ToGrpc(status).error_code()), code);
  }
}

TEST(ToGrpc, StatusWithDetails_IsAGoogleRpcStatus) {
  const absl::Status status = MakeError(absl::StatusCode::kFailedPrecondition, "job is paused",
                                        "JOB_PAUSED", {{"job_id", "a"}});
  const grpc::Status wire = ToGrpc(status);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(wire.error_details()));
  EXPECT_EQ(details.code(), 9);
  EXPECT_EQ(details.message(), "job is paused");
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "JOB_PAUSED");
  EXPECT_EQ(info.domain(), "hearth");
  EXPECT_EQ(info.metadata().at("job_id"), "a");
  EXPECT_EQ(FromGrpc(wire), status);
}

TEST(ToGrpc, ForeignPayload_IsLeftOut) {
  absl::Status status = absl::InternalError("x");
  status.SetPayload("hearth/private", absl::Cord("bytes"));
  EXPECT_TRUE(ToGrpc(status).error_details().empty());
}

TEST(FromGrpc, GarbageDetails_KeepsCodeAndMessage) {
  const grpc::Status wire(grpc::StatusCode::ABORTED, "stale", "\xff\xff not a proto");
  EXPECT_EQ(FromGrpc(wire), absl::AbortedError("stale"));
}

TEST(NotFoundError, Job_CarriesResourceInfo) {
  const absl::Status status = NotFoundError("job", "a");
  google::rpc::ResourceInfo resource;
  ASSERT_TRUE(GetDetail(status, resource));
  EXPECT_EQ(resource.resource_name(), "a");
  EXPECT_EQ(status.message(), "job \"a\" not found");
  EXPECT_EQ(ErrorReason(status), "NOT_FOUND");
}

TEST(PreconditionError, Violation_NamesTypeAndSubject) {
  google::rpc::PreconditionFailure failure;
  ASSERT_TRUE(
      GetDetail(PreconditionError("still running", "JOB_ACTIVE", "STATE", "jobs/a"), failure));
  EXPECT_EQ(failure.violations(0).type(), "STATE");
  EXPECT_EQ(failure.violations(0).subject(), "jobs/a");
  EXPECT_EQ(failure.violations(0).description(), "still running");
}

TEST(Describe, BadRequestAndRetry_AreListed) {
  absl::Status status = UnavailableError("starting", "NOT_READY", absl::Milliseconds(1500));
  google::rpc::BadRequest bad;
  auto* violation = bad.add_field_violations();
  violation->set_field("model.layers");
  violation->set_description("must be > 0");
  SetDetail(status, bad);
  EXPECT_EQ(Describe(status), "starting\n  model.layers: must be > 0\n  retry in 1s");
  EXPECT_EQ(Describe(absl::AbortedError("")), "ABORTED");
}

TEST(ErrorReason, NoDetails_IsEmpty) {
  EXPECT_EQ(ErrorReason(absl::InternalError("x")), "");
}

}  // namespace
}  // namespace hearth::rpc
