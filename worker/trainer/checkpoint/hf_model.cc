#include "worker/trainer/checkpoint/hf_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/formats/codecs.h"
#include "common/hf/hf_config.h"
#include "common/io/chunk_threads.h"
#include "common/weights/model_files.h"

namespace hearth::trainer {
namespace {

using weights::Columns;
using weights::HfShape;

// Index into the parameter's fp32 values of element `i` of the Hugging Face tensor.
int64_t SourceIndex(const spec::HfTensor& t, int64_t columns, int64_t i) {
  if (!t.transpose) {
    return t.row_offset * columns + i;
  }
  // GPT-2's Conv1D keeps weights as [in, out]: element i is row i % rows of column i / rows.
  return (t.row_offset + i % t.rows) * columns + i / t.rows;
}

std::string_view HfDTypeName(TensorDType dtype) {
  return dtype == TensorDType::kBF16  ? "bfloat16"
         : dtype == TensorDType::kF16 ? "float16"
                                      : "float32";
}

float ToFloat(float value) {
  return value;
}
float ToFloat(uint16_t bf16) {
  return formats::DecodeBf16(bf16);
}

// A Hugging Face tensor and the parameter that it is a part of.
struct Part {
  size_t parameter = 0;
  const spec::HfTensor* hf = nullptr;
  int64_t columns = 1;
};

// The source elements [first, last] of elements [begin, end) of a part.
std::pair<int64_t, int64_t> SourceRange(const Part& part, int64_t begin, int64_t end) {
  const spec::HfTensor& t = *part.hf;
  if (!t.transpose) {
    return {SourceIndex(t, part.columns, begin), SourceIndex(t, part.columns, end - 1)};
  }
  return {t.row_offset * part.columns + begin / t.rows,
          (t.row_offset + t.rows - 1) * part.columns + (end - 1) / t.rows};
}

template <typename From, typename To, typename Encode>
void ConvertPart(const Part& part,
                 const From* source,  // of element 0 of the parameter
                 int64_t begin,
                 absl::Span<uint8_t> out,
                 const Encode& encode) {
  const auto count = static_cast<int64_t>(out.size() / sizeof(To));
  uint8_t* to = out.data();
  for (int64_t i = begin; i < begin + count; ++i, to += sizeof(To)) {
    const To value = encode(ToFloat(source[SourceIndex(*part.hf, part.columns, i)]));
    std::memcpy(to, &value, sizeof value);
  }
}

// Elements of a part as the file has them.
template <typename T>
absl::Status FillPart(const Part& part,
                      const T* weights,
                      TensorDType dtype,
                      const HfSource& source,
                      int64_t begin,
                      absl::Span<uint8_t> out) {
  const int64_t end = begin + static_cast<int64_t>(out.size()) / TensorDTypeBytes(dtype);
  std::vector<T> host;
  if (source.read) {
    // Only the range that this piece needs leaves the GPU; the buffer stays as small as the piece.
    const auto [first, last] = SourceRange(part, begin, end);
    host.resize(static_cast<size_t>(last - first + 1));
    HEARTH_RETURN_IF_ERROR(source.read(host.data(), weights + first, host.size() * sizeof(T)));
    // SourceIndex counts from the parameter's start, so the pointer moves back by `first`.
    weights = host.data() - first;
  }
  if (dtype == TensorDType::kF32) {
    ConvertPart<T, float>(part, weights, begin, out, [](float value) { return value; });
  } else if (dtype == TensorDType::kBF16) {
    ConvertPart<T, uint16_t>(part, weights, begin, out, formats::EncodeBf16);
  } else {
    ConvertPart<T, uint16_t>(part, weights, begin, out, formats::EncodeF16);
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<FileFacts> WriteWeights(Env& env,
                                       const std::string& dir,
                                       const HfModel& model,
                                       absl::Span<const T* const> weights,
                                       const HfSource& source) {
  const std::vector<spec::Parameter>& table = model.table;
  const TensorDType dtype = model.dtype;
  if (weights.size() != table.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights.size(), " weights for a table of ", table.size()));
  }
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(dir));
  HEARTH_RETURN_IF_ERROR(
      env.WriteFileAtomically(absl::StrCat(dir, "/config.json"),
                              hf::HfConfig(model.shape, model.max_position, HfDTypeName(dtype))));
  std::vector<TensorEntry> entries;
  std::vector<Part> parts;
  for (size_t k = 0; k < table.size(); ++k) {
    for (const spec::HfTensor& t : table[k].hf) {
      entries.push_back({t.name, dtype, HfShape(table[k], t)});
      parts.push_back({k, &t, Columns(table[k])});
    }
  }
  const auto fill = [&](size_t index, int64_t begin, absl::Span<uint8_t> out) -> absl::Status {
    // A chunk of the file may begin or end in the middle of an element.
    const int64_t element = TensorDTypeBytes(dtype);
    const Part& part = parts[index];
    const T* const from = weights[part.parameter];
    if (begin % element == 0 && static_cast<int64_t>(out.size()) % element == 0) {
      return FillPart(part, from, dtype, source, begin / element, out);
    }
    const int64_t first = begin / element;
    const int64_t last = (begin + static_cast<int64_t>(out.size()) - 1) / element;
    std::vector<uint8_t> whole(static_cast<size_t>((last - first + 1) * element));
    HEARTH_RETURN_IF_ERROR(FillPart(part, from, dtype, source, first, absl::MakeSpan(whole)));
    std::memcpy(out.data(), whole.data() + (begin - first * element), out.size());
    return absl::OkStatus();
  };
  return WriteSafetensors(env, absl::StrCat(dir, "/", std::string(kHfWeightsFile)), entries,
                          {{"format", "pt"}}, fill, source.threads);
}

}  // namespace

absl::StatusOr<FileFacts> WriteHfModel(Env& env,
                                       const std::string& dir,
                                       const HfModel& model,
                                       const HfSource& source) {
  return std::visit(
      [&](const auto& weights) { return WriteWeights(env, dir, model, weights, source); },
      model.weights);
}

absl::Status LoadHfWeights(Env& env,
                           const std::string& dir,
                           const std::vector<spec::Parameter>& table,
                           absl::Span<float* const> weights,
                           weights::WeightChoice choice) {
  if (weights.size() != table.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights.size(), " weights for a table of ", table.size()));
  }
  HEARTH_ASSIGN_OR_RETURN(const weights::WeightReader reader,
                          weights::WeightReader::Open(env, dir, table, choice));
  return ForEachChunk(static_cast<int64_t>(table.size()), FileThreads(),
                      [&](int64_t i) -> absl::Status {
                        const auto k = static_cast<size_t>(i);
                        // Rows of padding, which no file has, stay 0.
                        std::fill_n(weights[k], table[k].elements(), 0.0f);
                        reader.ReadRows(k, 0, table[k].logical_rows, weights[k]);
                        return absl::OkStatus();
                      });
}

}  // namespace hearth::trainer
