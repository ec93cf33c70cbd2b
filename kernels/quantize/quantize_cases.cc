#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/harness/cases.h"
#include "kernels/quantize/quantize.h"

namespace hearth::kernels::harness {
namespace {

struct Shape : MatrixShape {  // of the first tensor; the second is [cols, 2 rows] in E5M2
  bool skip = false;
};

// Columns only where both extents are multiples of 16.
constexpr Shape kShapes[] = {
    {{"rows_7x13", 7, 13}},           {{"rows_33x130", 33, 130}},
    {{"both_16x16", 16, 16}},         {{"both_208x144", 208, 144}},
    {{"both_32x1040", 32, 1040}},     {{"skipped_48x32", 48, 32}, true},
    {{"perf_36864x768", 36864, 768}},
};

// Both tensors in one call; the counter must rise by two.
OpCase QuantizeCase(const Shape& s) {
  OpCase c = NewExactCase("quantize", s.name);
  c.cuda_only = c.perf;
  const Fill skip = {Fill::kConstant, s.skip ? 1.0 : 0.0, 0.0};
  c.buffers = {{"x", {s.rows, s.cols}, Role::kInput, {Fill::kNormal, 0.0, 3.0}},
               {"z", {s.cols, 2 * s.rows}},
               {"skip", {1}, Role::kInput, skip, DType::kI32},
               Struct("counter", uint64_t{40}, Role::kAccumulate)};
  if (s.skip) {
    // Nothing may be written: the copies are plain buffers that stay as they are.
    c.buffers.push_back({"kept", {s.rows, s.cols}, Role::kAccumulate, {}, DType::kE4M3});
  } else {
    AddQuantised(c, "x", {s.rows, s.cols}, DType::kE4M3, false);
    AddQuantised(c, "z", {s.cols, 2 * s.rows}, DType::kE5M2, false);
  }
  c.forward = [skipped = s.skip](const Exec& exec, const Buffers& b) {
    std::array<QuantizeTensor, 2> tensors = {
        {{b["x"], b.Quant("x_quant")}, {b["z"], b.Quant("z_quant")}}};
    QuantizeArgs args;
    args.tensors = tensors;
    if (skipped) {
      tensors[0].quant.rows = b["kept"].data;
      tensors[0].quant.scale = static_cast<const float*>(b["x"].data);  // any float
      args.tensors = args.tensors.first(1);
    }
    args.counter = b["counter"].as<uint64_t>();
    args.skip = b["skip"].as<int32_t>();
    return Quantize(exec, args);
  };
  c.check = [skipped = s.skip](const Buffers& b) -> std::string {
    return b.Get("counter", 0) == (skipped ? 40.0 : 42.0) ? "" : "counter is wrong";
  };
  c.double_reference = false;
  c.forward_traffic = {"x", "z", "x_quant", "z_quant"};
  return c;
}

// More tensors than a GPU takes in one launch, of different shapes.
OpCase ManyCase() {
  constexpr int kCount = 270;
  constexpr int64_t kExtents[][2] = {{16, 16}, {3, 7}, {80, 144}, {1, 8200}, {48, 24}};
  OpCase c = NewExactCase("quantize", absl::StrCat("many_", kCount));
  for (int i = 0; i < kCount; ++i) {
    const std::string x = absl::StrCat("x", i);
    const std::vector<int64_t> shape = {kExtents[i % 5][0], kExtents[i % 5][1]};
    c.buffers.push_back({x, shape});
    AddQuantised(c, x, shape, i % 2 == 0 ? DType::kE4M3 : DType::kE5M2, false);
  }
  c.buffers.push_back(Struct("counter", uint64_t{40}, Role::kAccumulate));
  c.forward = [](const Exec& exec, const Buffers& b) {
    std::vector<QuantizeTensor> tensors;
    for (int i = 0; i < kCount; ++i) {
      tensors.push_back({b[absl::StrCat("x", i)], b.Quant(absl::StrCat("x", i, "_quant"))});
    }
    return Quantize(exec, {tensors, b["counter"].as<uint64_t>(), nullptr});
  };
  c.check = [](const Buffers& b) -> std::string {
    return b.Get("counter", 0) == 40.0 + kCount ? "" : "counter is wrong";
  };
  c.double_reference = false;
  return c;
}

struct ScalesShape {
  const char* name;
  int64_t n, history;
  bool skip;
};

constexpr ScalesShape kScales[] = {
    {"current_scales_37", 37, 0, false},
    {"delayed_scales_130", 130, 16, false},
    {"skipped_scales_130", 130, 16, true},
};

OpCase ScalesCase(const ScalesShape& s) {
  OpCase c = NewExactCase("quantize", s.name);
  const Fill positive = {Fill::kUniform, 0.0, 5.0};
  const Fill skip = {Fill::kConstant, s.skip ? 1.0 : 0.0, 0.0};
  const int64_t slots = s.history > 0 ? s.history : 1;
  c.buffers = {
      {"amax", {s.n}, Role::kAccumulate, positive, DType::kU8},
      {"ring", {slots, s.n}, Role::kAccumulate, positive, DType::kU8},
      {"scale", {s.n}, Role::kAccumulate, positive, DType::kU8},
      {"scale_inverse", {s.n, kScaleInverseStride}, Role::kAccumulate, positive, DType::kU8},
      {"skip", {1}, Role::kInput, skip, DType::kI32},
      Struct("cursor", int64_t{21}, Role::kAccumulate)};
  c.forward = [s](const Exec& exec, const Buffers& b) {
    std::vector<DType> dtypes(static_cast<size_t>(s.n), DType::kE4M3);
    dtypes[static_cast<size_t>(s.n / 2)] = DType::kE5M2;
    UpdateScalesArgs args;
    args.n = s.n;
    args.history = s.history;
    args.amax = b["amax"].as<float>();
    args.scale = b["scale"].as<float>();
    args.scale_inverse = b["scale_inverse"].as<float>();
    args.dtypes = dtypes;
    args.skip = b["skip"].as<int32_t>();
    if (s.history > 0) {
      args.ring = b["ring"].as<float>();
      args.cursor = b["cursor"].as<int64_t>();
    }
    // Twice: the ring moves on.
    HEARTH_RETURN_IF_ERROR(UpdateScales(exec, args));
    return UpdateScales(exec, args);
  };
  c.double_reference = false;
  return c;
}

}  // namespace

// Class exact: the same bits on both devices.
std::vector<OpCase> QuantizeCases() {
  std::vector<OpCase> cases = CasesOf(kShapes, QuantizeCase, kScales, ScalesCase);
  cases.push_back(ManyCase());
  return cases;
}

}  // namespace hearth::kernels::harness
