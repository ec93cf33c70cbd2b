#include "coordinator/service/identity/gate.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clip_text.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/io/sha256.h"
#include "common/rpc/bearer.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer.h"
#include "coordinator/core/errors.h"
#include "coordinator/service/limits.h"
#include "grpc/grpc_security_constants.h"

namespace hearth::coordinator {
namespace {

constexpr double kRefusalsPerSecond = 10;
constexpr double kRefusalsBurst = 100;

absl::Status Unauthenticated(const std::string& reason, const std::string& text) {
  return rpc::MakeError(absl::StatusCode::kUnauthenticated, text, reason);
}

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
  if (std::distance(first, last) > 1) {
    return Unauthenticated("BAD_TOKEN", absl::StrCat("the call has more than one \"", key, "\""));
  }
  return std::string(first->second.data(), first->second.size());
}

absl::StatusOr<std::string> BearerOf(std::string_view header) {
  absl::string_view secret(header.data(), header.size());
  if (!absl::ConsumePrefix(&secret, "Bearer ") && !absl::ConsumePrefix(&secret, "bearer ")) {
    return Unauthenticated("BAD_TOKEN", "authorization is not \"Bearer TOKEN\"");
  }
  return std::string(secret);
}

// The password of "Basic base64(user:password)" (RFC 7617).
absl::StatusOr<std::string> PasswordOf(std::string_view header) {
  absl::string_view encoded(header.data(), header.size());
  std::string pair;
  const bool basic =
      absl::ConsumePrefix(&encoded, "Basic ") && absl::Base64Unescape(encoded, &pair);
  const size_t colon = pair.find(':');
  if (!basic || colon == std::string::npos) {
    return Unauthenticated("BAD_TOKEN", "authorization is neither \"Bearer\" nor \"Basic\"");
  }
  return pair.substr(colon + 1);
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

std::string TextField(const google::protobuf::Message& message, const char* name) {
  const google::protobuf::FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  return field == nullptr || field->is_repeated() ||
                 field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING
             ? ""
             : message.GetReflection()->GetString(message, field);
}

}  // namespace

Origin OriginOf(const v1::Caller& caller, const google::protobuf::Message& request) {
  Origin origin;
  origin.caller = caller;
  const Call* call = FindCall(request.GetDescriptor());
  origin.method = call == nullptr ? request.GetDescriptor()->name() : call->method->name();
  for (const char* field : {"job_id", "worker_id", "name"}) {
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

absl::StatusOr<v1::Caller> Gate::Admit(const grpc::CallbackServerContext& context,
                                       const google::protobuf::Message& request) {
  const Call* call = FindCall(request.GetDescriptor());
  if (call == nullptr) {
    return absl::InternalError(absl::StrCat(request.GetTypeName(), " is no request of a call"));
  }
  v1::Caller caller;
  caller.set_address(rpc::AddressOfPeer(context.peer()));
  if (open_) {
    caller.set_role(call->row.role());
    HEARTH_RETURN_IF_ERROR(CheckRequest(request));
    return caller;
  }
  absl::StatusOr<v1::Caller> known = Authenticate(context);
  if (!known.ok()) {
    return Refuse(known.status(), OriginOf(caller, request));
  }
  known->set_address(caller.address());
  if (!RoleAllows(known->role(), call->row.role())) {
    return Refuse(rpc::MakeError(absl::StatusCode::kPermissionDenied,
                                 absl::StrCat(call->method->name(), " needs the role ",
                                              RoleName(call->row.role()), "; ", known->user(),
                                              known->real_user().empty() ? "" : " (--as)",
                                              " has the role ", RoleName(known->role())),
                                 "ROLE_TOO_SMALL"),
                  OriginOf(*known, request));
  }
  HEARTH_RETURN_IF_ERROR(CheckRequest(request));
  if (const absl::Status owns = CheckOwner(*known, *call, request); !owns.ok()) {
    return Refuse(owns, OriginOf(*known, request));
  }
  return known;
}

absl::StatusOr<v1::Caller> Gate::Authenticate(const grpc::CallbackServerContext& context) const {
  HEARTH_ASSIGN_OR_RETURN(const std::string header, OneValue(context, rpc::kAuthorizationKey));
  HEARTH_ASSIGN_OR_RETURN(const std::string act_as, OneValue(context, rpc::kActAsKey));
  absl::StatusOr<v1::Caller> caller;
  if (!header.empty()) {
    const absl::StatusOr<std::string> secret = BearerOf(header);
    caller = secret.ok() ? FindToken(*secret) : secret.status();
  } else if (const std::string name = CertificateName(context); !name.empty()) {
    const TokenPtr token = view_.identity().FindCertificate(name);
    caller = token == nullptr
                 ? Unauthenticated("UNKNOWN_CERTIFICATE",
                                   absl::StrCat("the certificate of \"", ClipText(name, 64),
                                                "\" has no role here (jobctl token create "
                                                "--certificate)"))
                 : CallerOf(token);
  } else {
    caller = Unauthenticated("NO_TOKEN", "this call needs a token (--token-file)");
  }
  HEARTH_RETURN_IF_ERROR(caller.status());
  if (act_as.empty()) {
    return caller;
  }
  if (caller->role() != v1::ROLE_ADMIN) {
    return rpc::MakeError(absl::StatusCode::kPermissionDenied,
                          "only an admin may act as another user", "ROLE_TOO_SMALL");
  }
  HEARTH_RETURN_IF_ERROR(ValidateUserName(act_as));
  caller->set_real_user(caller->user());
  caller->set_user(act_as);
  caller->set_role(v1::ROLE_OPERATOR);
  return caller;
}

absl::StatusOr<v1::Caller> Gate::AdmitReader(std::string_view authorization,
                                             const std::string& address,
                                             const std::string& path) {
  absl::StatusOr<std::string> secret = BearerOf(authorization);
  if (!secret.ok()) {
    secret = PasswordOf(authorization);
  }
  v1::Caller stranger;
  stranger.set_address(address);
  Origin origin{stranger, "HTTP", ClipText(path, 128)};
  if (authorization.empty()) {  // a browser that has not asked for the password yet
    return Unauthenticated("NO_TOKEN", "this page needs a token: give it as the password");
  }
  absl::StatusOr<v1::Caller> caller = secret.ok() ? FindToken(*secret) : secret.status();
  if (!caller.ok()) {
    return Refuse(caller.status(), origin);
  }
  caller->set_address(address);
  if (!RoleAllows(caller->role(), v1::ROLE_VIEWER)) {
    origin.caller = *caller;
    return Refuse(rpc::MakeError(absl::StatusCode::kPermissionDenied,
                                 "this page needs the role viewer", "ROLE_TOO_SMALL"),
                  origin);
  }
  return caller;
}

absl::StatusOr<v1::Caller> Gate::FindToken(std::string_view secret) const {
  const std::string sha256 = Sha256Of(secret);
  if (const TokenPtr token = view_.identity().FindSecret(sha256); token != nullptr) {
    return CallerOf(token);
  }
  absl::ReaderMutexLock lock(&mu_);
  const auto found = std::find_if(local_.begin(), local_.end(),
                                  [&](const Local& local) { return local.sha256 == sha256; });
  if (found == local_.end()) {
    return Unauthenticated("UNKNOWN_TOKEN",
                           "this token is not known here: it was revoked, or is of another "
                           "coordinator");
  }
  return found->caller;
}

absl::StatusOr<v1::Caller> Gate::CallerOf(const TokenPtr& token) const {
  if (token->has_expire_time() && FromProto(token->expire_time()) <= clock_.Now()) {
    return Unauthenticated(
        "TOKEN_EXPIRED",
        absl::StrCat("the token ", token->name(), " expired at ",
                     absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", FromProto(token->expire_time()),
                                      absl::UTCTimeZone())));
  }
  v1::Caller caller;
  caller.set_user(token->user());
  caller.set_role(token->role());
  caller.set_token(token->name());
  caller.set_worker_id(token->worker_id());
  return caller;
}

absl::Status Gate::CheckOwner(const v1::Caller& caller,
                              const Call& call,
                              const google::protobuf::Message& request) const {
  if (!call.row.own_job() || caller.role() != v1::ROLE_OPERATOR) {
    return absl::OkStatus();
  }
  const std::string job_id = TextField(request, "job_id");
  const JobPtr job = view_.FindJob(job_id);
  if (job == nullptr || job->job().owner() == caller.user()) {
    return absl::OkStatus();  // a job that is not there is the answer of the call itself
  }
  const std::string& owner = job->job().owner();
  return rpc::MakeError(absl::StatusCode::kPermissionDenied,
                        absl::StrCat("job ", job_id, " belongs to ",
                                     owner.empty() ? "nobody: it is older than users" : owner,
                                     "; an operator may change their own jobs only"),
                        "NOT_YOUR_JOB", {{"job_id", job_id}, {"owner", owner}});
}

absl::Status Gate::CheckWorker(const v1::Caller& caller, const std::string& worker_id) {
  if (open_ || caller.worker_id().empty() || caller.worker_id() == worker_id) {
    return absl::OkStatus();
  }
  return Refuse(rpc::MakeError(absl::StatusCode::kPermissionDenied,
                               absl::StrCat("the token ", caller.token(), " is of worker ",
                                            caller.worker_id(), ", not of ", worker_id),
                               "NOT_YOUR_WORKER"),
                Origin{caller, "Connect", worker_id});
}

absl::Status Gate::StillValid(const v1::Caller& caller) const {
  {
    absl::ReaderMutexLock lock(&mu_);
    const auto is_local = [&](const Local& local) {
      return local.caller.token() == caller.token();
    };
    if (open_ || std::any_of(local_.begin(), local_.end(), is_local)) {
      return absl::OkStatus();
    }
  }
  const TokenPtr token = view_.identity().Find(caller.token());
  if (token == nullptr) {
    return Unauthenticated("UNKNOWN_TOKEN",
                           absl::StrCat("the token ", caller.token(), " was revoked"));
  }
  return CallerOf(token).status();
}

absl::Status Gate::Refuse(const absl::Status& status, const Origin& origin) {
  int64_t left_out = 0;
  {
    absl::MutexLock lock(&mu_);
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
