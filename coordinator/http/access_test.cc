#include "coordinator/http/access.h"

#include <string>

#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

// Lets "Bearer good" in; knows "Bearer worker" as a token of another role.
absl::Status Admit(const metrics::HttpRequest& request) {
  if (request.authorization == "Bearer good") {
    return absl::OkStatus();
  }
  return request.authorization == "Bearer worker" ? absl::PermissionDeniedError("role")
                                                  : absl::UnauthenticatedError("token");
}

// The status of the refusal; 200: it is let through.
int Ask(const HttpAccessOptions& options,
        const std::string& path,
        const std::string& host,
        const std::string& authorization = "") {
  metrics::HttpRequest request{.path = path, .query = "", .host = host};
  request.authorization = authorization;
  const auto refusal = MakeHttpGuard(options, &Admit)(request);
  return refusal.has_value() ? refusal->status : 200;
}

TEST(HttpAccessTest, OnLoopback_TheRequestNamesThisMachine) {
  const HttpAccessOptions options = {.hosts = {"Hearth.example"}};
  for (const std::string host : {"127.0.0.1:7071", "localhost", "LOCALHOST:7071", "[::1]:7071",
                                 "[::1]", "hearth.example", "hearth.example:443", ""}) {
    EXPECT_EQ(Ask(options, "/", host), 200) << host;
    EXPECT_EQ(Ask(options, "/api/v1/jobs", host), 200) << host;
  }
  for (const std::string host :
       {"attacker.example:7071", "10.0.0.1", "localhost.example", "[::2]"}) {
    EXPECT_EQ(Ask(options, "/", host), 421) << host;
    EXPECT_EQ(Ask(options, "/api/v1/jobs", host), 421) << host;
    EXPECT_EQ(Ask(options, "/metrics", host), 421) << host;
    EXPECT_EQ(Ask(options, "/healthz", host), 200) << host;
  }
}

TEST(HttpAccessTest, BeyondLoopback_AReaderNeedsAToken) {
  const HttpAccessOptions options = {.loopback = false};
  for (const std::string path : {"/", "/app.js", "/api/v1/jobs", "/metrics", "/sd/workers"}) {
    EXPECT_EQ(Ask(options, path, "lab:7071"), 401) << path;
    EXPECT_EQ(Ask(options, path, "lab:7071", "Bearer bad"), 401) << path;
    EXPECT_EQ(Ask(options, path, "lab:7071", "Bearer worker"), 403) << path;
    EXPECT_EQ(Ask(options, path, "lab:7071", "Bearer good"), 200) << path;
  }
  EXPECT_EQ(Ask(options, "/healthz", "lab:7071"), 200);
}

TEST(HttpAccessTest, Metrics_AreOpenByChoice) {
  const HttpAccessOptions options = {.loopback = false, .open_metrics = true};
  EXPECT_EQ(Ask(options, "/metrics", "lab:7071"), 200);
  EXPECT_EQ(Ask(options, "/sd/workers", "lab:7071"), 200);
  EXPECT_EQ(Ask(options, "/api/v1/jobs", "lab:7071"), 401);
  EXPECT_EQ(Ask({.loopback = false, .no_auth = true}, "/api/v1/jobs", "lab:7071"), 200);
}

TEST(HttpAccessTest, ARefusal_AsksTheBrowserForAPassword) {
  const auto refusal =
      MakeHttpGuard({.loopback = false}, &Admit)(metrics::HttpRequest{.path = "/", .query = ""});
  ASSERT_TRUE(refusal.has_value());
  ASSERT_EQ(refusal->headers.size(), 1u);
  EXPECT_EQ(refusal->headers[0].first, "WWW-Authenticate");
}

}  // namespace
}  // namespace hearth::coordinator
