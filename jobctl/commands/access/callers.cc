#include "jobctl/commands/access/callers.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace hearth::jobctl {

std::string RoleName(v1::Role role) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::Role_Name(role), "ROLE_"));
}

std::vector<std::string> RoleNames() {
  std::vector<std::string> names;
  for (int role = v1::ROLE_UNSPECIFIED + 1; role <= v1::Role_MAX; ++role) {
    if (v1::Role_IsValid(role)) {
      names.push_back(RoleName(static_cast<v1::Role>(role)));
    }
  }
  return names;
}

v1::Role RoleCalled(const std::string& name) {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  v1::Role_Parse(absl::StrCat("ROLE_", absl::AsciiStrToUpper(name)), &role);
  return role;
}

std::string CallerName(const v1::Caller& caller) {
  if (!caller.real_user().empty()) {
    return absl::StrCat(caller.real_user(), " as ", caller.user());
  }
  if (caller.role() == v1::ROLE_WORKER) {
    return caller.worker_id().empty() ? "any worker" : absl::StrCat("worker ", caller.worker_id());
  }
  return caller.user().empty() ? "-" : caller.user();
}

}  // namespace hearth::jobctl
