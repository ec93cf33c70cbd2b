// Paths in job files are paths on the workers, except that ~ and ./ refer to the machine and folder
// where jobctl runs. Pure.
#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace hearth::jobctl {

// "~/x" with `home`, "./x", "../x", "." and ".." with `folder` (both absolute); every other path
// stays as it is, also one that begins with "~name".
std::string FromHere(const std::string& path, const std::string& home, const std::string& folder);

// FromHere for every field of `message` whose row says worker_path, in sections, lists and maps.
void MakePathsAbsolute(google::protobuf::Message& message,
                       const std::string& home,
                       const std::string& folder);

}  // namespace hearth::jobctl
