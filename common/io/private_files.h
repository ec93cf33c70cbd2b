// Files and folders that only their owner may read.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"

namespace hearth {

// Like Env::CreateDirs; the last folder of `dir` has mode 0700 if this made it. One that is there
// stays as its owner made it.
absl::Status CreatePrivateDir(Env& env, const std::string& dir);

// Replaces the file by one of mode 0600 with `data`: after a crash the old or the new content is
// there, whole. Nobody else can open it at any moment. Errors as Env::WriteFileAtomically.
absl::Status WritePrivateFile(const std::string& path, std::string_view data);

// The content of a secret's file, at most 64 KiB. kPermissionDenied: others have access to it, or
// an account owns it that is neither ours nor root's (root reads any); kNotFound and others: it
// cannot be read.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path);

// kPermissionDenied when others have access to the file, with what to do. As for PostgreSQL's
// ssl_key_file, a file of root may be read by its group: so Debian's group ssl-cert shares keys.
// kNotFound and others: it cannot be looked at.
absl::Status CheckPrivateFile(const std::string& path);

}  // namespace hearth
