#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/harness/cases.h"
#include "kernels/weight_blocks/weight_blocks.h"

namespace hearth::kernels::harness {
namespace {

using formats::WeightCodec;

struct Shape {
  const char* name;
  WeightCodec codec;
  int64_t count;
  bool skip = false;
};

constexpr Shape kShapes[] = {
    {"q8_0_256", WeightCodec::kQ80, 256},
    {"q8_0_9984", WeightCodec::kQ80, 9984},
    {"q4_0_128", WeightCodec::kQ40, 128},
    {"q4_0_20352", WeightCodec::kQ40, 20352},
    {"nvfp4_128", WeightCodec::kNvfp4, 128},
    {"nvfp4_9088", WeightCodec::kNvfp4, 9088},
    {"skipped_1024", WeightCodec::kQ80, 1024, true},
    {"perf_q8_0_8m", WeightCodec::kQ80, int64_t{8} << 20},
    {"perf_q4_0_8m", WeightCodec::kQ40, int64_t{8} << 20},
    {"perf_nvfp4_8m", WeightCodec::kNvfp4, int64_t{8} << 20},
};

// Values in fp32 on every device.
BufferSpec Wide(std::string name, int64_t count, Role role, Fill fill = {}) {
  BufferSpec spec;
  spec.name = std::move(name);
  spec.shape = {count};
  spec.role = role;
  spec.fill = fill;
  spec.dtype = DType::kU8;
  return spec;
}

// Largest step between neighbouring values under a scale that a group may have, over its largest
// magnitude: 1/56, 1/3.5 and 2/2.5, as a group keeps its scale down to half of the codes.
double StepOf(WeightCodec codec) {
  return codec == WeightCodec::kQ80 ? 1 / 56.0 : codec == WeightCodec::kQ40 ? 1 / 3.5 : 0.8;
}

std::string Check(const Shape& s, const Buffers& b) {
  const std::vector<double> x = b.Values("x");
  const std::vector<double> next = b.Values("next");
  const std::vector<double> first = b.Values("first");
  const std::vector<double> second = b.Values("second");
  const auto group = static_cast<size_t>(formats::RowOf(s.codec).group);
  double largest = 0;
  for (size_t g = 0; g < x.size(); g += group) {
    double amax = 0;
    double next_amax = 0;
    for (size_t i = g; i < g + group; ++i) {
      amax = std::max(amax, std::fabs(x[i]));
      next_amax = std::max(next_amax, std::fabs(next[i]));
    }
    for (size_t i = g; i < g + group; ++i) {
      if (std::fabs(first[i] - x[i]) > 0.51 * StepOf(s.codec) * amax) {
        return absl::StrCat("x[", i, "] = ", x[i], " is rounded to ", first[i]);
      }
      if (s.skip ? second[i] != first[i]
                 : std::fabs(second[i] - next[i]) > 1.01 * StepOf(s.codec) * next_amax) {
        return absl::StrCat("next[", i, "] = ", next[i], " becomes ", second[i]);
      }
      largest = std::max(largest, double{DecodeBf16(EncodeBf16(static_cast<float>(second[i])))} *
                                      (second[i] < 0 ? -1 : 1));
    }
  }
  const double amax = b.Values("amax")[0];
  return s.skip || amax == largest ? "" : absl::StrCat("amax is ", amax, ", not ", largest);
}

absl::Status Run(const Shape& s, const Exec& exec, const Buffers& b) {
  const TensorView blocks(b["blocks"].data, DType::kU8, {formats::RowOf(s.codec).Bytes(s.count)});
  EncodeWeightsArgs encode;
  encode.codec = s.codec;
  encode.x = b["x"];
  encode.blocks = blocks;
  HEARTH_RETURN_IF_ERROR(EncodeWeights(exec, encode));
  DecodeWeightsArgs decode;
  decode.codec = s.codec;
  decode.blocks = blocks;
  decode.y = b["first"];
  HEARTH_RETURN_IF_ERROR(DecodeWeights(exec, decode));
  encode.x = b["next"];
  encode.keep = true;
  encode.seed = 11;
  encode.step = 3;
  encode.index = 5;
  encode.first_element = 512;
  encode.skip = b["skip"].as<int32_t>();
  encode.amax = b["amax"].as<float>();
  HEARTH_RETURN_IF_ERROR(EncodeWeights(exec, encode));
  decode.y = b["second"];
  return DecodeWeights(exec, decode);
}

OpCase MakeCase(const Shape& s) {
  OpCase c = NewExactCase("weight_blocks", s.name);
  BufferSpec skip;
  skip.name = "skip";
  skip.shape = {1};
  skip.fill = {Fill::kConstant, s.skip ? 1.0 : 0.0, 0.0};
  skip.dtype = DType::kI32;
  c.buffers = {Wide("x", s.count, Role::kInput, {Fill::kNormal, 0.0, 0.02}),
               Wide("next", s.count, Role::kInput, {Fill::kNormal, 0.0, 0.021}),
               skip,
               Words("blocks", static_cast<size_t>(formats::RowOf(s.codec).Bytes(s.count))),
               Wide("first", s.count, Role::kOutput),
               Wide("second", s.count, Role::kOutput),
               Wide("amax", 1, Role::kAccumulate, {Fill::kConstant, 0.0, 0.0})};
  c.forward = [s](const Exec& exec, const Buffers& b) { return Run(s, exec, b); };
  c.forward_traffic = {"x", "blocks", "blocks", "first", "next", "blocks", "blocks", "second"};
  if (!c.perf) {
    c.check = [s](const Buffers& b) { return Check(s, b); };
  }
  c.double_reference = false;
  return c;
}

}  // namespace

std::vector<OpCase> WeightBlocksCases() {
  return CasesOf(kShapes, MakeCase);
}

}  // namespace hearth::kernels::harness
