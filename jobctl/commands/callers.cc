#include "jobctl/commands/callers.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

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

absl::StatusOr<bool> PrintMessage(OutputFormat format, const google::protobuf::Message& message) {
  if (format != OutputFormat::kJson && format != OutputFormat::kYaml) {
    return false;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text,
                          format == OutputFormat::kJson ? ToJson(message) : ToYaml(message));
  WriteOut(text);
  return true;
}

}  // namespace hearth::jobctl
