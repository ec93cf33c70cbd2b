// A key-value space within another, for ranks that meet more than once: keys are written once.
#pragma once

#include <string>
#include <utility>

#include "worker/trainer/comm/rendezvous/key_value_store.h"

namespace hearth::trainer {

class PrefixedStore : public KeyValueStore {
 public:
  // `store` outlives it.
  PrefixedStore(KeyValueStore& store, std::string prefix)
      : store_(store), prefix_(std::move(prefix)) {}

  absl::Status Put(std::string_view key, std::string_view value) override {
    return store_.Put(prefix_ + std::string(key), value);
  }
  absl::StatusOr<std::string> Wait(std::string_view key, absl::Duration timeout) override {
    return store_.Wait(prefix_ + std::string(key), timeout);
  }

 private:
  KeyValueStore& store_;
  const std::string prefix_;
};

}  // namespace hearth::trainer
