#include "common/metrics/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/metrics/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::metrics {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

void Say(int fd, const std::string& text) {
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// All that comes until the server closes.
std::string Rest(int fd) {
  std::string out;
  char buffer[4096];
  ssize_t got;
  while ((got = read(fd, buffer, sizeof(buffer))) > 0) {
    out.append(buffer, static_cast<size_t>(got));
  }
  return out;
}

// The whole answer, head and body.
std::string Ask(int port, const std::string& method, const std::string& target) {
  const int fd = Connect(port);
  Say(fd, absl::StrCat(method, " ", target,
                       " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  std::string out = Rest(fd);
  close(fd);
  return out;
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    process_ = std::make_unique<ProcessMetrics>("prog");
    auto server = HttpServer::Start(
        "127.0.0.1:0",
        {{"/metrics",
          [this](const HttpRequest&) {
            return HttpResponse{200, std::string(kTextContentType), Serialize({process_.get()})};
          }},
         {"/echo",
          [](const HttpRequest& request) {
            return HttpResponse{503, "text/plain", request.path + "|" + request.query};
          }},
         {"/tree/*",
          [](const HttpRequest& request) {
            return HttpResponse{200, "text/plain", "tree " + request.path, {{"X-Extra", "1"}}};
          }},
         {"/tree/deep/*", [](const HttpRequest& request) {
            return HttpResponse{400, "text/plain", "deep " + request.path};
          }}});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::unique_ptr<ProcessMetrics> process_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, Get_Metrics_IsTextFormat) {
  const std::string answer = Ask(server_->port(), "GET", "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\n# TYPE process_cpu_seconds_total counter\n"));
  EXPECT_THAT(answer, HasSubstr("hearth_build_info{"));
}

TEST_F(HttpServerTest, Get_WithQuery_PassesPathQueryAndStatus) {
  const std::string answer = Ask(server_->port(), "GET", "/echo?a=1&b=2");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\n/echo|a=1&b=2"));
}

TEST_F(HttpServerTest, Get_UnknownPath_Is404) {
  EXPECT_THAT(Ask(server_->port(), "GET", "/nowhere"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(server_->port(), "GET", "/metrics/below"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(server_->port(), "GET", "/"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(HttpServerTest, Get_BelowAStar_GoesToTheLongestOne) {
  const std::string answer = Ask(server_->port(), "GET", "/tree/a/b");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Extra: 1\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\ntree /tree/a/b"));
  EXPECT_THAT(Ask(server_->port(), "GET", "/tree/deep/a"), StartsWith("HTTP/1.1 400 Bad Request"));
  EXPECT_THAT(Ask(server_->port(), "GET", "/tree"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(server_->port(), "GET", "/trees/a"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(HttpServerTest, Head_Metrics_HasNoBody) {
  const std::string answer = Ask(server_->port(), "HEAD", "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("# TYPE")));
}

TEST_F(HttpServerTest, Post_Metrics_Is405) {
  EXPECT_THAT(Ask(server_->port(), "POST", "/metrics"), StartsWith("HTTP/1.1 405 "));
}

TEST_F(HttpServerTest, Start_PortTaken_IsUnavailableAndSaysWhere) {
  const std::string address = absl::StrCat("127.0.0.1:", server_->port());
  const absl::Status status = HttpServer::Start(address, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

TEST_F(HttpServerTest, StartOnFreePort_FirstTaken_TakesALaterOne) {
  const auto second = HttpServer::StartOnFreePort("127.0.0.1", server_->port(), 50, {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GT((*second)->port(), server_->port());
}

TEST_F(HttpServerTest, Get_InPieces_IsAnswered) {
  const int fd = Connect(server_->port());
  for (const char* piece : {"GET /ec", "ho?a HTTP/1.1\r", "\nHost: x\r\n", "\r\n"}) {
    Say(fd, piece);
  }
  EXPECT_THAT(Rest(fd), HasSubstr("\r\n\r\n/echo|a"));
  close(fd);
}

TEST_F(HttpServerTest, Nonsense_EndsTheConnection) {
  const int fd = Connect(server_->port());
  Say(fd, "\x16\x03\x01\r\n\r\n");
  EXPECT_EQ(Rest(fd), "");
  close(fd);
}

TEST_F(HttpServerTest, BadPathOrLongHead_IsRefused) {
  EXPECT_THAT(Ask(server_->port(), "GET", "nowhere"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(server_->port(), "GET", "/tree/%0a"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(server_->port(), "GET", "/tree/%C2%B5%20m"), HasSubstr("tree /tree/\u00b5 m"));
  EXPECT_THAT(Ask(server_->port(), "GET", "/echo?" + std::string(64 << 10, 'x')),
              StartsWith("HTTP/1.1 4"));
}

// With too many connections, those that keep us waiting for their request go, the oldest first;
// every request is answered.
TEST(HttpServer, HalfOpenRequests_MakeRoomForWholeOnes) {
  auto server = HttpServer::Start("127.0.0.1:0",
                                  {{"/healthz",
                                    [](const HttpRequest&) {
                                      return HttpResponse{200, "text/plain", "ok"};
                                    }}},
                                  {.head = absl::Hours(1), .connections = 4});
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<int> half_open;
  for (int i = 0; i < 20; ++i) {
    half_open.push_back(Connect((*server)->port()));
    Say(half_open.back(), "GET /healthz HTTP/1.1\r\n");
    EXPECT_THAT(Ask((*server)->port(), "GET", "/healthz"), HasSubstr("ok")) << i;
  }
  EXPECT_EQ(Rest(half_open.front()), "") << "it made room";
  for (const int fd : half_open) {
    close(fd);
  }
}

TEST(HttpServer, HalfOpenRequest_EndsAtItsDeadline) {
  auto server = HttpServer::Start("127.0.0.1:0", {}, {.head = absl::Milliseconds(10)});
  ASSERT_TRUE(server.ok()) << server.status();
  const int fd = Connect((*server)->port());
  Say(fd, "GET / HTTP/1.1\r\n");
  EXPECT_EQ(Rest(fd), "");
  close(fd);
}

// Pages whose handlers take long, and clients that do not read, keep no probe waiting.
TEST(HttpServer, BusyHandlersAndDeafClients_HealthzAnswers) {
  absl::Notification release;
  const std::string large(32 << 20, 'x');
  auto server = HttpServer::Start("127.0.0.1:0", {{"/healthz",
                                                   [](const HttpRequest&) {
                                                     return HttpResponse{200, "text/plain", "ok"};
                                                   }},
                                                  {"/metrics",
                                                   [&](const HttpRequest&) {
                                                     return HttpResponse{200, "text/plain", large};
                                                   }},
                                                  {"/slow", [&](const HttpRequest&) {
                                                     release.WaitForNotification();
                                                     return HttpResponse{200, "text/plain", "slow"};
                                                   }}});
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<int> fds;
  for (int i = 0; i < 8; ++i) {
    fds.push_back(Connect((*server)->port()));
    Say(fds.back(), i % 2 == 0 ? "GET /slow HTTP/1.1\r\n\r\n" : "GET /metrics HTTP/1.1\r\n\r\n");
  }
  EXPECT_THAT(Ask((*server)->port(), "GET", "/healthz"), HasSubstr("ok"));
  release.Notify();
  EXPECT_THAT(Rest(fds[0]), HasSubstr("slow"));
  EXPECT_EQ(Ask((*server)->port(), "GET", "/metrics").size() >> 20, 32u);
  for (const int fd : fds) {
    close(fd);
  }
}

TEST(HttpServer, Start_MalformedAddress_IsInvalidArgument) {
  for (const char* bad : {"", "localhost", "127.0.0.1:x", "127.0.0.1:70000", "127.0.0.1:-1"}) {
    EXPECT_EQ(HttpServer::Start(bad, {}).status().code(), absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

}  // namespace
}  // namespace hearth::metrics
