// The files of a checkpoint: JSON of its meta, tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/checkpoint/tensor_files.h"

namespace hearth::trainer {

inline constexpr std::string_view kMetaFile = "state/meta.json";
inline constexpr std::string_view kPlansFile = "state/plans.json";
inline constexpr std::string_view kStateFile = "state/tensors.safetensors";

// plans_json is not part of it: it is a file of its own.
std::string MetaToJson(const CheckpointMeta& meta);
// kDataLoss names the file and the field.
absl::StatusOr<CheckpointMeta> ParseMeta(std::string_view text, std::string_view file_name);

// Reads that of the checkpoint in `folder`. kNotFound: the folder is none; errors of ParseMeta.
absl::StatusOr<CheckpointMeta> ReadMeta(Env& env, const std::string& folder);

// A file of `tensors`, read as `content` says.
absl::StatusOr<FileFacts> WriteTensors(Env& env,
                                       const std::string& path,
                                       const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata,
                                       const CheckpointContent& content);

}  // namespace hearth::trainer
