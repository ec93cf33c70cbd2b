// The tokens that callers may have. The gate finds out who a call is from before it comes here
// (service/identity/gate.h); this part only keeps the records.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/core/core.h"

namespace hearth::coordinator {

// Not thread-safe. Expiry is a date that an admin chose, so all times here are wall-clock times.
class Tokens {
 public:
  static constexpr size_t kMost = 10'000;
  // An expired token stays in the list for this long.
  static constexpr absl::Duration kKeepExpired = absl::Hours(24 * 30);

  void Restore(const std::vector<v1::TokenRecord>& records);

  // kInvalidArgument: name, user, role, worker or certificate; kAlreadyExists: a token with this
  // name or certificate has not expired; kResourceExhausted: kMost tokens.
  absl::StatusOr<v1::Token> Create(const CreateToken& command, absl::Time now, Effects& effects);
  // kNotFound.
  absl::StatusOr<v1::Token> Revoke(const std::string& name, Effects& effects);
  // Forgets what expired long ago.
  void Expire(absl::Time now, Effects& effects);

 private:
  std::map<std::string, v1::TokenRecord> tokens_;  // by name
};

}  // namespace hearth::coordinator
