// Open streams, each with the token that opened it: a stream ends when its token expires or is
// revoked.
#pragma once

#include <functional>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "coordinator/service/identity/identity_view.h"

namespace hearth::coordinator {

// Thread-safe.
class Sessions {
 public:
  static constexpr absl::Duration kEvery = absl::Seconds(1);

  // Ends the stream if it still runs; returns whether it does.
  using End = std::function<bool(const absl::Status&)>;
  // As Gate::StillValid.
  using Judge = std::function<absl::Status(const TokenPtr&)>;

  // `end` with OK only asks whether the stream still runs.
  void Add(TokenPtr token, End end) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the streams whose token `judge` refuses; looks once in kEvery at most.
  void Check(absl::Duration now, const Judge& judge) ABSL_LOCKS_EXCLUDED(mu_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Session {
    TokenPtr token;
    End end;
  };
  mutable absl::Mutex mu_;
  std::list<Session> sessions_ ABSL_GUARDED_BY(mu_);
  absl::Duration checked_ ABSL_GUARDED_BY(mu_) = -absl::InfiniteDuration();
};

}  // namespace hearth::coordinator
