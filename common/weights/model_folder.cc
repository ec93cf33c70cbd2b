#include "common/weights/model_folder.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/hf/hf_config.h"
#include "common/spec/plan/parameter_table.h"

namespace hearth::weights {

absl::StatusOr<std::unique_ptr<ModelFolder>> OpenModelFolder(Env& env,
                                                             const std::string& dir,
                                                             WeightChoice choice) {
  auto folder = std::make_unique<ModelFolder>();
  folder->dir = dir;
  HEARTH_ASSIGN_OR_RETURN(const v1::ModelSpec model, hf::ReadHfConfig(dir, env));
  HEARTH_ASSIGN_OR_RETURN(folder->config,
                          env.ReadFile(absl::StrCat(dir, "/", std::string(kHfConfigFile))));
  HEARTH_ASSIGN_OR_RETURN(folder->shape, spec::ResolveModelShape(model, model.max_position()));
  folder->table = spec::BuildParameterTable(folder->shape);
  HEARTH_ASSIGN_OR_RETURN(WeightReader weights,
                          WeightReader::Open(env, dir, folder->table, choice));
  folder->weights = std::make_unique<WeightReader>(std::move(weights));
  return folder;
}

std::string TemporaryBeside(const std::string& path) {
  return absl::StrCat(path, ".tmp-", getpid());
}

absl::Status WriteInPlace(Env& env,
                          const std::string& path,
                          const std::function<absl::Status(const std::string& temporary)>& write) {
  if (env.Exists(path)) {
    return absl::AlreadyExistsError(absl::StrCat(path, ": already there; it is not replaced"));
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const std::string temporary = TemporaryBeside(path);
  absl::Status status = env.CreateDirs(folder);
  if (status.ok()) {
    status = write(temporary);
  }
  if (status.ok()) {
    status = env.Rename(temporary, path);
  }
  if (!status.ok()) {
    env.RemoveAll(temporary).IgnoreError();
    return status;
  }
  return env.SyncDir(folder);
}

}  // namespace hearth::weights
