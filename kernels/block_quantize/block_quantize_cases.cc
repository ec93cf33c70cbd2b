#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/harness/block_forms.h"
#include "kernels/harness/cases.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels::harness {
namespace {

using Signs = HadamardSigns;

struct FormShape {
  Rounding rounding = Rounding::kNearest;
  int16_t hadamard = 0;
  Signs signs = Signs::kFixed;
  bool wanted = true;
};

enum class Special : uint8_t { kNone, kAdversarial, kSkipped, kPerf, kUnbiased };

struct Blocks {
  BlockLayout layout;
  DType dtype;
};
constexpr Blocks kNvfp4 = {BlockLayout::kNvfp4, DType::kE2M1};
constexpr Blocks kFp8Block = {BlockLayout::kFp8Block, DType::kE4M3};
constexpr Blocks kFp8BlockE5m2 = {BlockLayout::kFp8Block, DType::kE5M2};
constexpr Blocks kMxfp8 = {BlockLayout::kMxfp8, DType::kE4M3};
constexpr Blocks kMxfp8E5m2 = {BlockLayout::kMxfp8, DType::kE5M2};

struct Shape {
  const char* name;
  int64_t R, C;
  Blocks blocks;
  FormShape rows, columns;
  bool square = false;
  Special special = Special::kNone;
};

constexpr FormShape kAbsent = {Rounding::kNearest, 0, Signs::kFixed, false};

constexpr Shape kShapes[] = {
    {"nvfp4_rows_7x64", 7, 64, kNvfp4, {}, kAbsent},
    {"nvfp4_columns_64x16", 64, 16, kNvfp4, kAbsent, {}},
    {"nvfp4_nearest_96x160", 96, 160, kNvfp4, {}, {}},
    {"nvfp4_square_160x288", 160, 288, kNvfp4, {}, {}, true},
    {"nvfp4_nvidia_gradient_160x192",
     160,
     192,
     kNvfp4,
     {Rounding::kStochastic},
     {Rounding::kStochastic, 16, Signs::kFixed}},
    {"nvfp4_unclipped_64x96",
     64,
     96,
     kNvfp4,
     {Rounding::kStochasticUnclipped, 32, Signs::kSeeded},
     {Rounding::kStochasticUnclipped, 64, Signs::kSeeded}},
    {"nvfp4_quartet_input_256x192",
     256,
     192,
     kNvfp4,
     {Rounding::kFourOverSix},
     {Rounding::kEden, 128, Signs::kSeeded}},
    {"nvfp4_quartet_gradient_128x384",
     128,
     384,
     kNvfp4,
     {Rounding::kEden, 128, Signs::kSeeded},
     {Rounding::kEden, 128, Signs::kSeeded}},
    {"nvfp4_eden_small_groups_96x160",
     96,
     160,
     kNvfp4,
     {Rounding::kEden, 16, Signs::kFixed},
     {Rounding::kEden, 32, Signs::kSeeded}},
    {"mxfp8_e5m2_stochastic_96x64",
     96,
     64,
     kMxfp8E5m2,
     {Rounding::kStochastic},
     {Rounding::kStochastic, 32, Signs::kSeeded}},
    {"nvfp4_adversarial_square_128x192",
     128,
     192,
     kNvfp4,
     {Rounding::kStochasticUnclipped},
     {},
     true,
     Special::kAdversarial},
    {"nvfp4_adversarial_eden_128x256",
     128,
     256,
     kNvfp4,
     {Rounding::kEden, 128, Signs::kSeeded},
     {Rounding::kFourOverSix},
     false,
     Special::kAdversarial},
    {"mxfp8_adversarial_e5m2_128x192", 128, 192, kMxfp8E5m2, {}, {}, false, Special::kAdversarial},
    {"fp8_block_rows_7x96", 7, 96, kFp8Block, {}, kAbsent},
    {"fp8_block_square_160x352", 160, 352, kFp8Block, {}, {}, true},
    {"fp8_block_e5m2_stochastic_96x192",
     96,
     192,
     kFp8BlockE5m2,
     {Rounding::kStochastic},
     {Rounding::kStochastic, 32, Signs::kSeeded}},
    {"nvfp4_skipped_32x32", 32, 32, kNvfp4, {}, {}, false, Special::kSkipped},
    {"nvfp4_unbiased_1024x1024",
     1024,
     1024,
     kNvfp4,
     {Rounding::kStochasticUnclipped},
     {Rounding::kStochasticUnclipped},
     false,
     Special::kUnbiased},
    {"perf_nvfp4_rows_8192x3072", 8192, 3072, kNvfp4, {}, kAbsent, false, Special::kPerf},
    {"perf_nvfp4_nearest_8192x3072", 8192, 3072, kNvfp4, {}, {}, false, Special::kPerf},
    {"perf_nvfp4_square_3072x3072", 3072, 3072, kNvfp4, {}, {}, true, Special::kPerf},
    {"perf_nvfp4_nvidia_gradient_8192x3072",
     8192,
     3072,
     kNvfp4,
     {Rounding::kStochastic},
     {Rounding::kStochastic, 16, Signs::kFixed},
     false,
     Special::kPerf},
    {"perf_nvfp4_quartet_input_8192x3072",
     8192,
     3072,
     kNvfp4,
     {Rounding::kFourOverSix},
     {Rounding::kEden, 128, Signs::kSeeded},
     false,
     Special::kPerf},
    {"perf_nvfp4_quartet_gradient_8192x3072",
     8192,
     3072,
     kNvfp4,
     {Rounding::kEden, 128, Signs::kSeeded},
     {Rounding::kEden, 128, Signs::kSeeded},
     false,
     Special::kPerf},
    {"perf_mxfp8_8192x3072", 8192, 3072, kMxfp8, {}, {}, false, Special::kPerf},
    {"perf_fp8_block_8192x3072", 8192, 3072, kFp8Block, {}, {}, false, Special::kPerf},
    {"perf_fp8_block_square_3072x3072", 3072, 3072, kFp8Block, {}, {}, true, Special::kPerf},
};

// Every power of two, zeros of both signs, subnormals, the largest values, infinities and NaN, and
// whole rows of each of zero, subnormal and largest.
std::string Adversarial(int64_t count, int64_t cols) {
  constexpr uint32_t kSpecials[] = {0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000,
                                    0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800001, 0x40BFFFFF,
                                    0x40C00001, 0x43E00000, 0x47600000};
  std::vector<uint32_t> bits(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i / cols;
    const uint32_t word = RngWord({3, RngPurpose::kTest, 0, 0, 0}, static_cast<uint64_t>(i));
    uint32_t& at = bits[static_cast<size_t>(i)];
    if (row % 32 < 4) {
      constexpr uint32_t kRows[] = {0x00000000, 0x00000003, 0x7F7FFFFF, 0x80000000};
      at = kRows[row % 4];
    } else if (row % 32 < 8) {
      at = kSpecials[word % std::size(kSpecials)];
    } else if (row % 32 < 24) {
      // Near each other, with ties of E2M1 once scaled.
      at = (word & 0x80000000) | ((120 + word % 12) << 23) | (word & 0x600000);
    } else {
      at = word & ~0x01000000U;  // never infinite, every other exponent
    }
  }
  for (const int64_t at : {cols * 9 + 5, cols * 40 + 100, cols * 77}) {
    bits[static_cast<size_t>(at)] = at % 2 == 0 ? 0x7F800000 : 0xFFC00001;
  }
  return std::string(reinterpret_cast<const char*>(bits.data()), bits.size() * sizeof(bits[0]));
}

void AddForm(OpCase& c,
             const Shape& s,
             const FormShape& form,
             const std::string& name,
             int64_t lines,
             int64_t extent) {
  if (!form.wanted) {
    return;
  }
  const Fill zero = {Fill::kConstant, 0.0, 0.0};
  const Role out = s.special == Special::kSkipped ? Role::kAccumulate : Role::kOutput;
  c.buffers.push_back(Words(name + ".values", DTypeBytes(s.blocks.dtype, lines * extent)));
  c.buffers.push_back(Words(name + ".scales", BlockScaleBytes(s.blocks.layout, lines, extent)));
  c.buffers.push_back({name + ".tensor_scale", {1}, Role::kAccumulate, zero, DType::kU8});
  c.buffers.push_back({name + ".measured", {1}, Role::kAccumulate, zero, DType::kU8});
  c.buffers.push_back({name + ".counts", {2}, Role::kAccumulate, zero, DType::kI64});
  for (size_t i = c.buffers.size() - 5; i < c.buffers.size() - 3; ++i) {
    c.buffers[i].role = out;
    c.buffers[i].fill = zero;
  }
  c.forward_traffic.push_back(name + ".values");
  c.forward_traffic.push_back(name + ".scales");
  if (s.special != Special::kPerf && s.special != Special::kSkipped) {
    c.buffers.push_back({name + ".back", {lines, extent}, Role::kOutput});
  }
}

BlockForm FormOf(const Shape& s,
                 const FormShape& shape,
                 const Buffers& b,
                 const std::string& name) {
  BlockForm form;
  if (!shape.wanted) {
    return form;
  }
  const bool tensor_scale = RowOf(s.blocks.layout).tensor_scale;
  form.values = b[name + ".values"].data;
  form.scales = b[name + ".scales"].as<uint8_t>();
  form.amax = tensor_scale ? b["amax"].as<float>() : nullptr;
  form.tensor_scale = tensor_scale ? b[name + ".tensor_scale"].as<float>() : nullptr;
  form.measured = b[name + ".measured"].as<float>();
  form.counts = s.special == Special::kPerf ? nullptr : b[name + ".counts"].as<uint64_t>();
  form.rounding = shape.rounding;
  form.hadamard = shape.hadamard;
  form.signs = shape.signs;
  return form;
}

absl::Status Run(const Shape& s, const Exec& exec, const Buffers& b) {
  BlockQuantizeTensor tensor;
  tensor.x = b["x"];
  tensor.quant.layout = s.blocks.layout;
  tensor.quant.dtype = s.blocks.dtype;
  tensor.quant.square = s.square;
  tensor.quant.rows = FormOf(s, s.rows, b, "rows");
  tensor.quant.columns = FormOf(s, s.columns, b, "columns");
  tensor.quant.amax = b["measured"].as<float>();
  tensor.quant.key = {11, RngPurpose::kTest, 3, 4, 5};
  tensor.quant.position = b["position"].as<StepInputs>();
  tensor.quant.rotation = 2;
  BlockQuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  args.skip = b["skip"].as<int32_t>();
  HEARTH_RETURN_IF_ERROR(BlockQuantize(exec, args));
  for (const char* form : {"rows", "columns"}) {
    const std::string name = form;
    const TensorView back = b[name + ".back"];
    if (!back.empty()) {
      const BlockScaledView view = {s.blocks.layout, s.blocks.dtype, b[name + ".values"].data,
                                    b[name + ".scales"].as<uint8_t>(), nullptr};
      HEARTH_RETURN_IF_ERROR(BlockDequantize(exec, {view, back}));
    }
  }
  return absl::OkStatus();
}

// Over a million draws of each form: the mean error within 4 standard errors of 0, and values.
std::string CheckMean(const Shape& s, const Buffers& b) {
  const std::vector<double> x = b.Values("x");
  for (const char* form : {"rows", "columns"}) {
    const std::vector<double> back = b.Values(absl::StrCat(form, ".back"));
    const double scale = b.Get(absl::StrCat(form, ".tensor_scale"), 0);
    const bool transposed = form[0] == 'c';
    double sum = 0.0;
    double squares = 0.0;
    double magnitude = 0.0;
    for (int64_t i = 0; i < s.R * s.C; ++i) {
      const int64_t at = transposed ? i % s.C * s.R + i / s.C : i;
      const double error = back[static_cast<size_t>(at)] * scale - x[static_cast<size_t>(i)];
      sum += error;
      squares += error * error;
      magnitude += std::fabs(back[static_cast<size_t>(at)]);
    }
    const double n = static_cast<double>(x.size());
    if (!(magnitude > 0.0)) {
      return absl::StrCat(form, ": nothing but zeros");
    }
    if (!(std::fabs(sum / n) < 4.0 * std::sqrt(squares / n / n))) {
      return absl::StrCat(form, ": mean error ", sum / n, ", standard error ",
                          std::sqrt(squares / n / n));
    }
  }
  return "";
}

std::string CheckSkipped(const Buffers& b) {
  for (const double word : b.Values("rows.values")) {
    if (word != 0.0) {
      return "written in spite of skip";
    }
  }
  return "";
}

OpCase BlockQuantizeCase(const Shape& s) {
  OpCase c = NewExactCase("block_quantize", s.name);
  c.cuda_only = c.perf;
  c.forward_traffic = {"x"};
  const Fill normal = {Fill::kNormal, 0.0, 1.5};
  const Fill uniform = {Fill::kUniform, 0.2, 3.0};
  c.buffers = {{"x", {s.R, s.C}, Role::kInput, s.special == Special::kUnbiased ? uniform : normal}};
  if (s.special == Special::kAdversarial) {
    c.buffers[0].dtype = DType::kU8;  // the same floats on every device
    c.buffers[0].contents = Adversarial(s.R * s.C, s.C);
  }
  const Fill skip = {Fill::kConstant, s.special == Special::kSkipped ? 1.0 : 0.0, 0.0};
  c.buffers.push_back({"skip", {1}, Role::kInput, skip, DType::kI32});
  StepInputs position;
  position.step = 9;
  position.micro_batch = 2;
  c.buffers.push_back(Struct("position", position));
  // Less than the largest of normal values: some blocks saturate.
  const double amax = s.special == Special::kAdversarial ? 700.0 : 4.0;
  c.buffers.push_back({"amax", {1}, Role::kInput, {Fill::kConstant, amax, 0.0}, DType::kU8});
  const Fill zero = {Fill::kConstant, 0.0, 0.0};
  c.buffers.push_back({"measured", {1}, Role::kAccumulate, zero, DType::kU8});
  AddForm(c, s, s.rows, "rows", s.R, s.C);
  AddForm(c, s, s.columns, "columns", s.C, s.R);
  c.forward = [s](const Exec& exec, const Buffers& b) { return Run(s, exec, b); };
  if (s.special == Special::kUnbiased) {
    c.check = [s](const Buffers& b) { return CheckMean(s, b); };
  } else if (s.special == Special::kSkipped) {
    c.check = CheckSkipped;
  }
  c.double_reference = false;
  return c;
}

// More tensors than a GPU takes in one launch: weights of a model, squares.
OpCase ManyCase() {
  constexpr int kCount = 100;
  constexpr int64_t kExtents[][2] = {{32, 32}, {160, 96}, {96, 288}};
  OpCase c = NewExactCase("block_quantize", absl::StrCat("nvfp4_many_", kCount));
  c.buffers = {{"amax", {1}, Role::kInput, {Fill::kConstant, 5.0, 0.0}, DType::kU8},
               {"tensor_scale", {1}, Role::kAccumulate, {Fill::kConstant, 0.0, 0.0}, DType::kU8}};
  for (int i = 0; i < kCount; ++i) {
    const int64_t rows = kExtents[i % 3][0];
    const int64_t cols = kExtents[i % 3][1];
    const std::string name = absl::StrCat("x", i);
    c.buffers.push_back({name, {rows, cols}});
    for (const char* form : {".rows", ".columns"}) {
      c.buffers.push_back(Words(absl::StrCat(name, form), DTypeBytes(DType::kE2M1, rows * cols)));
    }
    c.buffers.push_back(
        Words(name + ".row_scales", BlockScaleBytes(BlockLayout::kNvfp4, rows, cols)));
    c.buffers.push_back(
        Words(name + ".column_scales", BlockScaleBytes(BlockLayout::kNvfp4, cols, rows)));
  }
  c.forward = [](const Exec& exec, const Buffers& b) {
    std::vector<BlockQuantizeTensor> tensors(kCount);
    for (int i = 0; i < kCount; ++i) {
      BlockQuantizeTensor& tensor = tensors[static_cast<size_t>(i)];
      const std::string name = absl::StrCat("x", i);
      tensor.x = b[name];
      tensor.quant.square = true;
      BlockForm& rows = tensor.quant.rows;
      rows.values = b[name + ".rows"].data;
      rows.scales = b[name + ".row_scales"].as<uint8_t>();
      rows.amax = b["amax"].as<float>();
      rows.tensor_scale = b["tensor_scale"].as<float>();
      tensor.quant.columns = rows;
      tensor.quant.columns.values = b[name + ".columns"].data;
      tensor.quant.columns.scales = b[name + ".column_scales"].as<uint8_t>();
    }
    return BlockQuantize(exec, {tensors, nullptr});
  };
  c.double_reference = false;
  return c;
}

OpCase UpdateCase(bool skip) {
  constexpr int64_t kCount = 301;
  OpCase c = NewExactCase("block_quantize", skip ? "skipped_update_301" : "update_301");
  const Fill positive = {Fill::kUniform, 0.0, 5.0};
  std::string measured(kCount * sizeof(float), '\0');
  constexpr uint32_t kUnusable[] = {0x00000000, 0x7F800000, 0x7FC00000, 0x7F7FFFFF};
  for (int64_t i = 0; i < kCount; ++i) {
    const uint32_t bits = i % 7 < 4 ? kUnusable[i % 7] : 0x3F800000U + static_cast<uint32_t>(i);
    std::memcpy(&measured[static_cast<size_t>(i) * sizeof(bits)], &bits, sizeof(bits));
  }
  c.buffers = {{"measured", {kCount}, Role::kAccumulate, positive, DType::kU8},
               {"amax", {kCount}, Role::kAccumulate, positive, DType::kU8},
               {"skip", {1}, Role::kInput, {Fill::kConstant, skip ? 1.0 : 0.0, 0.0}, DType::kI32}};
  c.buffers[0].contents = measured;
  c.forward = [](const Exec& exec, const Buffers& b) {
    UpdateBlockAmaxArgs args;
    args.n = kCount;
    args.measured = b["measured"].as<float>();
    args.amax = b["amax"].as<float>();
    args.margin = 4.0F;
    args.skip = b["skip"].as<int32_t>();
    return UpdateBlockAmax(exec, args);
  };
  c.double_reference = false;
  return c;
}

}  // namespace

std::vector<OpCase> BlockQuantizeCases() {
  std::vector<OpCase> cases =
      CasesOf(kShapes, BlockQuantizeCase, std::array{false, true}, UpdateCase);
  AddCaseOfEachLayout(cases, [](const BlockStyle& style) {
    return BlockQuantizeCase({"160x288", 160, 288, {style.layout, style.dtype}, {}, {}});
  });
  AddCaseOfEachLayout(cases, [](const BlockStyle& style) {
    return BlockQuantizeCase({"adversarial_160x192",
                              160,
                              192,
                              {style.layout, style.dtype},
                              {},
                              {Rounding::kStochastic},
                              false,
                              Special::kAdversarial});
  });
  AddCaseOfEachLayout(cases, [](const BlockStyle& style) {
    return BlockQuantizeCase({"adversarial_square_128x192",
                              128,
                              192,
                              {style.layout, style.dtype},
                              {},
                              {},
                              RowOf(style.layout).square,
                              Special::kAdversarial});
  });
  cases.push_back(ManyCase());
  return cases;
}

}  // namespace hearth::kernels::harness
