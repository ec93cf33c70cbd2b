#include "worker/daemon/supervise/key_waits.h"

#include <utility>

namespace hearth::worker {

void KeyWaits::Add(const std::string& key) {
  waiting_.insert(key);
  to_ask_.insert(key);
}

std::optional<std::string> KeyWaits::TakeToAsk() {
  if (to_ask_.empty()) {
    return std::nullopt;
  }
  return std::move(to_ask_.extract(to_ask_.begin()).value());
}

bool KeyWaits::Answer(const std::string& key) {
  to_ask_.erase(key);
  return waiting_.erase(key) > 0;
}

void KeyWaits::Clear() {
  waiting_.clear();
  to_ask_.clear();
}

}  // namespace hearth::worker
