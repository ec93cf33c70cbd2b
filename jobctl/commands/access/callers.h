// How the commands about tokens, callers and the audit log read and write roles.
#pragma once

#include <string>
#include <vector>

#include "hearth/v1/identity.pb.h"

namespace hearth::jobctl {

// "viewer", "operator", "admin", "worker".
std::vector<std::string> RoleNames();
std::string RoleName(v1::Role role);
// ROLE_UNSPECIFIED: there is no such role.
v1::Role RoleCalled(const std::string& name);

// "alice", "alice as bob", "worker w1"; "-" when nobody is known.
std::string CallerName(const v1::Caller& caller);

}  // namespace hearth::jobctl
