#include "common/io/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "common/base/status_macros.h"

namespace hearth {

std::string HmacSha256(std::string_view secret, std::string_view text) {
  std::string mac(kHmacBytes, '\0');
  unsigned int size = 0;
  HEARTH_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                    reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                    reinterpret_cast<unsigned char*>(mac.data()), &size) != nullptr &&
                   size == kHmacBytes,
               "libcrypto has HMAC-SHA-256");
  return mac;
}

}  // namespace hearth
