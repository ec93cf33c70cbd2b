// Streams that are open, each with whom it was opened for: they end when that token does.
#pragma once

#include <functional>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hearth/v1/identity.pb.h"

namespace hearth::coordinator {

// Thread-safe.
class Sessions {
 public:
  static constexpr absl::Duration kEvery = absl::Seconds(1);

  // Ends the stream if it still runs; returns whether it does.
  using End = std::function<bool(const absl::Status&)>;
  // OK: as Gate::StillValid.
  using Judge = std::function<absl::Status(const v1::Caller&)>;

  // `end` with OK only asks whether the stream still runs.
  void Add(v1::Caller caller, End end) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the streams whose caller `judge` refuses; looks once in kEvery at most.
  void Check(absl::Duration now, const Judge& judge) ABSL_LOCKS_EXCLUDED(mu_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Session {
    v1::Caller caller;
    End end;
  };
  mutable absl::Mutex mu_;
  std::list<Session> sessions_ ABSL_GUARDED_BY(mu_);
  absl::Duration checked_ ABSL_GUARDED_BY(mu_) = -absl::InfiniteDuration();
};

}  // namespace hearth::coordinator
