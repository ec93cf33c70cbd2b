// Addresses and paths as people write them.
#include "jobctl/client/address.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/client/paths.h"

namespace hearth::jobctl {
namespace {

using ::testing::HasSubstr;

TEST(Address, WhatBelongsToABrowser_IsLeftOut) {
  EXPECT_EQ(CleanAddresses("http://node1:7070"), "node1:7070");
  EXPECT_EQ(CleanAddresses("https://node1:7070/jobs?x=1, node2"), "node1:7070,node2");
  for (const char* clean : {"127.0.0.1:7070", "[::1]:7070", ""}) {
    EXPECT_EQ(CleanAddresses(clean), clean);
  }
}

TEST(Address, TheWebPort_IsRecognised) {
  EXPECT_EQ(WhenUnreachable("node1:7071", ""),
            "7071 is the web port; gRPC is 7070: --coordinator node1:7070");
  EXPECT_THAT(WhenUnreachable("127.0.0.1:17471", "Trying to connect an http1.x server"),
              HasSubstr("17471 answers, but not as gRPC; it may be the web port"));
  EXPECT_EQ(WhenUnreachable("127.0.0.1:17471", "UNAVAILABLE: Failed parsing HTTP/2"),
            WhenUnreachable("127.0.0.1:17471", "Trying to connect an http1.x server"));
}

TEST(Address, SaysHowACoordinatorIsStarted) {
  EXPECT_EQ(WhenUnreachable("127.0.0.1:7070", "connection refused"),
            "scripts/start-node.sh starts one with workers, hearth-coordinator --data-dir DIR one "
            "without workers; --coordinator or HEARTH_COORDINATOR names another");
  EXPECT_THAT(WhenUnreachable("node1:9000", ""),
              HasSubstr("on node1 hearth-coordinator must run with --listen node1:9000;"));
}

TEST(Paths, HomeAndHere_BecomeAbsolute) {
  const auto from = [](const char* path) { return FromHere(path, "/home/ann", "/srv/runs"); };
  EXPECT_EQ(from("~/data/train"), "/home/ann/data/train");
  EXPECT_EQ(from("~"), "/home/ann");
  EXPECT_EQ(from("./data/../x"), "/srv/runs/x");
  EXPECT_EQ(from("../data/"), "/srv/data");
  EXPECT_EQ(from("."), "/srv/runs");
  EXPECT_EQ(from("data/train"), "data/train");
  EXPECT_EQ(from("/data/train"), "/data/train");
  EXPECT_EQ(from("~bob/x"), "~bob/x");
  EXPECT_EQ(FromHere("~/x", "", "/srv"), "~/x");
}

TEST(Paths, AllPathsOfAJob_AreMeant) {
  v1::JobSpec job;
  job.set_name("./name");
  job.mutable_model()->set_from("~/model");
  job.mutable_data()->add_train()->set_path("./a");
  job.mutable_data()->add_train()->set_path("/b");
  job.mutable_data()->add_validation()->set_path("../c");
  (*job.mutable_labels())["where"] = "~/x";
  MakePathsAbsolute(job, "/home/ann", "/srv/runs");
  EXPECT_EQ(job.name(), "./name");
  EXPECT_EQ(job.model().from(), "/home/ann/model");
  EXPECT_EQ(job.data().train(0).path(), "/srv/runs/a");
  EXPECT_EQ(job.data().train(1).path(), "/b");
  EXPECT_EQ(job.data().validation(0).path(), "/srv/c");
  EXPECT_EQ(job.labels().at("where"), "~/x");
}

}  // namespace
}  // namespace hearth::jobctl
