#include "coordinator/core/identity/tokens.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "coordinator/core/errors.h"

namespace hearth::coordinator {
namespace {

bool HasExpired(const v1::Token& token, absl::Time now) {
  return token.has_expire_time() && FromProto(token.expire_time()) <= now;
}

absl::Status BadToken(const std::string& field, const std::string& problem) {
  return MakeError(absl::StatusCode::kInvalidArgument, "BAD_TOKEN",
                   absl::StrCat(field, ": ", problem), {{"field", field}});
}

// At least a second, and at most a date that calendars have.
absl::Status CheckExpiry(absl::Duration expires_in) {
  const bool good = expires_in == absl::InfiniteDuration() ||
                    (expires_in >= absl::Seconds(1) && expires_in <= absl::Hours(24 * 36525));
  return good ? absl::OkStatus() : BadToken("expires_in", "from 1 second to 100 years");
}

absl::Status CheckToken(const v1::Token& token) {
  if (const absl::Status valid = ValidateUserName(token.name()); !valid.ok()) {
    return BadToken("name", std::string(valid.message()));
  }
  if (token.name() == "local") {
    return BadToken("name", "\"local\" is the coordinator's own token for its machine");
  }
  const bool worker = token.role() == v1::ROLE_WORKER;
  if (token.role() == v1::ROLE_UNSPECIFIED) {
    return BadToken("role", "viewer, operator, admin or worker");
  }
  if (worker) {
    const absl::Status valid = ValidateWorkerId(token.worker_id());
    return valid.ok() ? valid
                      : BadToken("worker_id", "a worker's token names the worker that uses it");
  }
  if (!token.worker_id().empty()) {
    return BadToken("worker_id", "only tokens of the role worker have one");
  }
  const absl::Status valid = ValidateUserName(token.user());
  return valid.ok() ? valid : BadToken("user", std::string(valid.message()));
}

}  // namespace

void Tokens::Restore(const std::vector<v1::TokenRecord>& records) {
  for (const v1::TokenRecord& record : records) {
    tokens_[record.token().name()] = record;
  }
}

absl::StatusOr<v1::Token> Tokens::Create(const CreateToken& command,
                                         absl::Time now,
                                         Effects& effects) {
  HEARTH_RETURN_IF_ERROR(CheckExpiry(command.expires_in));
  v1::TokenRecord record;
  v1::Token& token = *record.mutable_token();
  token = command.token;
  *token.mutable_create_time() = ToProto(now);
  if (command.expires_in < absl::InfiniteDuration()) {
    *token.mutable_expire_time() = ToProto(now + command.expires_in);
  }
  record.set_secret_sha256(command.secret_sha256);
  HEARTH_RETURN_IF_ERROR(CheckToken(token));
  // One living token a name and a certificate: whoever revokes it must know that nothing else
  // stands for it.
  for (const auto& [name, other] : tokens_) {
    const bool same_certificate =
        !token.certificate().empty() && other.token().certificate() == token.certificate();
    if ((name == token.name() || same_certificate) && !HasExpired(other.token(), now)) {
      return MakeError(
          absl::StatusCode::kAlreadyExists, "TOKEN_EXISTS",
          absl::StrCat("there is a token ", name, same_certificate ? " for this certificate" : "",
                       "; revoke it first"),
          {{"name", name}});
    }
  }
  if (tokens_.size() >= kMost) {
    return MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_TOKENS",
                     absl::StrCat(kMost, " tokens are kept, which is the limit; revoke some"));
  }
  tokens_[token.name()] = record;
  effects.token_puts.push_back(record);
  return token;
}

absl::StatusOr<v1::Token> Tokens::Revoke(const std::string& name, Effects& effects) {
  const auto found = tokens_.find(name);
  if (found == tokens_.end()) {
    return MakeError(absl::StatusCode::kNotFound, "TOKEN_NOT_FOUND",
                     absl::StrCat("no token ", name), {{"name", name}});
  }
  v1::Token token = std::move(*found->second.mutable_token());
  tokens_.erase(found);
  effects.token_deletes.push_back(name);
  return token;
}

void Tokens::Expire(absl::Time now, Effects& effects) {
  for (auto it = tokens_.begin(); it != tokens_.end();) {
    if (HasExpired(it->second.token(), now - kKeepExpired)) {
      effects.token_deletes.push_back(it->first);
      it = tokens_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace hearth::coordinator
