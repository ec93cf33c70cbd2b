#include "common/spec/gpus.h"

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
  for (const GpuRow& row : kGpus) {
    if (name.find(row.name) != std::string_view::npos) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace hearth::spec
