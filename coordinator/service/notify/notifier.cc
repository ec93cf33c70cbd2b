#include "coordinator/service/notify/notifier.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "coordinator/service/notify/notify_command.h"

namespace hearth::coordinator {

Notifier::Notifier(const NotifierOptions& options, Clock& clock, Done done)
    : options_(options), clock_(clock), done_(std::move(done)) {
  options_.webhook.secret = options_.settings.secret;
}

Notifier::~Notifier() {
  Stop();
}

void Notifier::Send(DeliveryRequest request) {
  const char* refusal = "too many notifications are under way";
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) {
      return;
    }
    if (queue_.size() < kDeliveriesMax) {
      if (HasThread()) {
        queue_.push_back(std::move(request));
        return;
      }
      refusal = "no thread can be started for it";
    }
  }
  done_(request, absl::ResourceExhaustedError(refusal));
}

bool Notifier::HasThread() {
  const size_t at_work = static_cast<size_t>(under_way_) + queue_.size() + 1;
  if (threads_.size() >= std::min(at_work, static_cast<size_t>(options_.threads_max))) {
    return true;
  }
  try {
    threads_.emplace_back([this] {
      pthread_setname_np(pthread_self(), "hearth-notify");
      Run();
    });
  } catch (const std::system_error&) {
    // The machine gives no more: one that is there takes it when it is free.
    return !threads_.empty();
  }
  return true;
}

void Notifier::Stop() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    queue_.clear();
    // The real clock: receivers answer in real time, whatever the coordinator runs on.
    Clock::Real().AwaitWithTimeout(mu_, absl::Condition(this, &Notifier::Idle),
                                   options_.stop_grace);
    threads.swap(threads_);  // none is added any more
  }
  abort_ = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void Notifier::Run() {
  while (true) {
    DeliveryRequest request;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &Notifier::Ready));
      if (queue_.empty()) {
        return;
      }
      request = std::move(queue_.front());
      queue_.pop_front();
      ++under_way_;
    }
    const absl::Status status = Deliver(request);
    // What was stopped was not tried.
    if (!absl::IsAborted(status)) {
      done_(request, status);
    }
    absl::MutexLock lock(&mu_);
    --under_way_;
  }
}

absl::Status Notifier::Deliver(const DeliveryRequest& request) {
  HEARTH_RETURN_IF_ERROR(fault::Check("notify.send"));
  HEARTH_RETURN_IF_ERROR(Tell(request));
  return fault::Check("notify.answer");
}

absl::Status Notifier::Tell(const DeliveryRequest& request) {
  if (!request.url.empty()) {
    return PostWebhook(options_.webhook, request.url, request.id, request.body, clock_.Now(),
                       abort_);
  }
  // The configuration may have changed since the job was submitted.
  const auto found = options_.settings.commands.find(request.command);
  if (found == options_.settings.commands.end()) {
    return absl::NotFoundError(
        absl::StrCat("no command ", request.command, " is configured at the coordinator"));
  }
  return RunNotifyCommand(found->second, request.body, options_.command_timeout, abort_);
}

}  // namespace hearth::coordinator
