// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/env.h"

namespace hearth {

// Incremental; not thread-safe. After Hex() or Finish() the object is empty again.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(std::string_view data);
  void Update(absl::Span<const uint8_t> data);
  std::array<uint8_t, 32> Finish();
  std::string Hex();  // 64 lower-case digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Sha256Hex(std::string_view data);

// The hash of a whole file, read through a memory map. Errors: those of Env::Map.
absl::StatusOr<std::string> Sha256HexOfFile(Env& env, const std::string& path);

}  // namespace hearth
