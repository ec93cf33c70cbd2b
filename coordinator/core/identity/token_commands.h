// What admins ask of tokens. Owns nothing.
#pragma once

#include <vector>

#include "coordinator/core/identity/tokens.h"
#include "coordinator/core/part_rows.h"
#include "coordinator/core/turn.h"

namespace hearth::coordinator {

// Not thread-safe.
class TokenCommands {
 public:
  // All that is passed in outlives this.
  TokenCommands(Turn& turn, Tokens& tokens) : turn_(turn), tokens_(tokens) {}

  static std::vector<CommandRow> Rows();

  // Forgets tokens that expired long ago.
  void Expire() { tokens_.Expire(turn_.wall(), turn_.effects()); }

 private:
  void Create(const CreateToken& command);
  void Revoke(const v1::RevokeTokenRequest& request);
  void ReplyToken(const absl::StatusOr<v1::Token>& token);

  Turn& turn_;
  Tokens& tokens_;
};

}  // namespace hearth::coordinator
