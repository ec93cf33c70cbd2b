// MANIFEST.json of a checkpoint folder: which files it has, how large, with which checksums.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/checksum.h"
#include "common/io/env.h"
#include "common/io/verified_files.h"
#include "common/weights/model_files.h"

namespace hearth::weights {

inline constexpr std::string_view kManifestFile = "MANIFEST.json";

struct ManifestEntry {
  std::string path;  // inside the checkpoint folder
  int64_t bytes = 0;
  Checksum checksum;
};

// Version 2: each file has one checksum of any kind, under the kind's key. Version 1, which is read
// too, knows only "sha256".
std::string ManifestToJson(int64_t step, const std::vector<ManifestEntry>& files);
// kDataLoss: of a newer version, not a manifest, or a path that leaves the folder.
absl::StatusOr<std::vector<ManifestEntry>> ParseManifest(std::string_view text,
                                                         std::string_view file_name);

// Whether a file of a checkpoint is part of the model, or state/meta.json that says where it comes
// from; false: only a resume reads it.
bool IsModelFile(std::string_view path);

// Checksums of files that are there, by several threads: those of chunked checksums one after the
// other, the rest side by side. kDataLoss names the first that differs.
absl::Status CheckSums(Env& env, const std::string& dir, const std::vector<ManifestEntry>& entries);

// Model files (IsModelFile) of the folder with a checksum in MANIFEST.json; for kEma also those of
// its state. Empty: it has no MANIFEST.json, as folders from elsewhere. kDataLoss: a damaged one.
absl::StatusOr<std::vector<RecordedFile>> RecordedModelFiles(
    Env& env, const std::string& dir, WeightChoice choice = WeightChoice::kStep);

}  // namespace hearth::weights
