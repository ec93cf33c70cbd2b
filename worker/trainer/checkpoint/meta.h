// The files of a checkpoint: JSON of its meta and manifest, tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/checksum.h"
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
  Checksum checksum;
};

// Version 2: each file has one checksum of any kind, under the kind's key. Version 1, which is read
// too, knows "sha256" alone.
std::string ManifestToJson(int64_t step, const std::vector<ManifestEntry>& files);
// kDataLoss: of a newer version, not a manifest, or a path that leaves the folder.
absl::StatusOr<std::vector<ManifestEntry>> ParseManifest(std::string_view text,
                                                         std::string_view file_name);

// A file of `tensors`, read as `content` says.
absl::StatusOr<FileFacts> WriteTensors(Env& env,
                                       const std::string& path,
                                       const std::vector<TensorView>& tensors,
                                       const std::map<std::string, std::string>& metadata,
                                       const CheckpointContent& content);

}  // namespace hearth::trainer
