// How two ranks prove to each other that they belong to one gang, before either believes a byte of
// the other. Pure: bytes in, bytes out.
//
// clang-format off
//
//   dialler                                            listener
//   greeting: magic, from, to, 16 random bytes  ──▶
//                                               ◀──    answer: 16 random bytes, HMAC(secret, "listener", all so far)
//   proof: HMAC(secret, "dialler", all so far)  ──▶
//                                               ◀──    welcome: one byte
//
// clang-format on
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hearth::trainer {

// Known to the ranks of one gang only; of one epoch.
using GangSecret = std::array<uint8_t, 32>;

// The system's random numbers. kInternal: it has none.
absl::Status FillRandom(void* to, size_t bytes);

// One side of one connection. Takes exactly the bytes that are its own: what follows them on the
// connection is the caller's.
class Handshake {
 public:
  using Nonce = std::array<uint8_t, 16>;

  // `nonce`: random, used once.
  static Handshake Dialler(const GangSecret& secret, int self, int peer, const Nonce& nonce);
  static Handshake Listener(const GangSecret& secret, int self, const Nonce& nonce);

  // Bytes wanted next; 0 = done.
  size_t wanted() const { return done_ ? 0 : expected_ - input_.size(); }
  bool done() const { return done_; }
  // The other rank; of a listener -1 until the greeting is in.
  int peer() const { return peer_; }
  // What is to be sent before anything else is read; the caller clears what it has sent.
  std::string& output() { return output_; }
  // At most wanted() bytes. kPermissionDenied: the other side is not a rank of this gang; the
  // object is of no more use.
  absl::Status Take(std::string_view bytes);

 private:
  enum class Wants { kGreeting, kAnswer, kProof, kWelcome };

  Handshake(const GangSecret& secret, int self, int peer, const Nonce& nonce);
  std::string Mac(std::string_view side) const;
  void Expect(Wants wants);
  absl::Status TakeGreeting();
  absl::Status TakeMac(std::string_view side, std::string_view mac) const;

  GangSecret secret_;
  int self_;
  int peer_;
  Nonce nonce_;
  Wants wants_ = Wants::kGreeting;
  size_t expected_ = 0;
  bool done_ = false;
  std::string input_;  // of the message that is being read
  std::string output_;
  std::string transcript_;  // greeting, then the listener's nonce: what the codes are over
};

}  // namespace hearth::trainer
