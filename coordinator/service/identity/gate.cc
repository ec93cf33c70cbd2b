#include "coordinator/service/identity/gate.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clip_text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "common/io/sha256.h"
#include "common/rpc/bearer.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer.h"
#include "coordinator/core/errors.h"
#include "coordinator/service/checks/limits.h"
#include "coordinator/service/identity/authorization.h"
#include "google/protobuf/reflection.h"
#include "grpc/grpc_security_constants.h"

namespace hearth::coordinator {
namespace {

constexpr double kRefusalsPerSecond = 1;
constexpr double kRefusalsBurst = 50;

std::string Sha256Of(std::string_view text) {
  Sha256 hash;
  hash.Update(text);
  const std::array<uint8_t, 32> digest = hash.Finish();
  return {digest.begin(), digest.end()};
}

// The value of a key that may be there once; "" when it is not.
absl::StatusOr<std::string> OneValue(const grpc::CallbackServerContext& context, const char* key) {
  const auto [first, last] = context.client_metadata().equal_range(key);
  if (first == last) {
    return "";
  }
  if (std::distance(first, last) > 1 || first->second.empty()) {
    return Unauthenticated("BAD_TOKEN",
                           absl::StrCat("the call needs one \"", key, "\" that is not empty"));
  }
  return std::string(first->second.data(), first->second.size());
}

// The common name of a client certificate that our CA has signed; "" when there is none.
std::string CertificateName(const grpc::CallbackServerContext& context) {
  const auto auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) {
    return "";
  }
  const auto names = auth->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  return names.size() == 1 ? std::string(names.front().data(), names.front().size()) : "";
}

// The text of a field, of a repeated one joined by commas; "" when there is no such field.
std::string TextField(const google::protobuf::Message& message, const char* name) {
  const google::protobuf::FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
    return "";
  }
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  return field->is_repeated()
             ? absl::StrJoin(reflection.GetRepeatedFieldRef<std::string>(message, field), ",")
             : reflection.GetString(message, field);
}

absl::Status CheckExpiry(const v1::Token& token, absl::Time now) {
  if (!token.has_expire_time() || FromProto(token.expire_time()) > now) {
    return absl::OkStatus();
  }
  return Unauthenticated(
      "TOKEN_EXPIRED",
      absl::StrCat("the token ", token.name(), " expired at ",
                   absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", FromProto(token.expire_time()),
                                    absl::UTCTimeZone())));
}

// Operators change their own jobs. A job that is not there is the answer of the call itself.
absl::Status CheckOwner(const Origin& origin, const v1::JobRecord* job) {
  if (!origin.own_job || origin.caller.role() != v1::ROLE_OPERATOR || job == nullptr ||
      job->job().owner() == origin.caller.user()) {
    return absl::OkStatus();
  }
  const std::string& owner = job->job().owner();
  return rpc::MakeError(absl::StatusCode::kPermissionDenied,
                        absl::StrCat("job ", origin.target, " belongs to ",
                                     owner.empty() ? "nobody: it is older than users" : owner,
                                     "; an operator may change their own jobs only"),
                        "NOT_YOUR_JOB", {{"job_id", origin.target}, {"owner", owner}});
}

}  // namespace

Origin OriginOf(const Admitted& admitted, const google::protobuf::Message& request) {
  Origin origin;
  origin.caller = admitted.caller;
  origin.token = admitted.token;
  const Call* call = FindCall(request.GetDescriptor());
  if (call != nullptr) {
    origin.method = call->method->name();
    origin.own_job = call->row.own_job();
  }
  for (const char* field : {"job_id", "name", "worker_id", "worker_ids"}) {
    if (origin.target.empty()) {
      origin.target = ClipText(TextField(request, field), 128);
    }
  }
  return origin;
}

Gate::Gate(const View& view, Loop& loop, Clock& clock, bool open)
    : view_(view),
      loop_(loop),
      clock_(clock),
      open_(open),
      refusals_allowed_(kRefusalsBurst),
      refusals_time_(clock.Monotonic()) {}

void Gate::AllowLocal(std::string_view secret, const v1::Caller& caller) {
  absl::MutexLock lock(&mu_);
  local_.push_back({Sha256Of(secret), caller});
}

absl::StatusOr<Admitted> Gate::Admit(const grpc::CallbackServerContext& context,
                                     const google::protobuf::Message& request) {
  HEARTH_RETURN_IF_ERROR(fault::Check("coordinator.call"));
  const Call* call = FindCall(request.GetDescriptor());
  if (call == nullptr) {
    return absl::InternalError(absl::StrCat(request.GetTypeName(), " is no request of a call"));
  }
  Admitted admitted;
  v1::Caller& caller = admitted.caller;
  caller.set_address(rpc::AddressOfPeer(context.peer()));
  if (open_) {
    // Jobs that have an owner from another time are everyone's too.
    caller.set_role(call->row.role() == v1::ROLE_WORKER ? v1::ROLE_WORKER : v1::ROLE_ADMIN);
    HEARTH_RETURN_IF_ERROR(CheckRequest(request));
    return admitted;
  }
  if (const absl::Status known = Authenticate(context, admitted); !known.ok()) {
    return Refuse(known, OriginOf(admitted, request));
  }
  if (!RoleAllows(caller.role(), call->row.role())) {
    return Refuse(rpc::MakeError(absl::StatusCode::kPermissionDenied,
                                 absl::StrCat(call->method->name(), " needs the role ",
                                              RoleName(call->row.role()), "; ", caller.user(),
                                              caller.real_user().empty() ? "" : " (--as)",
                                              " has the role ", RoleName(caller.role())),
                                 "ROLE_TOO_SMALL"),
                  OriginOf(admitted, request));
  }
  HEARTH_RETURN_IF_ERROR(CheckRequest(request));
  const Origin origin = OriginOf(admitted, request);
  const JobPtr job = origin.own_job ? view_.FindJob(origin.target) : nullptr;
  if (const absl::Status owns = CheckOwner(origin, job.get()); !owns.ok()) {
    return Refuse(owns, origin);
  }
  return admitted;
}

absl::Status Gate::Authenticate(const grpc::CallbackServerContext& context,
                                Admitted& admitted) const {
  HEARTH_ASSIGN_OR_RETURN(const std::string header, OneValue(context, rpc::kAuthorizationKey));
  HEARTH_ASSIGN_OR_RETURN(const std::string act_as, OneValue(context, rpc::kActAsKey));
  if (!header.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const std::string secret, BearerOf(header));
    HEARTH_RETURN_IF_ERROR(FindToken(secret, admitted));
  } else if (const std::string name = CertificateName(context); !name.empty()) {
    // A token comes before a certificate: under mutual TLS a shared machine's certificate proves
    // the machine, and the token says who asks.
    const TokenPtr token = view_.identity().FindCertificate(name);
    if (token == nullptr) {
      return Unauthenticated(
          "UNKNOWN_CERTIFICATE",
          absl::StrCat("the certificate of \"", ClipText(name, 64),
                       "\" has no role on this coordinator (jobctl token create --certificate)"));
    }
    HEARTH_RETURN_IF_ERROR(UseToken(token, admitted));
  } else {
    return Unauthenticated("NO_TOKEN", "this call needs a token (--token-file)");
  }
  if (act_as.empty()) {
    return absl::OkStatus();
  }
  v1::Caller& caller = admitted.caller;
  if (caller.role() != v1::ROLE_ADMIN || !ValidateUserName(act_as).ok()) {
    return rpc::MakeError(absl::StatusCode::kPermissionDenied,
                          absl::StrCat("only an admin may act as another user, and \"",
                                       ClipText(act_as, 64), "\" must be a user's name"),
                          "ROLE_TOO_SMALL");
  }
  // An admin who acts as somebody has no more rights than that user would; the audit log has both
  // names.
  caller.set_real_user(caller.user());
  caller.set_user(act_as);
  caller.set_role(v1::ROLE_OPERATOR);
  return absl::OkStatus();
}

absl::StatusOr<Admitted> Gate::AdmitReader(std::string_view authorization,
                                           const std::string& address,
                                           const std::string& path) {
  if (authorization.empty()) {  // a browser that has not asked for the password yet
    return Unauthenticated("NO_TOKEN", "this page needs a token: give it as the password");
  }
  Admitted admitted;
  admitted.caller.set_address(address);
  absl::StatusOr<std::string> secret = BearerOf(authorization);
  if (!secret.ok()) {
    secret = PasswordOf(authorization);
  }
  absl::Status allowed = secret.ok() ? FindToken(*secret, admitted) : secret.status();
  if (allowed.ok() && !RoleAllows(admitted.caller.role(), v1::ROLE_VIEWER)) {
    allowed = rpc::MakeError(absl::StatusCode::kPermissionDenied, "this page needs the role viewer",
                             "ROLE_TOO_SMALL");
  }
  if (!allowed.ok()) {
    Origin origin;
    origin.caller = admitted.caller;
    origin.method = "HTTP";
    origin.target = ClipText(path, 128);
    return Refuse(allowed, origin);
  }
  return admitted;
}

absl::Status Gate::FindToken(std::string_view secret, Admitted& admitted) const {
  // The store has hashes alone, and how long a search among hashes takes tells nothing of a secret.
  const std::string sha256 = Sha256Of(secret);
  if (const TokenPtr token = view_.identity().FindSecret(sha256); token != nullptr) {
    return UseToken(token, admitted);
  }
  absl::ReaderMutexLock lock(&mu_);
  const auto found = std::find_if(local_.begin(), local_.end(),
                                  [&](const Local& local) { return local.sha256 == sha256; });
  if (found == local_.end()) {
    return Unauthenticated("UNKNOWN_TOKEN",
                           "this token is not known here: it was revoked, or is of another "
                           "coordinator");
  }
  admitted.caller.MergeFrom(found->caller);
  return absl::OkStatus();
}

absl::Status Gate::UseToken(const TokenPtr& token, Admitted& admitted) const {
  admitted.token = token;
  v1::Caller& caller = admitted.caller;
  caller.set_user(token->user());
  caller.set_role(token->role());
  caller.set_token(token->name());
  caller.set_worker_id(token->worker_id());
  return CheckExpiry(*token, clock_.Now());
}

absl::Status Gate::CheckWorker(const Admitted& agent, const std::string& worker_id) {
  const v1::Caller& caller = agent.caller;
  if (open_ || caller.worker_id().empty() || caller.worker_id() == worker_id) {
    return absl::OkStatus();
  }
  Origin origin;
  origin.caller = caller;
  origin.method = "Connect";
  origin.target = worker_id;
  return Refuse(rpc::MakeError(absl::StatusCode::kPermissionDenied,
                               absl::StrCat("the token ", caller.token(), " is of worker ",
                                            caller.worker_id(), ", not of ", worker_id),
                               "NOT_YOUR_WORKER"),
                origin);
}

absl::Status Gate::StillValid(const TokenPtr& token) const {
  if (token == nullptr) {
    return absl::OkStatus();  // local tokens hold as long as this process
  }
  // Another token under the same name: the caller's was revoked, and one was made again.
  if (view_.identity().Find(token->name()) != token) {
    return Unauthenticated("UNKNOWN_TOKEN",
                           absl::StrCat("the token ", token->name(), " was revoked"));
  }
  return CheckExpiry(*token, clock_.Now());
}

absl::Status Gate::Recheck(const Origin& origin, const v1::JobRecord* job) const {
  HEARTH_RETURN_IF_ERROR(StillValid(origin.token));
  return CheckOwner(origin, job);
}

absl::Status Gate::Refuse(const absl::Status& status, const Origin& origin) {
  int64_t left_out = 0;
  {
    absl::MutexLock lock(&mu_);
    // A stranger who tries tokens must not fill the audit log. Beyond the rate refusals are
    // counted, and the next one that is written says how many there were.
    const absl::Duration now = clock_.Monotonic();
    refusals_allowed_ = std::min(
        kRefusalsBurst,
        refusals_allowed_ + kRefusalsPerSecond * absl::ToDoubleSeconds(now - refusals_time_));
    refusals_time_ = now;
    if (refusals_allowed_ < 1) {
      ++refusals_left_out_;
      return status;
    }
    refusals_allowed_ -= 1;
    left_out = std::exchange(refusals_left_out_, 0);
  }
  loop_.NoteRefusal(origin, status, left_out);
  return status;
}

}  // namespace hearth::coordinator
