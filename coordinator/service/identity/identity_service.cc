#include "coordinator/service/identity/identity_service.h"

#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/io/sha256.h"
#include "coordinator/service/api/change.h"
#include "coordinator/service/api/unary_call.h"
#include "hearth/v1/identity.grpc.pb.h"

namespace hearth::coordinator {
namespace {

// So that people, and programs that look for leaked secrets, can tell what it is.
constexpr const char* kSecretPrefix = "hearth_";
constexpr size_t kSecretBytes = 32;

class IdentityServiceImpl final : public v1::IdentityService::CallbackService {
 public:
  explicit IdentityServiceImpl(const ServiceParts& parts) : parts_(parts) {}

  HEARTH_UNARY(CreateToken, CreateTokenResponse) override;
  HEARTH_UNARY(ListTokens, ListTokensResponse) override {
    return Answer(parts_, context, *request, [&] {
      for (const TokenPtr& token : parts_.view.identity().All()) {
        *response->add_tokens() = *token;
      }
      return absl::OkStatus();
    });
  }
  HEARTH_CHANGE(RevokeToken, Token)
  HEARTH_UNARY(WhoAmI, Caller) override {
    absl::StatusOr<Admitted> caller = parts_.gate.Admit(*context, *request);
    if (caller.ok()) {
      *response = std::move(caller->caller);
    }
    return FinishNow(context, caller.status());
  }
  HEARTH_UNARY(ListAudit, ListAuditResponse) override {
    return Answer(parts_, context, *request, [&] {
      *response = parts_.view.identity().Audit(*request);
      return absl::OkStatus();
    });
  }

 private:
  const ServiceParts parts_;
};

HEARTH_UNARY_OF(IdentityServiceImpl, CreateToken, CreateTokenResponse) {
  const absl::StatusOr<Admitted> caller = parts_.gate.Admit(*context, *request);
  if (!caller.ok()) {
    return FinishNow(context, caller.status());
  }
  // Named in full: the method of the class hides the command.
  coordinator::CreateToken command;
  v1::Token& token = command.token;
  token.set_name(request->name());
  token.set_role(request->role());
  token.set_user(request->user().empty() ? request->name() : request->user());
  token.set_worker_id(request->worker_id());
  token.set_certificate(request->certificate());
  token.set_created_by(caller->caller.user());
  if (request->has_expires_in()) {
    command.expires_in = absl::Seconds(request->expires_in().seconds()) +
                         absl::Nanoseconds(request->expires_in().nanos());
  }
  std::string secret;
  if (request->certificate().empty()) {
    secret = absl::StrCat(kSecretPrefix, RandomHex(kSecretBytes));
    Sha256 hash;
    hash.Update(secret);
    const std::array<uint8_t, 32> digest = hash.Finish();
    command.secret_sha256.assign(digest.begin(), digest.end());
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Origin origin = OriginOf(*caller, *request);
  origin.detail = absl::StrCat(RoleName(token.role()), " ",
                               token.worker_id().empty() ? token.user() : token.worker_id());
  parts_.loop.Post(Command(std::move(command)).By(std::move(origin)),
                   [reactor, response, secret = std::move(secret)](const Reply& reply) {
                     if (reply.token.has_value()) {
                       *response->mutable_token() = *reply.token;
                       response->set_secret(secret);
                     }
                     reactor->Finish(rpc::ToGrpc(reply.status));
                   });
  return reactor;
}

}  // namespace

std::unique_ptr<grpc::Service> MakeIdentityService(const ServiceParts& parts) {
  return std::make_unique<IdentityServiceImpl>(parts);
}

}  // namespace hearth::coordinator
