// A Hugging Face model folder: what config.json says, and its weights.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/model/parameter.h"
#include "common/weights/model_files.h"

namespace hearth::weights {

// Immutable, thread-safe.
struct ModelFolder {
  std::string dir;
  std::string config;  // text of config.json
  spec::ModelShape shape;
  std::vector<spec::Parameter> table;  // never moved: `weights` points to it
  std::unique_ptr<WeightReader> weights;
};

// Errors: those of ReadHfConfig, ResolveModelShape and WeightReader::Open.
absl::StatusOr<std::unique_ptr<ModelFolder>> OpenModelFolder(
    Env& env, const std::string& dir, WeightChoice choice = WeightChoice::kStep);

// A name beside `path` to write under; nothing else uses it.
std::string TemporaryBeside(const std::string& path);

// Moves what `write` made under a temporary name to `path`, once it is on the disk; after an error
// nothing stays. kAlreadyExists: there is something at `path`.
absl::Status WriteInPlace(Env& env,
                          const std::string& path,
                          const std::function<absl::Status(const std::string& temporary)>& write);

}  // namespace hearth::weights
