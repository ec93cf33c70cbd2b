#include "common/spec/feasibility/memory/memory_parts.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "common/spec/gpus/gpus.h"
#include "common/spec/plan/blocks/block.h"
#include "common/spec/plan/blocks/block_table.h"
#include "common/spec/plan/op_scratch.h"

namespace hearth::spec {
namespace {

enum Part : uint8_t {
  kWeights,
  kMasters,
  kGradients,
  kOptimizer,
  kActivations,
  kLogits,
  kWorkspaces,
  kNobody,
  kPartCount,
};
constexpr const char* kPartNames[kPartCount] = {"weights",    "masters",     "gradients",
                                                "optimizer",  "activations", "logits",
                                                "workspaces", "alignment"};

Part PartOf(BufferClass buffer_class) {
  switch (buffer_class) {
    case BufferClass::kParameters:
      return kWeights;
    case BufferClass::kMasters:
      return kMasters;
    case BufferClass::kGradients:
      return kGradients;
    case BufferClass::kOptimizer:
      return kOptimizer;
    case BufferClass::kActivations:
      return kActivations;
    case BufferClass::kWorkspace:
      break;
  }
  return kWorkspaces;
}

struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  Part part = kNobody;
};

// All buffers on the device; the shared workspace begins with the logits.
std::vector<Extent> Extents(const TrainingPlan& plan, const TrainingPlanOptions& options) {
  std::vector<Extent> extents;
  const std::vector<PlannedBuffer>& buffers = plan.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    const PlannedBuffer& buffer = buffers[i];
    if (buffer.tier != MemoryTier::kDevice) {
      continue;
    }
    int64_t begin = buffer.offset;
    if (static_cast<int32_t>(i) == plan.ids.workspace.index) {
      const int64_t logits = std::min(buffer.bytes, LogitsBytes(options));
      extents.push_back({begin, begin + logits, kLogits});
      begin += logits;
    }
    extents.push_back({begin, buffer.offset + buffer.bytes, PartOf(buffer.buffer_class)});
  }
  return extents;
}

}  // namespace

std::vector<MemoryPart> MemoryParts(const TrainingPlan& plan, const TrainingPlanOptions& options) {
  const std::vector<Extent> extents = Extents(plan, options);
  std::vector<int64_t> edges = {0, plan.arena_bytes()};
  for (const Extent& extent : extents) {
    edges.insert(edges.end(), {extent.begin, extent.end});
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  // The part that owns the bytes between two edges.
  std::vector<Part> owners(edges.size(), kNobody);
  const auto at = [&](int64_t edge) {
    return std::lower_bound(edges.begin(), edges.end(), edge) - edges.begin();
  };
  for (const Extent& extent : extents) {
    for (auto i = at(extent.begin); i < at(extent.end); ++i) {
      Part& owner = owners[static_cast<size_t>(i)];
      owner = std::min(owner, extent.part);
    }
  }
  int64_t bytes[kPartCount] = {};
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    bytes[owners[i]] += edges[i + 1] - edges[i];
  }
  std::vector<MemoryPart> parts;
  for (int i = 0; i < kPartCount; ++i) {
    if (bytes[i] > 0) {
      parts.push_back({kPartNames[i], bytes[i]});
    }
  }
  parts.push_back({"CUDA and its libraries", kProcessOverheadBytes});
  if (options.world_size > 1) {
    parts.push_back({"NCCL", OverheadBytes(options.world_size) - kProcessOverheadBytes});
  }
  return parts;
}

double ActivationBytesPerToken(const TrainingPlan& plan, const TrainingPlanOptions& options) {
  const BlockScope scope(options);
  auto bytes = static_cast<double>(plan.ClassBytes(BufferClass::kActivations));
  for (const Block* block : Blocks()) {
    if (PlacesOf(*block, options.shape).empty()) {
      continue;
    }
    for (const ActivationRow& row : block->activations(scope)) {
      if (row.StandsIn(options)) {
        double values = 1;
        for (const int64_t extent : row.shape) {
          values *= static_cast<double>(extent);
        }
        bytes += row.shape.empty() ? static_cast<double>(row.bytes)
                                   : values * DTypeBits(row.format) / 8.0;
      }
    }
  }
  return bytes / static_cast<double>(scope.tokens);
}

}  // namespace hearth::spec
