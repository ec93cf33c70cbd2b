// What the gate and ListTokens and ListAudit read: tokens and the newest audit records as of the
// last commit.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "coordinator/core/core.h"
#include "hearth/v1/identity.pb.h"

namespace hearth::coordinator {

using TokenPtr = std::shared_ptr<const v1::Token>;

// Thread-safe. Load and Apply belong to the event loop.
class IdentityView {
 public:
  void Load(const std::vector<v1::TokenRecord>& tokens, const std::vector<v1::AuditRecord>& audit)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Apply(const Effects& effects) ABSL_LOCKS_EXCLUDED(mu_);

  // By the 32 bytes of the SHA-256 of what the caller sent; null when there is none. It may have
  // expired. A lookup by hash tells an attacker nothing by its time.
  TokenPtr FindSecret(std::string_view sha256) const ABSL_LOCKS_EXCLUDED(mu_);
  // By a client certificate's common name.
  TokenPtr FindCertificate(std::string_view common_name) const ABSL_LOCKS_EXCLUDED(mu_);
  // Finds a token by its name.
  TokenPtr Find(std::string_view name) const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<TokenPtr> All() const ABSL_LOCKS_EXCLUDED(mu_);  // ordered by name
  v1::ListAuditResponse Audit(const v1::ListAuditRequest& request) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    TokenPtr token;
    std::string sha256;
  };
  void PutLocked(const v1::TokenRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutAuditLocked(const v1::AuditRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  std::map<std::string, Entry, std::less<>> tokens_ ABSL_GUARDED_BY(mu_);  // by name
  absl::flat_hash_map<std::string, TokenPtr> by_secret_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, TokenPtr> by_certificate_ ABSL_GUARDED_BY(mu_);
  // Oldest first.
  std::deque<v1::AuditRecord> audit_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::AuditRecord> refusals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace hearth::coordinator
