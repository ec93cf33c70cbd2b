#include "kernels/harness/block_forms.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels::harness {
namespace {

constexpr const char* kForms[] = {".rows", ".columns"};
constexpr const char* kParts[] = {".values", ".scales", ".tensor_scale", ".measured", ".counts"};
constexpr const char* kPosition = "block_position";
constexpr const char* kAmax = "block_amax";

void AddCopy(
    OpCase& c, const std::string& copy, int64_t rows, int64_t cols, const BlockStyle& style) {
  const Fill zero = {Fill::kConstant, 0.0, 0.0};
  for (const char* form : kForms) {
    const bool transposed = form == kForms[1];
    const int64_t lines = transposed ? cols : rows;
    const int64_t extent = transposed ? rows : cols;
    const std::string name = copy + form;
    c.buffers.push_back(Words(name + ".values", DTypeBytes(style.dtype, lines * extent)));
    c.buffers.push_back(Words(name + ".scales", BlockScaleBytes(style.layout, lines, extent)));
    c.buffers.push_back({name + ".tensor_scale", {1}, Role::kAccumulate, zero, DType::kU8});
    c.buffers.push_back({name + ".measured", {1}, Role::kAccumulate, zero, DType::kU8});
    c.buffers.push_back({name + ".counts", {2}, Role::kAccumulate, zero, DType::kI64});
  }
  c.buffers.push_back({copy + ".amax", {1}, Role::kAccumulate, zero, DType::kU8});
}

BlockForm FormOf(const Buffers& b, const std::string& name, BlockLayout layout) {
  const bool tensor_scale = RowOf(layout).tensor_scale;
  BlockForm form;
  form.values = b[name + ".values"].data;
  form.scales = b[name + ".scales"].as<uint8_t>();
  form.amax = tensor_scale ? b[kAmax].as<float>() : nullptr;
  form.tensor_scale = tensor_scale ? b[name + ".tensor_scale"].as<float>() : nullptr;
  form.measured = b[name + ".measured"].as<float>();
  form.counts = b[name + ".counts"].as<uint64_t>();
  return form;
}

BlockQuantView BlocksOf(const Buffers& b, const std::string& copy, const BlockStyle& style) {
  BlockQuantView quant;
  quant.layout = style.layout;
  quant.dtype = style.dtype;
  quant.rows = FormOf(b, copy + kForms[0], style.layout);
  quant.rows.rounding = style.rows;
  quant.rows.hadamard = style.rows_hadamard;
  quant.rows.signs = style.signs;
  quant.columns = FormOf(b, copy + kForms[1], style.layout);
  quant.columns.rounding = style.columns;
  quant.columns.hadamard = style.columns_hadamard;
  quant.columns.signs = style.signs;
  quant.amax = b[copy + ".amax"].as<float>();
  quant.key = {13, RngPurpose::kTest, 3, 4, 6};
  quant.position = b[kPosition].as<StepInputs>();
  quant.rotation = 1;
  return quant;
}

// Empty, or which part of a copy is not that of BlockQuantize.
std::string Difference(const Buffers& b, const std::string& got, const std::string& want) {
  for (const char* form : kForms) {
    for (const char* part : kParts) {
      if (b.Bytes(absl::StrCat(got, form, part)) != b.Bytes(absl::StrCat(want, form, part))) {
        return absl::StrCat(got, form, part, " is not what BlockQuantize makes");
      }
    }
  }
  return b.Bytes(got + ".amax") == b.Bytes(want + ".amax") ? "" : got + ".amax differs";
}

std::string CheckForms(const Buffers& b, const std::string& of) {
  const std::string want = of + ".want";
  for (const char* made : {".beside", ".alone"}) {
    std::string difference = Difference(b, of + made, want);
    if (!difference.empty()) {
      return difference;
    }
  }
  const std::string values = b.Bytes(want + ".rows.values");
  if (values.find_first_not_of('\0') == std::string::npos || b.Get(want + ".amax", 0) == 0.0) {
    return absl::StrCat(of, ": nothing but zeros");
  }
  return b.Bytes(of) == b.Bytes(of + ".without") ? "" : of + " differs beside block forms";
}

// Empty, or that two sums of the same values are not near each other.
std::string CheckGradient(const Buffers& b, const std::string& of) {
  const std::vector<double> got = b.Values(of);
  const std::vector<double> want = b.Values(of + ".without");
  double squares = 0.0;
  for (const double v : want) {
    squares += v * v;
  }
  const double usual = std::sqrt(squares / static_cast<double>(want.size()));
  const double bound = b.TypeOf(of) == DType::kBF16 ? 0x1p-6 : 0x1p-13;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= bound * (std::abs(want[i]) + usual))) {
      return absl::StrCat(of, "[", i, "] is ", got[i], " beside block forms, else ", want[i]);
    }
  }
  return "";
}

}  // namespace

void AddCaseOfEachLayout(std::vector<OpCase>& cases,
                         absl::FunctionRef<OpCase(const BlockStyle& style)> make) {
  for (const BlockLayoutRow& row : kBlockLayouts) {
    OpCase c = make({row.layout, row.fp4 ? DType::kE2M1 : DType::kE4M3});
    c.name = absl::StrCat("blocks_", row.name, "_", c.name);
    cases.push_back(std::move(c));
  }
}

void AddGradientTwice(OpCase& c, const std::string& of, int64_t cols) {
  BufferSpec spec = WeightGradient(of, {cols});
  spec.fill = {Fill::kConstant, 0.0, 0.0};
  c.buffers.push_back(spec);
  if (c.perf) {
    return;
  }
  spec.name = of + ".without";
  c.buffers.push_back(spec);
  const auto before = c.check;
  c.check = [before, of](const Buffers& b) {
    const std::string error = before ? before(b) : "";
    return error.empty() ? CheckGradient(b, of) : error;
  };
}

void AddBlockForms(
    OpCase& c, const std::string& of, int64_t rows, int64_t cols, const BlockStyle& style) {
  bool shared = false;
  for (const BufferSpec& spec : c.buffers) {
    shared |= spec.name == kPosition;
  }
  if (!shared) {
    StepInputs position;
    position.step = 5;
    position.micro_batch = 3;
    c.buffers.push_back(Struct(kPosition, position));
    // Less than the largest values: some blocks saturate.
    c.buffers.push_back({kAmax, {1}, Role::kInput, {Fill::kConstant, 2.5, 0.0}, DType::kU8});
  }
  AddCopy(c, of + ".alone", rows, cols, style);
  c.double_reference = false;
  if (c.perf) {
    return;
  }
  AddCopy(c, of + ".beside", rows, cols, style);
  AddCopy(c, of + ".want", rows, cols, style);
  c.buffers.push_back({of + ".without", {rows, cols}, Role::kOutput});
  const auto before = c.check;
  c.check = [before, of](const Buffers& b) {
    const std::string error = before ? before(b) : "";
    return error.empty() ? CheckForms(b, of) : error;
  };
}

std::vector<std::string> WithForms(std::vector<std::string> others, const std::string& of) {
  for (const char* form : kForms) {
    for (const char* part : {".values", ".scales"}) {
      others.push_back(absl::StrCat(of, ".alone", form, part));
    }
  }
  return others;
}

absl::Status RunWithBlocks(
    const Exec& exec,
    const Buffers& b,
    const std::string& of,
    const BlockStyle& style,
    absl::FunctionRef<absl::Status(const TensorView&, const BlockQuantView&)> run) {
  HEARTH_RETURN_IF_ERROR(run(TensorView(), BlocksOf(b, of + ".alone", style)));
  if (b[of + ".without"].empty()) {
    return absl::OkStatus();
  }
  HEARTH_RETURN_IF_ERROR(run(b[of + ".without"], BlockQuantView()));
  HEARTH_RETURN_IF_ERROR(run(b[of], BlocksOf(b, of + ".beside", style)));
  BlockQuantizeTensor tensor;
  tensor.x = b[of];
  tensor.quant = BlocksOf(b, of + ".want", style);
  BlockQuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return BlockQuantize(exec, args);
}

}  // namespace hearth::kernels::harness
