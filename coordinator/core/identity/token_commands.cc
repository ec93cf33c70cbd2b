#include "coordinator/core/identity/token_commands.h"

namespace hearth::coordinator {

std::vector<CommandRow> TokenCommands::Rows() {
  return {
      Row<&TokenCommands::Create>("create_token", OnFullDisk::kRefused),
      Row<&TokenCommands::Revoke>("revoke_token"),
  };
}

void TokenCommands::ReplyToken(const absl::StatusOr<v1::Token>& token) {
  if (token.ok()) {
    turn_.ReplyOk().token = *token;
  } else {
    turn_.ReplyError(token.status());
  }
}

void TokenCommands::Create(const CreateToken& command) {
  ReplyToken(tokens_.Create(command, turn_.wall(), turn_.effects()));
}

void TokenCommands::Revoke(const v1::RevokeTokenRequest& request) {
  ReplyToken(tokens_.Revoke(request.name(), turn_.effects()));
}

}  // namespace hearth::coordinator
