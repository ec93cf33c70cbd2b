#include "common/base/ids.h"

#include <sys/random.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth {
namespace {

constexpr size_t kMaxIdLength = 63;

std::vector<uint8_t> RandomBytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  size_t done = 0;
  while (done < count) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    HEARTH_CHECK(got > 0, "getrandom(2) always gives bytes");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

std::string Hex(const std::vector<uint8_t>& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

bool IsLowerOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}
bool IsAlphanumeric(char c) {
  return IsLowerOrDigit(c) || (c >= 'A' && c <= 'Z');
}

absl::Status Refuse(std::string_view what, std::string_view id, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(what), " \"", std::string(id), "\" ", std::string(why)));
}

absl::Status ValidateName(const char* what, std::string_view id) {
  if (id.empty() || id.size() > kMaxIdLength) {
    return Refuse(what, id, "must have 1 to 63 characters");
  }
  for (const char c : id) {
    if (!IsAlphanumeric(c) && c != '-' && c != '.' && c != '_') {
      return Refuse(what, id, "may only contain letters, digits, '.', '_' and '-'");
    }
  }
  if (!IsAlphanumeric(id.front()) || !IsAlphanumeric(id.back())) {
    return Refuse(what, id, "must start and end with a letter or digit");
  }
  return absl::OkStatus();
}

}  // namespace

std::string RandomHex(size_t bytes) {
  return Hex(RandomBytes(bytes));
}

std::string RandomUuid() {
  std::vector<uint8_t> bytes = RandomBytes(16);
  bytes[6] = static_cast<uint8_t>((bytes[6] & 0x0f) | 0x40);  // version 4
  bytes[8] = static_cast<uint8_t>((bytes[8] & 0x3f) | 0x80);  // RFC 4122 variant
  std::string hex = Hex(bytes);
  for (const size_t at : {8, 13, 18, 23}) {
    hex.insert(at, 1, '-');
  }
  return hex;
}

bool IsUuid(std::string_view text) {
  if (text.size() != 36) {
    return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) {
      return false;
    }
  }
  return true;
}

absl::Status ValidateJobId(std::string_view id) {
  if (id.empty() || id.size() > kMaxIdLength) {
    return Refuse("job id", id, "must have 1 to 63 characters");
  }
  for (const char c : id) {
    if (!IsLowerOrDigit(c) && c != '-') {
      return Refuse("job id", id, "may only contain a-z, 0-9 and '-'");
    }
  }
  if (id.front() == '-' || id.back() == '-') {
    return Refuse("job id", id, "must start and end with a letter or digit");
  }
  return absl::OkStatus();
}

absl::Status ValidateWorkerId(std::string_view id) {
  return ValidateName("worker name", id);
}

absl::Status ValidateUserName(std::string_view name) {
  return ValidateName("user name", name);
}

std::string Slug(std::string_view name, size_t max_length) {
  std::string out;
  for (const char c : name) {
    const char lower = (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
    if (IsLowerOrDigit(lower)) {
      out += lower;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  out.resize(std::min({out.size(), max_length, kMaxIdLength}));
  while (!out.empty() && out.back() == '-') {
    out.pop_back();
  }
  return out.empty() ? "job" : out;
}

std::string NewJobId(std::string_view name) {
  return absl::StrCat(Slug(name, kMaxIdLength - 7), "-", RandomHex(3));
}

}  // namespace hearth
