// One attempt to send a notification with HTTP POST.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace hearth::coordinator {

// Value of the header Hearth-Signature: "t=1764194400,v1=<hex>", the HMAC-SHA256 with `secret` of
// the time in seconds since 1970, a '.' and the body. A receiver refuses old times, so that nobody
// can send a body again that they have overheard.
std::string WebhookSignature(const std::string& secret, absl::Time time, const std::string& body);

struct WebhookOptions {
  std::string secret;  // empty = bodies are not signed
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration timeout = absl::Seconds(10);
  int64_t response_bytes_max = 64 << 10;  // read of an answer, and thrown away
};

// Blocks for at most the timeout, or until `stop` is true. OK: the receiver answered 2xx. Speaks
// http and https alone, whatever the URL says, and follows no redirect. kAborted: stopped;
// kUnavailable: anything else, in words that hold nothing of the answer but its status.
// Thread-safe.
absl::Status PostWebhook(const WebhookOptions& options,
                         const std::string& url,
                         const std::string& id,
                         const std::string& body,
                         absl::Time now,
                         const std::atomic<bool>& stop);

}  // namespace hearth::coordinator
