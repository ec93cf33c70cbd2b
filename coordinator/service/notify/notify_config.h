// What the coordinator's operator says about notifications: the file of --notify (docs/notify.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "hearth/v1/job_spec.pb.h"

namespace hearth::coordinator {

struct NotifySettings {
  std::vector<v1::NotifySpec> all_jobs;         // told of every job
  std::map<std::string, std::string> commands;  // name -> absolute path of a program
  std::vector<std::string> url_prefixes;        // of job files' URLs; empty = any
  std::string secret;                           // signs bodies; empty = they are not signed
};

// Reads the file and the secret that it names. kInvalidArgument: what is wrong with it, with its
// line or field; kPermissionDenied: others may read the secret; kNotFound and others: a file cannot
// be read.
absl::StatusOr<NotifySettings> LoadNotifySettings(Env& env, const std::string& path);

}  // namespace hearth::coordinator
