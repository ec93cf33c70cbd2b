// The open connections of an HTTP server: what each waits for and until when. Ends those that are
// late or too many, so that no client can block or fill the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics/http_server.h"

namespace hearth::metrics {

// Bytes of all answers that wait for their clients; above this the oldest connections end.
inline constexpr size_t kUnsentBytesMax = 64 << 20;

// Thread-safe. A connection is ended by shutdown(2) of its socket, which its owner then closes.
class HttpConnections {
 public:
  // In the order in which they make room: a client that does not finish its request first.
  enum class Waits {
    kForRequest,  // until HttpLimits::head
    kForClient,   // to take its answer, until HttpLimits::write
    kForHandler   // as long as it takes; never ended
  };

  explicit HttpConnections(const HttpLimits& limits);
  ~HttpConnections();
  HttpConnections(const HttpConnections&) = delete;
  HttpConnections& operator=(const HttpConnections&) = delete;

  // A connection that waits for its request, on a socket that stays open until Closed. If there are
  // more than HttpLimits::connections, the oldest makes room. Returns its id, > 0.
  uintptr_t Opened(int fd) ABSL_LOCKS_EXCLUDED(mu_);
  // `unsent_bytes`: of its answer, with kForClient.
  void Set(uintptr_t id, Waits waits, size_t unsent_bytes = 0) ABSL_LOCKS_EXCLUDED(mu_);
  void Closed(uintptr_t id) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Connection {
    int fd = -1;
    Waits waits = Waits::kForRequest;
    absl::Duration deadline = absl::InfiniteDuration();
    size_t unsent_bytes = 0;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void EndOldest(Waits waits) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LimitUnsent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends what is late and returns the next deadline.
  absl::Duration EndLate(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const HttpLimits limits_;
  absl::Mutex mu_;
  absl::CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uintptr_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  // Not yet ended, in the order of arrival.
  std::map<uintptr_t, Connection> connections_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace hearth::metrics
