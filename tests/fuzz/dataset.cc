#include "common/dataset/dataset.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/status_macros.h"
#include "common/dataset/format.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {
namespace {

bool ReadTokens(const std::string& path) {
  const auto data = dataset::Dataset::Open(path);
  if (!data.ok()) {
    return false;
  }
  std::vector<int32_t> tokens(static_cast<size_t>(std::clamp<int64_t>((*data)->tokens(), 0, 64)));
  (*data)->Read(0, absl::MakeSpan(tokens), 1000).IgnoreError();
  (*data)->Read((*data)->tokens() - 1, absl::MakeSpan(tokens), 0).IgnoreError();
  std::vector<int64_t> ends;
  (*data)->FindEnds(0, (*data)->tokens(), ends);
  (*data)->Read(INT64_MAX, absl::MakeSpan(tokens), 0).IgnoreError();
  return true;
}

}  // namespace

// '{': dataset.json, beside a shard of 64 bytes and a mask of 32; else a .bin file.
bool Dataset(std::string_view bytes) {
  if (bytes.empty() || bytes.front() != '{') {
    return ReadTokens(ScratchFile("tokens.bin", bytes));
  }
  const auto info = dataset::ParseDatasetInfo(bytes, "dataset.json");
  if (info.ok()) {
    const auto again = dataset::ParseDatasetInfo(dataset::ToJson(*info), "again.json");
    HEARTH_CHECK(again.ok(), "what was written can be read");
  }
  ScratchFile("shard.bin", std::string(64, '\1'));
  ScratchFile("shard.mask", std::string(32, '\3'));
  const std::string path = ScratchFile("dataset.json", bytes);
  return ReadTokens(path.substr(0, path.rfind('/')));
}

}  // namespace hearth::fuzz
