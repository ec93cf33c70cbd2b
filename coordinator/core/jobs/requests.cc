#include "coordinator/core/jobs/requests.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/errors.h"

namespace hearth::coordinator {

void Requests::Restore(const std::vector<v1::RequestRecord>& records) {
  for (const v1::RequestRecord& record : records) {
    requests_[record.request_id()] = record;
    order_.push_back(record.request_id());
  }
  std::sort(order_.begin(), order_.end(), [this](const std::string& a, const std::string& b) {
    return FromProto(requests_[a].time()) < FromProto(requests_[b].time());
  });
}

const v1::RequestRecord* Requests::Find(const std::string& request_id) const {
  const auto it = requests_.find(request_id);
  return it == requests_.end() ? nullptr : &it->second;
}

void Requests::Remember(v1::RequestRecord record, Effects& effects) {
  order_.push_back(record.request_id());
  requests_[record.request_id()] = record;
  effects.requests.push_back(std::move(record));
}

void Requests::Expire(absl::Time now, Effects& effects) {
  while (!order_.empty()) {
    const auto oldest = requests_.find(order_.front());
    if (oldest != requests_.end()) {
      if (requests_.size() <= options_.max_requests &&
          now - FromProto(oldest->second.time()) < options_.request_ttl) {
        break;
      }
      effects.request_deletes.push_back(oldest->first);
      requests_.erase(oldest);
    }
    order_.pop_front();
  }
}

}  // namespace hearth::coordinator
