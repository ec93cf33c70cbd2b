#include "coordinator/service/notify/notify_config.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/io/private_files.h"
#include "common/spec/fields/rows.h"
#include "common/spec/rules/rules.h"
#include "hearth/v1/coordinator.pb.h"

namespace hearth::coordinator {
namespace {

constexpr size_t kSecretBytesMin = 16;

// A prefix without the '/' behind its host would let in hosts whose names only begin so.
bool EndsItsHost(const std::string& prefix) {
  const size_t host = prefix.find("://");
  return host != std::string::npos && prefix.find('/', host + 3) != std::string::npos;
}

void CheckPrefixes(const v1::NotifyConfig& config, spec::Checker& check) {
  for (int i = 0; i < config.url_prefixes_size(); ++i) {
    const std::string& prefix = config.url_prefixes(i);
    const bool http = absl::StartsWith(prefix, "http://") || absl::StartsWith(prefix, "https://");
    if (!http || !EndsItsHost(prefix)) {
      check.Add(absl::StrCat("url_prefixes[", i, "]"),
                absl::StrCat("\"", prefix,
                             "\" must begin with http:// or https:// and have a / behind its host, "
                             "as in https://example.org/"));
    }
  }
}

void CheckCommands(const v1::NotifyConfig& config, spec::Checker& check) {
  for (const auto& [name, path] : config.commands()) {
    const std::string field = absl::StrCat("commands.", name);
    if (const absl::Status valid = ValidateUserName(name); !valid.ok()) {
      check.Add(field, std::string(valid.message()));
    }
    if (path.empty() || path.front() != '/') {
      check.Add(field, absl::StrCat("\"", path, "\" is not an absolute path"));
    } else if (access(path.c_str(), X_OK) != 0) {
      check.Add(field, absl::StrCat(path, " cannot be executed"));
    }
  }
  for (int i = 0; i < config.all_jobs_size(); ++i) {
    const std::string& command = config.all_jobs(i).command();
    if (!command.empty() && !config.commands().contains(command)) {
      check.Add(absl::StrCat("all_jobs[", i, "].command"),
                absl::StrCat("there is no \"", command, "\" in commands"));
    }
  }
}

absl::Status ReadSecret(const std::string& path, std::string& secret) {
  HEARTH_ASSIGN_OR_RETURN(secret, ReadPrivateFile(path));
  absl::StripAsciiWhitespace(&secret);
  if (secret.size() < kSecretBytesMin) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", secret.size(),
                                                   " bytes; a secret has at least ",
                                                   kSecretBytesMin, ": openssl rand -hex 32"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NotifySettings> LoadNotifySettings(Env& env, const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(path));
  v1::NotifyConfig config;
  HEARTH_RETURN_IF_ERROR(config::ParseInto(text, path, config));
  std::vector<spec::FieldViolation> violations;
  spec::Checker check(violations);
  spec::CheckRows(config, "", check);
  spec::CheckReceivers("all_jobs", config.all_jobs(), check);
  CheckPrefixes(config, check);
  CheckCommands(config, check);
  if (!violations.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", spec::ViolationsToStatus(violations).message()));
  }
  NotifySettings settings;
  settings.all_jobs.assign(config.all_jobs().begin(), config.all_jobs().end());
  settings.commands = {config.commands().begin(), config.commands().end()};
  settings.url_prefixes.assign(config.url_prefixes().begin(), config.url_prefixes().end());
  if (!config.secret_file().empty()) {
    HEARTH_RETURN_IF_ERROR(ReadSecret(config.secret_file(), settings.secret));
  }
  return settings;
}

}  // namespace hearth::coordinator
