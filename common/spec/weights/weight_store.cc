#include "common/spec/weights/weight_store.h"

#include "common/base/table_rows.h"

namespace hearth::spec {
namespace {

using formats::WeightCodec;

constexpr WeightStoreRow kRows[] = {
    {.name = "bf16", .comment = "the weights of the recipe, with the masters of optimizer.master"},
    {.name = "int8",
     .comment = "ggml's Q8_0: 32 weights of 8 bits and an FP16 scale, 1.0625 bytes each",
     .codec = WeightCodec::kQ80},
    {.name = "q4_0",
     .comment = "ggml's Q4_0: 32 weights of 4 bits and an FP16 scale, 0.5625 bytes each",
     .codec = WeightCodec::kQ40},
    {.name = "nvfp4",
     .comment = "ggml's NVFP4: 16 weights in E2M1 and an E4M3 scale, 0.5625 bytes each",
     .codec = WeightCodec::kNvfp4},
    {.name = "iq3_xxs",
     .comment = "ggml's IQ3_XXS: refused",
     .refusal =
         "cannot be trained: its codes come from a search over a grid of four weights at a "
         "time, which has no unbiased rounding, so small updates would be lost at each "
         "step (docs/low-bit-limits.md); train with q4_0 and let llama-quantize make IQ3_XXS of "
         "the exported model"},
};

}  // namespace

bool WeightStoreRow::Takes(const Parameter& parameter) const {
  return in_blocks() && parameter.group == ParameterGroup::kMatrix && parameter.shape.size() == 2 &&
         parameter.shape[1] % formats::RowOf(codec).block == 0;
}

absl::Span<const WeightStoreRow> WeightStoreRows() {
  return kRows;
}

const WeightStoreRow* FindWeightStore(std::string_view name) {
  return FindRow(WeightStoreRows(), &WeightStoreRow::name, name);
}

std::vector<std::string_view> WeightStoreNames() {
  return ColumnOf(WeightStoreRows(), &WeightStoreRow::name);
}

const WeightStoreRow& WeightStoreOf(const v1::JobSpec& job) {
  const WeightStoreRow* const row = FindWeightStore(job.weights().store());
  return row != nullptr ? *row : kRows[0];
}

void SetWeightStore(const WeightStoreRow& row, std::vector<Parameter>& table) {
  for (Parameter& parameter : table) {
    if (row.Takes(parameter)) {
      parameter.store = row.codec;
    }
  }
}

}  // namespace hearth::spec
