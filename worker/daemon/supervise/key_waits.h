// The keys that a trainer waits for until the coordinator answers.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace hearth::worker {

// Not thread-safe.
class KeyWaits {
 public:
  void Add(const std::string& key);
  // A new stream was opened: keys without an answer must be asked for again.
  void AskAgain() { to_ask_ = waiting_; }
  // The next key to ask for; each once per stream.
  std::optional<std::string> TakeToAsk();
  // False: nobody waits for the key.
  bool Answer(const std::string& key);
  void Clear();

 private:
  std::set<std::string> waiting_;
  std::set<std::string> to_ask_;  // of these, not asked for on this stream
};

}  // namespace hearth::worker
