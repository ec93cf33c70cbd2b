#include "common/spec/feasibility/state_formats.h"

#include <iterator>

namespace hearth::spec {
namespace {

constexpr double kQ4 = 18.0 / 32;    // Q4_0: 18 bytes for 32 weights
constexpr double kIq3 = 98.0 / 256;  // IQ3_XXS: 98 bytes for 256 weights
// A scale in FP32 for a block of so many values.
constexpr double kScaleOf128 = 4.0 / 128;  // FP8 gradients (1 x 128) and states in 4 bits
constexpr double kScaleOf256 = 4.0 / 256;  // states in 8 bits

constexpr StateFormat kFormats[] = {
    {"BF16 weights with FP32 masters, FP32 gradients, Adam in FP32", 6, 4, 8, 0, true},
    {"BF16 weights with FP32 masters, BF16 gradients, Adam in FP32", 6, 2, 8, 0, true},
    {"FP16 weights and gradients, Adam in FP32", 2, 2, 8},
    // FP8 products want weights along both dimensions (two bytes); moments in BF16 as DeepSeek-V3.
    {"FP8 weights along both dimensions, FP16 gradients, Adam in BF16", 2, 2, 4},
    {"Q4_0 weights, FP16 gradients, Adam in FP32", kQ4, 2, 8},
    {"Q4_0 weights, FP16 gradients, Muon in FP16", kQ4, 2, 2},
    {"Q4_0 weights, FP16 gradients, Muon in 8 bits", kQ4, 2, 1, kScaleOf256},
    {"Q4_0 weights, FP16 gradients, Muon in 4 bits", kQ4, 2, 0.5, kScaleOf128},
    {"Q4_0 weights, FP8 gradients, Muon in 4 bits", kQ4, 1, 0.5, 2 * kScaleOf128},
    {"IQ3_XXS weights, FP16 gradients, Muon in 4 bits", kIq3, 2, 0.5, kScaleOf128},
    {"IQ3_XXS weights, FP8 gradients, Muon in 4 bits", kIq3, 1, 0.5, 2 * kScaleOf128},
};
constexpr const StateFormat* kTiers[] = {&kFormats[2], &kFormats[7], &kFormats[10]};

}  // namespace

absl::Span<const StateFormat> StateFormats() {
  return kFormats;
}

absl::Span<const StateFormat* const> StateTiers() {
  return kTiers;
}

double LargestParameters(double memory_gb, double bytes_per_parameter) {
  return kParameterShare * memory_gb * 1e9 / bytes_per_parameter;
}

}  // namespace hearth::spec
