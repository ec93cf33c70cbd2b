#include "coordinator/service/notify/webhook.h"

#include <curl/curl.h>

#include <memory>
#include <mutex>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/io/hmac.h"

namespace hearth::coordinator {
namespace {

struct Answer {
  int64_t left = 0;  // bytes that are still read
};

size_t Discard(char* /*data*/, size_t size, size_t count, void* user) {
  auto* answer = static_cast<Answer*>(user);
  answer->left -= static_cast<int64_t>(size * count);
  return answer->left >= 0 ? size * count : 0;  // 0 ends the transfer
}

int StopAsked(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(user)->load() ? 1 : 0;
}

// libcurl's global state, once per process and before its first handle.
void InitCurl() {
  static std::once_flag once;
  std::call_once(once, [] {
    HEARTH_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl starts");
  });
}

struct FreeHeaders {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, FreeHeaders>;

void AddHeader(Headers& headers, const std::string& line) {
  curl_slist* longer = curl_slist_append(headers.get(), line.c_str());
  HEARTH_CHECK(longer != nullptr, "there is memory for a header");
  static_cast<void>(headers.release());
  headers.reset(longer);
}

template <typename Value>
void Set(CURL* curl, CURLoption option, Value value) {
  const CURLcode code = curl_easy_setopt(curl, option, value);
  HEARTH_CHECK(code == CURLE_OK, curl_easy_strerror(code));
}

}  // namespace

std::string WebhookSignature(const std::string& secret, absl::Time time, const std::string& body) {
  const std::string stamp = absl::StrCat(absl::ToUnixSeconds(time));
  return absl::StrCat("t=", stamp, ",v1=",
                      absl::BytesToHexString(HmacSha256(secret, absl::StrCat(stamp, ".", body))));
}

absl::Status PostWebhook(const WebhookOptions& options,
                         const std::string& url,
                         const std::string& id,
                         const std::string& body,
                         absl::Time now,
                         const std::atomic<bool>& stop) {
  InitCurl();
  const std::unique_ptr<CURL, void (*)(CURL*)> handle(curl_easy_init(), &curl_easy_cleanup);
  CURL* curl = handle.get();
  HEARTH_CHECK(curl != nullptr, "libcurl has a handle");
  Headers headers;
  AddHeader(headers, "Content-Type: application/json");
  AddHeader(headers, "Expect:");  // no question before the body
  AddHeader(headers, absl::StrCat("Hearth-Notification: ", id));
  if (!options.secret.empty()) {
    AddHeader(headers,
              absl::StrCat("Hearth-Signature: ", WebhookSignature(options.secret, now, body)));
  }
  const std::string agent = absl::StrCat("hearth-coordinator/", std::string(Version()));
  Answer answer{options.response_bytes_max};
  Set(curl, CURLOPT_URL, url.c_str());
  // As it stands, so that it goes where notify's url_prefixes allow it.
  Set(curl, CURLOPT_PATH_AS_IS, 1L);
  Set(curl, CURLOPT_PROXY, "");  // whatever the environment says: bodies go to the receiver only
  Set(curl, CURLOPT_QUICK_EXIT, 1L);  // a lookup that hangs does not outlast the timeout
  Set(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  Set(curl, CURLOPT_FOLLOWLOCATION, 0L);
  Set(curl, CURLOPT_NOSIGNAL, 1L);  // signals belong to the process, and this is one of its threads
  Set(curl, CURLOPT_CONNECTTIMEOUT_MS,
      // NOLINTNEXTLINE(google-runtime-int): libcurl's type
      static_cast<long>(absl::ToInt64Milliseconds(options.connect_timeout)));
  Set(curl, CURLOPT_TIMEOUT_MS,
      static_cast<long>(absl::ToInt64Milliseconds(options.timeout)));  // NOLINT(google-runtime-int)
  Set(curl, CURLOPT_USERAGENT, agent.c_str());
  Set(curl, CURLOPT_HTTPHEADER, headers.get());
  Set(curl, CURLOPT_POST, 1L);
  Set(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  Set(curl, CURLOPT_POSTFIELDS, body.c_str());
  Set(curl, CURLOPT_WRITEFUNCTION, &Discard);
  Set(curl, CURLOPT_WRITEDATA, &answer);
  Set(curl, CURLOPT_NOPROGRESS, 0L);
  Set(curl, CURLOPT_XFERINFOFUNCTION, &StopAsked);
  Set(curl, CURLOPT_XFERINFODATA, const_cast<std::atomic<bool>*>(&stop));
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;  // NOLINT(google-runtime-int): libcurl's type
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (code == CURLE_ABORTED_BY_CALLBACK) {
    return absl::AbortedError("stopped");
  }
  // An answer longer than what is read is an answer all the same.
  const bool answered = code == CURLE_OK || (code == CURLE_WRITE_ERROR && answer.left < 0);
  if (!answered) {
    return absl::UnavailableError(curl_easy_strerror(code));
  }
  if (status < 200 || status > 299) {
    return absl::UnavailableError(
        absl::StrCat("the receiver answered ", status,
                     status >= 300 && status < 400 ? ", and redirects are not followed" : ""));
  }
  return absl::OkStatus();
}

}  // namespace hearth::coordinator
