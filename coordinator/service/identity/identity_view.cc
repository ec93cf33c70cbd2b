#include "coordinator/service/identity/identity_view.h"

#include <algorithm>

namespace hearth::coordinator {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

absl::string_view Sv(std::string_view s) {
  return {s.data(), s.size()};
}

bool Matches(const v1::AuditRecord& record, const v1::ListAuditRequest& request) {
  const v1::Caller& caller = record.caller();
  return (request.before() == 0 || record.number() < request.before()) &&
         (request.user().empty() || caller.user() == request.user() ||
          caller.real_user() == request.user()) &&
         (request.target().empty() || record.target() == request.target()) &&
         (!request.refused_only() || IsRefusal(record));
}

template <typename Map>
TokenPtr FindIn(const Map& map, std::string_view key) {
  const auto found = map.find(Sv(key));
  return found == map.end() ? nullptr : found->second;
}

}  // namespace

void IdentityView::Load(const std::vector<v1::TokenRecord>& tokens,
                        const std::vector<v1::AuditRecord>& audit) {
  absl::MutexLock lock(&mu_);
  for (const v1::TokenRecord& record : tokens) {
    PutLocked(record);
  }
  for (const v1::AuditRecord& record : audit) {
    PutAuditLocked(record);
  }
}

void IdentityView::Apply(const Effects& effects) {
  if (effects.token_deletes.empty() && effects.token_puts.empty() && effects.audit.empty()) {
    return;
  }
  absl::MutexLock lock(&mu_);
  for (const std::string& name : effects.token_deletes) {
    RemoveLocked(name);
  }
  for (const v1::TokenRecord& record : effects.token_puts) {
    PutLocked(record);
  }
  for (const v1::AuditRecord& record : effects.audit) {
    PutAuditLocked(record);
  }
}

void IdentityView::PutLocked(const v1::TokenRecord& record) {
  RemoveLocked(record.token().name());  // an expired one may have had another secret
  const auto token = std::make_shared<const v1::Token>(record.token());
  tokens_[token->name()] = {token, record.secret_sha256()};
  if (!record.secret_sha256().empty()) {
    by_secret_[record.secret_sha256()] = token;
  }
  if (!token->certificate().empty()) {
    // The newest counts: one that has expired may stand for the same certificate.
    TokenPtr& newest = by_certificate_[token->certificate()];
    if (newest == nullptr || newest->create_time().seconds() <= token->create_time().seconds()) {
      newest = token;
    }
  }
}

void IdentityView::RemoveLocked(const std::string& name) {
  const auto found = tokens_.find(name);
  if (found == tokens_.end()) {
    return;
  }
  by_secret_.erase(found->second.sha256);
  // Another token may have taken over the certificate of one that has expired.
  const auto certificate = by_certificate_.find(found->second.token->certificate());
  if (certificate != by_certificate_.end() && certificate->second->name() == name) {
    by_certificate_.erase(certificate);
  }
  tokens_.erase(found);
}

void IdentityView::PutAuditLocked(const v1::AuditRecord& record) {
  const bool refusal = IsRefusal(record);
  std::deque<v1::AuditRecord>& kept = refusal ? refusals_ : audit_;
  kept.push_back(record);
  if (kept.size() > static_cast<size_t>(refusal ? kRefusalsShown : kAuditShown)) {
    kept.pop_front();
  }
}

TokenPtr IdentityView::FindSecret(std::string_view sha256) const {
  absl::ReaderMutexLock lock(&mu_);
  return FindIn(by_secret_, sha256);
}

TokenPtr IdentityView::FindCertificate(std::string_view common_name) const {
  absl::ReaderMutexLock lock(&mu_);
  return FindIn(by_certificate_, common_name);
}

TokenPtr IdentityView::Find(std::string_view name) const {
  absl::ReaderMutexLock lock(&mu_);
  const auto found = tokens_.find(name);
  return found == tokens_.end() ? nullptr : found->second.token;
}

std::vector<TokenPtr> IdentityView::All() const {
  absl::ReaderMutexLock lock(&mu_);
  std::vector<TokenPtr> out;
  out.reserve(tokens_.size());
  for (const auto& [name, entry] : tokens_) {
    out.push_back(entry.token);
  }
  return out;
}

v1::ListAuditResponse IdentityView::Audit(const v1::ListAuditRequest& request) const {
  const int size =
      request.page_size() <= 0 ? kDefaultPageSize : std::min(request.page_size(), kMaxPageSize);
  v1::ListAuditResponse response;
  absl::ReaderMutexLock lock(&mu_);
  // Both are in order; the newer of the two heads comes next.
  auto change = audit_.rbegin();
  auto refusal = refusals_.rbegin();
  while (change != audit_.rend() || refusal != refusals_.rend()) {
    const bool from_refusals = change == audit_.rend() || (refusal != refusals_.rend() &&
                                                           refusal->number() > change->number());
    const v1::AuditRecord& record = from_refusals ? *refusal++ : *change++;
    if (!Matches(record, request)) {
      continue;
    }
    if (response.records_size() == size) {
      response.set_next_before(response.records(size - 1).number());
      break;
    }
    *response.add_records() = record;
  }
  return response;
}

}  // namespace hearth::coordinator
