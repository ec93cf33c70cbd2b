#include "common/io/home.h"

#include "absl/strings/str_cat.h"
#include "common/base/system.h"

namespace hearth {

std::string HearthHome() {
  if (const char* home = GetEnv("HEARTH_HOME"); home != nullptr && *home != '\0') {
    return home;
  }
  if (const char* user = GetEnv("HOME"); user != nullptr && *user != '\0') {
    return absl::StrCat(user, "/.hearth");
  }
  return "";
}

}  // namespace hearth
