#include "coordinator/service/identity/sessions.h"

#include <utility>

namespace hearth::coordinator {

void Sessions::Add(TokenPtr token, End end) {
  absl::MutexLock lock(&mu_);
  sessions_.push_back({std::move(token), std::move(end)});
}

void Sessions::Check(absl::Duration now, const Judge& judge) {
  std::list<Session> all;
  {
    absl::MutexLock lock(&mu_);
    if (now - checked_ < kEvery) {
      return;
    }
    checked_ = now;
    all.swap(sessions_);
  }
  // Outside the lock: ending a stream may start another.
  all.remove_if([&judge](const Session& session) {
    const absl::Status valid = judge(session.token);
    return !session.end(valid) || !valid.ok();
  });
  absl::MutexLock lock(&mu_);
  sessions_.splice(sessions_.end(), all);
}

size_t Sessions::size() const {
  absl::MutexLock lock(&mu_);
  return sessions_.size();
}

}  // namespace hearth::coordinator
