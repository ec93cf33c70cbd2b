// Delivers notifications, on threads of its own: no receiver keeps the event loop waiting.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "coordinator/core/core.h"
#include "coordinator/core/jobs/notifications.h"
#include "coordinator/service/notify/notify_config.h"
#include "coordinator/service/notify/webhook.h"

namespace hearth::coordinator {

struct NotifierOptions {
  NotifySettings settings;
  WebhookOptions webhook;  // its secret is that of the settings
  absl::Duration command_timeout = absl::Seconds(30);
  // What Stop waits for deliveries that are under way.
  absl::Duration stop_grace = absl::Seconds(3);
  // Started as they are needed. One for each delivery that the core hands out: a receiver that
  // hangs keeps no other one waiting.
  int threads_max = static_cast<int>(kDeliveriesMax);
};

// Thread-safe.
class Notifier {
 public:
  // Called on a thread of the Notifier's, or on that of Send; must not block.
  using Done = std::function<void(const DeliveryRequest&, const absl::Status&)>;

  // `clock` outlives this.
  Notifier(const NotifierOptions& options, Clock& clock, Done done);
  ~Notifier();

  // Does not block. `done` is called once with what came of it, unless Stop comes first: then
  // nothing is said, and the core hands the request out again after the next start. Fails at once
  // if kDeliveriesMax are there, or if there is no thread and none can be started.
  void Send(DeliveryRequest request) ABSL_LOCKS_EXCLUDED(mu_);
  // Drops what has not begun, lets what has begun end within the grace, and joins the threads.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Whether a thread that is there or was started will take one more.
  bool HasThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Deliver(const DeliveryRequest& request);
  absl::Status Tell(const DeliveryRequest& request);
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !queue_.empty(); }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return under_way_ == 0; }

  NotifierOptions options_;
  Clock& clock_;
  const Done done_;
  std::atomic<bool> abort_{false};

  absl::Mutex mu_;
  std::deque<DeliveryRequest> queue_ ABSL_GUARDED_BY(mu_);
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
