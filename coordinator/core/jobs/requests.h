// Which requests were answered with which job, so that a call that is sent again changes nothing
// twice. Bounded by age and number; the oldest are forgotten first.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/core.h"

namespace hearth::coordinator {

// Not thread-safe.
class Requests {
 public:
  // What counts is CoreOptions::max_requests and request_ttl.
  explicit Requests(const CoreOptions& options) : options_(options) {}

  // All times are monotonic. Records have wall-clock times, which may have jumped since: what is
  // restored is kept for request_ttl from now on.
  void Restore(const std::vector<v1::RequestRecord>& records, absl::Duration now);
  // Null when it was not answered, or the answer is forgotten.
  const v1::RequestRecord* Find(const std::string& request_id) const;
  // Its request_id is new.
  void Remember(v1::RequestRecord record, absl::Duration now, Effects& effects);
  void Expire(absl::Duration now, Effects& effects);

 private:
  struct Known {
    std::string request_id;
    absl::Duration since;
  };

  const CoreOptions options_;
  std::map<std::string, v1::RequestRecord> requests_;  // by request_id
  std::deque<Known> order_;                            // oldest first
};

}  // namespace hearth::coordinator
