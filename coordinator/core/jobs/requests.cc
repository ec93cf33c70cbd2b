#include "coordinator/core/jobs/requests.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/errors.h"

namespace hearth::coordinator {

void Requests::Restore(const std::vector<v1::RequestRecord>& records, absl::Duration now) {
  for (const v1::RequestRecord& record : records) {
    requests_[record.request_id()] = record;
    // Ages count from this start, because monotonic times of an earlier process mean nothing here.
    // The order is that of the wall clock.
    order_.push_back({record.request_id(), now});
  }
  std::sort(order_.begin(), order_.end(), [this](const Known& a, const Known& b) {
    return FromProto(requests_[a.request_id].time()) < FromProto(requests_[b.request_id].time());
  });
}

const v1::RequestRecord* Requests::Find(const std::string& request_id) const {
  const auto it = requests_.find(request_id);
  return it == requests_.end() ? nullptr : &it->second;
}

void Requests::Remember(v1::RequestRecord record, absl::Duration now, Effects& effects) {
  order_.push_back({record.request_id(), now});
  requests_[record.request_id()] = record;
  effects.requests.push_back(std::move(record));
}

void Requests::Expire(absl::Duration now, Effects& effects) {
  while (!order_.empty() && (requests_.size() > options_.max_requests ||
                             now - order_.front().since >= options_.request_ttl)) {
    effects.request_deletes.push_back(order_.front().request_id);
    requests_.erase(order_.front().request_id);
    order_.pop_front();
  }
}

}  // namespace hearth::coordinator
