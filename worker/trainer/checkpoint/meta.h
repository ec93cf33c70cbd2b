// JSON of a checkpoint's meta and manifest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/checkpoint/checkpoint.h"

namespace hearth::trainer {

inline constexpr std::string_view kManifestFile = "MANIFEST.json";
inline constexpr std::string_view kMetaFile = "state/meta.json";
inline constexpr std::string_view kPlansFile = "state/plans.json";
inline constexpr std::string_view kStateFile = "state/tensors.safetensors";

// plans_json is not part of it: it is a file of its own.
std::string MetaToJson(const CheckpointMeta& meta);
// kDataLoss names the file and the field.
absl::StatusOr<CheckpointMeta> ParseMeta(std::string_view text, std::string_view file_name);

struct ManifestEntry {
  std::string path;  // inside the checkpoint folder
  int64_t bytes = 0;
  std::string sha256;
};

std::string ManifestToJson(int64_t step, const std::vector<ManifestEntry>& files);
// kDataLoss: not a manifest, or a path that leaves the folder.
absl::StatusOr<std::vector<ManifestEntry>> ParseManifest(std::string_view text,
                                                         std::string_view file_name);

}  // namespace hearth::trainer
