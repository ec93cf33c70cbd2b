#include "common/metrics/http_message.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::metrics {
namespace {

using testing::HasSubstr;
using testing::Not;
using State = ParsedHead::State;

TEST(HttpMessageTest, ParseHead_WholeRequest_GivesMethodPathAndQuery) {
  const ParsedHead head = ParseHead("GET /a%20b/c?x=1&y=%41 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(head.state, State::kComplete);
  EXPECT_EQ(head.method, "GET");
  EXPECT_EQ(head.request.path, "/a b/c");
  EXPECT_EQ(head.request.query, "x=1&y=%41");
  EXPECT_EQ(ParseHead("HEAD / HTTP/1.0\n\n").method, "HEAD");
}

TEST(HttpMessageTest, ParseHead_Unfinished_WaitsForMore) {
  for (const char* text : {"", "G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: h\r\n"}) {
    EXPECT_EQ(ParseHead(text).state, State::kIncomplete) << text;
  }
  EXPECT_EQ(ParseHead(std::string(kHeadBytesMax, 'x')).state, State::kIncomplete);
}

TEST(HttpMessageTest, ParseHead_Nonsense_IsBad) {
  for (const char* text :
       {"\r\n\r\n", "GET /\r\n\r\n", "GET x HTTP/1.1\r\n\r\n", "GET / FTP/1.1\r\n\r\n",
        "GET http://h/ HTTP/1.1\r\n\r\n", "GET /%4 HTTP/1.1\r\n\r\n", "GET /%zz HTTP/1.1\r\n\r\n",
        "GET /%00 HTTP/1.1\r\n\r\n", " GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1 more\r\n\r\n"}) {
    EXPECT_EQ(ParseHead(text).state, State::kBad) << text;
  }
  EXPECT_EQ(ParseHead(std::string(kHeadBytesMax + 1, 'x')).state, State::kBad);
  EXPECT_EQ(ParseHead("GET / HTTP/1.1\r\nX: " + std::string(kHeadBytesMax, 'x') + "\r\n\r\n").state,
            State::kBad);
}

TEST(HttpMessageTest, FormatResponse_HeadersLengthAndBody) {
  const HttpResponse response{404, "text/plain", "gone", {{"X-Extra", "1"}}};
  EXPECT_EQ(FormatResponse(response, true),
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n"
            "X-Extra: 1\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\ngone");
  EXPECT_THAT(FormatResponse(response, false), Not(HasSubstr("gone")));
  EXPECT_THAT(FormatResponse({405, "text/plain", ""}, true), HasSubstr("\r\nAllow: GET, HEAD\r\n"));
}

}  // namespace
}  // namespace hearth::metrics
