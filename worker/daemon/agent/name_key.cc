#include "worker/daemon/agent/name_key.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/io/private_files.h"
#include "worker/daemon/supervise/child_process.h"

namespace hearth::worker {
namespace {

constexpr size_t kKeyBytes = 32;

bool IsKey(absl::string_view text) {
  return text.size() == 2 * kKeyBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isxdigit(static_cast<unsigned char>(c));
         });
}

absl::Status Fail(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("--data-dir: ", what, " ", path));
}

absl::StatusOr<std::string> ReadKey(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return Fail("cannot open", path);
  }
  char buffer[256];
  const ssize_t bytes = read(file.get(), buffer, sizeof(buffer));
  if (bytes < 0) {
    return Fail("cannot read", path);
  }
  const absl::string_view text =
      absl::StripAsciiWhitespace(absl::string_view(buffer, static_cast<size_t>(bytes)));
  if (!IsKey(text)) {
    return absl::DataLossError(
        absl::StrCat("--data-dir: ", path,
                     " holds no key; remove it for a new one, and have the name released "
                     "(jobctl forget NAME)"));
  }
  return std::string(text);
}

}  // namespace

absl::StatusOr<std::string> LoadOrMakeNameKey(const std::string& data_dir) {
  const std::string path = data_dir + "/name.key";
  if (access(path.c_str(), F_OK) == 0) {
    return ReadKey(path);
  }
  std::string key = RandomHex(kKeyBytes);
  HEARTH_RETURN_IF_ERROR(Annotate(WritePrivateFile(path, key + "\n"), "--data-dir"));
  return key;
}

}  // namespace hearth::worker
