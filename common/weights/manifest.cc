#include "common/weights/manifest.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/chunk_threads.h"
#include "common/weights/json_keys.h"

namespace hearth::weights {
namespace {

constexpr int kManifestVersion = 2;

}  // namespace

std::string ManifestToJson(int64_t step, const std::vector<ManifestEntry>& files) {
  nlohmann::ordered_json json;
  json["format"] = "hearth-checkpoint";
  json["version"] = kManifestVersion;
  json["step"] = step;
  json["files"] = nlohmann::ordered_json::array();
  for (const ManifestEntry& file : files) {
    nlohmann::ordered_json entry;
    entry["path"] = file.path;
    entry["bytes"] = file.bytes;
    entry[std::string(KeyOf(file.checksum.kind))] = file.checksum.hex;
    json["files"].push_back(entry);
  }
  return DumpJson(json);
}

absl::StatusOr<std::vector<ManifestEntry>> ParseManifest(std::string_view text,
                                                         std::string_view file_name) {
  HEARTH_ASSIGN_OR_RETURN(const nlohmann::json json,
                          ParseJsonFile(text, file_name, "hearth-checkpoint", kManifestVersion));
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array() || files->empty()) {
    return absl::DataLossError(absl::StrCat(std::string(file_name), ": no files"));
  }
  std::vector<ManifestEntry> entries;
  for (const nlohmann::json& item : *files) {
    KeyReader reader(item, file_name);
    ManifestEntry entry;
    if (!item.is_object()) {
      reader.Fail("files", "has an entry that is not an object");
    }
    reader.String("path", &entry.path);
    reader.Number("bytes", &entry.bytes);
    for (const ChecksumRow& row : kChecksums) {
      if (item.contains(std::string(row.key))) {
        entry.checksum.kind = row.kind;
      }
    }
    reader.String(KeyOf(entry.checksum.kind).data(), &entry.checksum.hex);
    if (entry.path.empty() || entry.path[0] == '/' || entry.path.find("..") != std::string::npos) {
      reader.Fail("path", "leaves the folder");
    }
    HEARTH_RETURN_IF_ERROR(reader.status());
    entries.push_back(std::move(entry));
  }
  return entries;
}

bool IsModelFile(std::string_view path) {
  return !path.starts_with("state/") || path == "state/meta.json";
}

absl::Status CheckSums(Env& env,
                       const std::string& dir,
                       const std::vector<ManifestEntry>& entries) {
  const auto check = [&](const ManifestEntry& entry, int threads) -> absl::Status {
    const std::string file = absl::StrCat(dir, "/", entry.path);
    HEARTH_ASSIGN_OR_RETURN(const Checksum sum,
                            ChecksumOfFile(env, file, entry.checksum.kind, threads));
    if (sum == entry.checksum) {
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat(file, ": ", LabelOf(sum.kind), " is ", sum.hex,
                                            ", the manifest says ", entry.checksum.hex));
  };
  // A sum over chunks keeps all threads busy by itself; SHA-256 goes through a file in one piece,
  // so there several files run side by side.
  std::vector<const ManifestEntry*> whole;
  for (const ManifestEntry& entry : entries) {
    if (entry.checksum.kind == ChecksumKind::kXxh3) {
      HEARTH_RETURN_IF_ERROR(check(entry, FileThreads()));
    } else {
      whole.push_back(&entry);
    }
  }
  return ForEachChunk(static_cast<int64_t>(whole.size()), FileThreads(),
                      [&](int64_t i) { return check(*whole[static_cast<size_t>(i)], 1); });
}

absl::StatusOr<std::vector<RecordedFile>> RecordedModelFiles(Env& env,
                                                             const std::string& dir,
                                                             WeightChoice choice) {
  const std::string manifest = absl::StrCat(dir, "/", std::string(kManifestFile));
  std::vector<RecordedFile> files;
  if (!env.Exists(manifest)) {
    return files;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(manifest));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<ManifestEntry> entries, ParseManifest(text, manifest));
  for (const ManifestEntry& entry : entries) {
    if (IsModelFile(entry.path) || choice == WeightChoice::kEma) {
      files.push_back({absl::StrCat(dir, "/", entry.path), entry.checksum});
    }
  }
  return files;
}

}  // namespace hearth::weights
