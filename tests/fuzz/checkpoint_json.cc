#include "common/base/status_macros.h"
#include "tests/fuzz/targets.h"
#include "worker/trainer/checkpoint/meta.h"
#include "worker/trainer/checkpoint/shards.h"

namespace hearth::fuzz {

// MANIFEST.json and state/meta.json.
bool CheckpointJson(std::string_view bytes) {
  const auto manifest = trainer::ParseManifest(bytes, "MANIFEST.json");
  if (manifest.ok()) {
    for (const trainer::ManifestEntry& entry : *manifest) {
      trainer::ShardsOfFile(entry.path);
    }
    HEARTH_CHECK(trainer::ParseManifest(trainer::ManifestToJson(1, *manifest), "again").ok(),
                 "what was written can be read");
  }
  const auto meta = trainer::ParseMeta(bytes, "meta.json");
  if (meta.ok()) {
    HEARTH_CHECK(trainer::ParseMeta(trainer::MetaToJson(*meta), "again").ok(),
                 "what was written can be read");
  }
  return manifest.ok() || meta.ok();
}

}  // namespace hearth::fuzz
