#include "common/spec/plan/gpus.h"

#include "absl/strings/ascii.h"

namespace hearth::spec {
namespace {

constexpr GpuRow kGpus[] = {
    {"H200", 989.4e12, 1978.9e12, 4.8e12},
    {"H100 PCIe", 756e12, 1513e12, 2.0e12},
    {"H100", 989.4e12, 1978.9e12, 3.35e12},
    {"GH200", 989.4e12, 1978.9e12, 4.0e12},
    {"RTX 5090", 209.5e12, 419e12, 1.792e12},
    {"RTX 4090", 165.2e12, 330.3e12, 1.008e12},
    {"A100", 312e12, 0, 2.039e12},
    {"RTX A6000", 154.8e12, 0, 0.768e12},
    {"RTX 3090", 71.2e12, 0, 0.936e12},
    {"RTX 3060", 25.5e12, 0, 0.36e12},
};

}  // namespace

absl::Span<const GpuRow> Gpus() {
  return kGpus;
}

const GpuRow* FindGpu(std::string_view name) {
  const auto inside_word = [name](size_t at) {
    return at < name.size() && absl::ascii_isalnum(static_cast<unsigned char>(name[at]));
  };
  const GpuRow* found = nullptr;
  for (const GpuRow& row : kGpus) {
    for (size_t at = name.find(row.name); at != std::string_view::npos;
         at = name.find(row.name, at + 1)) {
      // A GH200 is no H200, an H100 PCIe no H100.
      const bool whole = (at == 0 || !inside_word(at - 1)) && !inside_word(at + row.name.size());
      if (whole && (found == nullptr || row.name.size() > found->name.size())) {
        found = &row;
      }
    }
  }
  return found;
}

int64_t PlannableBytes(std::string_view device, int64_t memory_bytes, int world_size) {
  return device == "cuda" ? memory_bytes - OverheadBytes(world_size) : memory_bytes;
}

}  // namespace hearth::spec
