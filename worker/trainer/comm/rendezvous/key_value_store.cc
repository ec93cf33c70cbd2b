#include "worker/trainer/comm/rendezvous/key_value_store.h"

#include "absl/strings/str_cat.h"

namespace hearth::trainer {

absl::Status LocalKeyValueStore::Put(std::string_view key, std::string_view value) {
  absl::MutexLock lock(&mu_);
  values_.insert_or_assign(std::string(key), std::string(value));
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalKeyValueStore::Wait(std::string_view key, absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto exists = [this, key]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return values_.find(key) != values_.end();
  };
  if (!clock_.AwaitWithTimeout(mu_, absl::Condition(&exists), timeout)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "key ", std::string(key), " did not appear within ", absl::FormatDuration(timeout)));
  }
  return values_.find(key)->second;
}

}  // namespace hearth::trainer
