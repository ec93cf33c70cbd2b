#include "common/io/sha256.h"

#include <openssl/evp.h>

#include "common/base/status_macros.h"

namespace hearth {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
  void Start() {
    // Looked up once: with EVP_sha256() libcrypto searches its tables, under a lock, each time.
    static EVP_MD* const kSha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    HEARTH_CHECK(context != nullptr && kSha256 != nullptr &&
                     EVP_DigestInit_ex2(context, kSha256, nullptr) == 1,
                 "libcrypto has SHA-256");
  }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  state_->Start();
}
Sha256::~Sha256() = default;

void Sha256::Update(std::string_view data) {
  HEARTH_CHECK(EVP_DigestUpdate(state_->context, data.data(), data.size()) == 1, "SHA-256 update");
}

void Sha256::Update(absl::Span<const uint8_t> data) {
  Update(std::string_view(reinterpret_cast<const char*>(data.data()), data.size()));
}

std::array<uint8_t, 32> Sha256::Finish() {
  std::array<uint8_t, 32> digest;
  unsigned int size = 0;
  HEARTH_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1 && size == 32,
               "a SHA-256 digest has 32 bytes");
  state_->Start();
  return digest;
}

std::string Sha256::Hex() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : Finish()) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string Sha256Hex(std::string_view data) {
  Sha256 hash;
  hash.Update(data);
  return hash.Hex();
}

absl::StatusOr<std::string> Sha256HexOfFile(Env& env, const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, env.Map(path));
  Sha256 hash;
  hash.Update(file->bytes());
  return hash.Hex();
}

}  // namespace hearth
