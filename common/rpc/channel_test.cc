#include "common/rpc/channel.h"

#include <grpc/grpc.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/worker.pb.h"

namespace hearth::rpc {
namespace {

using testing::ElementsAre;

TEST(Backoff, Next_DoublesUpToTheCap) {
  Backoff backoff({.initial = absl::Milliseconds(100), .cap = absl::Milliseconds(500)},
                  [] { return 0.5; });  // no jitter
  for (const int ms : {100, 200, 400, 500, 500}) {
    EXPECT_EQ(absl::ToInt64Milliseconds(backoff.Next() + absl::Microseconds(1)), ms);
  }
  backoff.Reset();
  EXPECT_EQ(absl::ToInt64Milliseconds(backoff.Next() + absl::Microseconds(1)), 100);
}

TEST(Backoff, Next_Jitter_StaysWithinTwentyPercent) {
  Backoff low(Backoff::Options{}, [] { return 0.0; });
  Backoff high(Backoff::Options{}, [] { return 0.999999; });
  EXPECT_NEAR(absl::ToDoubleMilliseconds(low.Next()), 80, 0.01);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(high.Next()), 120, 0.01);
  Backoff seeded{Backoff::Options{}};
  const absl::Duration delay = seeded.Next();
  EXPECT_GE(delay, absl::Milliseconds(79));
  EXPECT_LE(delay, absl::Milliseconds(121));
}

TEST(CoordinatorList, Parse_MissingPorts_GetTheDefault) {
  const auto list = CoordinatorList::Parse("a, b:7171,[::1],[::1]:9");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(list->addresses(), ElementsAre("a:7070", "b:7171", "[::1]:7070", "[::1]:9"));
}

TEST(CoordinatorList, Parse_Malformed_IsInvalidArgument) {
  for (const char* bad : {"", " , ", "a:x", "a:0", "::1:5"}) {
    EXPECT_EQ(CoordinatorList::Parse(bad).status().code(), absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(CoordinatorList, Advance_PastTheLast_WrapsAndSaysSo) {
  auto list = CoordinatorList::Parse("a,b");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->current(), "a:7070");
  EXPECT_FALSE(list->Advance());
  EXPECT_EQ(list->current(), "b:7070");
  EXPECT_TRUE(list->Advance());
  EXPECT_EQ(list->current(), "a:7070");
}

TEST(RetryServiceConfig, MethodsThatMayBeRepeated_AreThere) {
  google::protobuf::Struct config;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(RetryServiceConfig(), &config).ok());
  const auto& methods = config.fields().at("methodConfig").list_value().values(0).struct_value();
  const auto& names = methods.fields().at("name").list_value().values();
  std::vector<std::string> repeated;
  for (const auto& name : names) {
    const std::string service = name.struct_value().fields().at("service").string_value();
    const std::string method = name.struct_value().fields().at("method").string_value();
    const auto* found = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
        absl::StrCat(service, ".", method));
    ASSERT_NE(found, nullptr) << service << "." << method;
    EXPECT_FALSE(found->client_streaming() || found->server_streaming()) << method;
    repeated.push_back(method);
  }
  EXPECT_THAT(repeated, testing::IsSupersetOf({"CreateJob", "GetJob", "CordonWorker"}));
  // A second UpdateJob, ResumeJob or delete may meet what another caller did since the first.
  EXPECT_THAT(repeated, testing::Each(testing::AllOf(
                            testing::Ne("UpdateJob"), testing::Ne("ResumeJob"),
                            testing::Ne("DeleteJob"), testing::Ne("DeleteCheckpoint"),
                            testing::Ne("DeleteWorker"), testing::Ne("StreamLogs"))));
}

TEST(Connect, MalformedAddress_IsInvalidArgument) {
  EXPECT_EQ(Connect("::1:5", {}, false).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Connect("localhost", {}, false).ok());  // lazy: dials at the first call
}

// A worker that was asked to end waited 9 s for a connection that its cut cable had left.
TEST(Connect, TheLastChannelsEnd_DoesNotEndGrpc) {
  ASSERT_TRUE(Connect("localhost", {}, false).ok());
  EXPECT_NE(grpc_is_initialized(), 0);
}

}  // namespace
}  // namespace hearth::rpc
