#include "worker/trainer/checkpoint/hf_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/formats/codecs.h"
#include "common/hf/hf_config.h"
#include "common/io/chunk_threads.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

constexpr std::string_view kIndexFile = "model.safetensors.index.json";

int64_t Columns(const spec::Parameter& p) {
  return p.shape.size() > 1 ? p.shape[1] : 1;
}

std::vector<int64_t> HfShape(const spec::Parameter& p, const spec::HfTensor& t) {
  if (p.shape.size() < 2) {
    return {t.rows};
  }
  return t.transpose ? std::vector<int64_t>{Columns(p), t.rows}
                     : std::vector<int64_t>{t.rows, Columns(p)};
}

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

float LoadElement(const TensorView& tensor, int64_t i) {
  const char* data = static_cast<const char*>(tensor.data);
  if (tensor.dtype == TensorDType::kF32) {
    float value;
    // Tensors of a file need not be aligned.
    std::memcpy(&value, data + i * 4, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + i * 2, sizeof bits);
  return tensor.dtype == TensorDType::kBF16 ? formats::DecodeBf16(bits) : formats::DecodeF16(bits);
}

// All safetensors files of a folder.
class WeightFiles {
 public:
  static absl::StatusOr<WeightFiles> Open(Env& env, const std::string& dir) {
    WeightFiles files;
    files.dir_ = dir;
    std::set<std::string> names;
    const std::string index = absl::StrCat(dir, "/", std::string(kIndexFile));
    if (env.Exists(index)) {
      HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(index));
      const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
      const auto map = json.is_object() ? json.find("weight_map") : json.end();
      if (!json.is_object() || map == json.end() || !map->is_object()) {
        return absl::DataLossError(absl::StrCat(index, ": no weight_map"));
      }
      for (const auto& [tensor, file] : map->items()) {
        // A name with a slash could lead out of the folder.
        if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
          return absl::DataLossError(absl::StrCat(index, ": bad file name for ", tensor));
        }
        names.insert(file.get<std::string>());
      }
    } else {
      names.insert(std::string(kHfWeightsFile));
    }
    for (const std::string& name : names) {
      HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file,
                              SafetensorsFile::Open(env, absl::StrCat(dir, "/", name)));
      files.files_.push_back(std::move(file));
    }
    return files;
  }

  // Some published checkpoints lack the leading "model." or "transformer.".
  const TensorView* Find(std::string_view name) const {
    const size_t dot = name.find('.');
    for (const auto& file : files_) {
      if (const TensorView* t = file->Find(name); t != nullptr) {
        return t;
      }
    }
    const std::string_view head = name.substr(0, dot);
    if (head != "model" && head != "transformer") {
      return nullptr;
    }
    for (const auto& file : files_) {
      if (const TensorView* t = file->Find(name.substr(dot + 1)); t != nullptr) {
        return t;
      }
    }
    return nullptr;
  }

  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

absl::Status LoadTensor(const WeightFiles& files,
                        const spec::Parameter& p,
                        const spec::HfTensor& t,
                        float* out) {
  const TensorView* tensor = files.Find(t.name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.dir(), ": no tensor \"", t.name, "\" (parameter ", p.name, ")"));
  }
  const std::vector<int64_t> shape = HfShape(p, t);
  if (tensor->shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        files.dir(), ": tensor \"", t.name, "\" has shape [", absl::StrJoin(tensor->shape, ", "),
        "], the model needs [", absl::StrJoin(shape, ", "), "]"));
  }
  if (tensor->dtype != TensorDType::kF32 && tensor->dtype != TensorDType::kBF16 &&
      tensor->dtype != TensorDType::kF16) {
    return absl::InvalidArgumentError(absl::StrCat(files.dir(), ": tensor \"", t.name, "\" is ",
                                                   std::string(TensorDTypeName(tensor->dtype)),
                                                   ", not F32, BF16 or F16"));
  }
  const int64_t columns = Columns(p);
  const int64_t n = t.rows * columns;
  for (int64_t i = 0; i < n; ++i) {
    out[SourceIndex(t, columns, i)] = LoadElement(*tensor, i);
  }
  return absl::OkStatus();
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
    // So that SourceIndex, which counts from the parameter's begin, finds it.
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
                                       const spec::ModelShape& shape,
                                       int64_t max_position,
                                       const std::vector<spec::Parameter>& table,
                                       absl::Span<const T* const> weights,
                                       TensorDType dtype,
                                       const HfSource& source) {
  if (weights.size() != table.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights.size(), " weights for a table of ", table.size()));
  }
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(dir));
  HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(
      absl::StrCat(dir, "/config.json"), hf::HfConfig(shape, max_position, HfDTypeName(dtype))));
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
                                       const spec::ModelShape& shape,
                                       int64_t max_position,
                                       const std::vector<spec::Parameter>& table,
                                       absl::Span<const float* const> weights,
                                       TensorDType dtype,
                                       const HfSource& source) {
  return WriteWeights(env, dir, shape, max_position, table, weights, dtype, source);
}

absl::StatusOr<FileFacts> WriteHfModel(Env& env,
                                       const std::string& dir,
                                       const spec::ModelShape& shape,
                                       int64_t max_position,
                                       const std::vector<spec::Parameter>& table,
                                       absl::Span<const uint16_t* const> weights,
                                       TensorDType dtype,
                                       const HfSource& source) {
  return WriteWeights(env, dir, shape, max_position, table, weights, dtype, source);
}

absl::Status LoadHfWeights(Env& env,
                           const std::string& dir,
                           const std::vector<spec::Parameter>& table,
                           absl::Span<float* const> weights) {
  if (weights.size() != table.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights.size(), " weights for a table of ", table.size()));
  }
  HEARTH_ASSIGN_OR_RETURN(const WeightFiles files, WeightFiles::Open(env, dir));
  return ForEachChunk(static_cast<int64_t>(table.size()), FileThreads(),
                      [&](int64_t i) -> absl::Status {
                        const auto k = static_cast<size_t>(i);
                        std::fill_n(weights[k], table[k].elements(), 0.0f);
                        for (const spec::HfTensor& t : table[k].hf) {
                          HEARTH_RETURN_IF_ERROR(LoadTensor(files, table[k], t, weights[k]));
                        }
                        return absl::OkStatus();
                      });
}

absl::StatusOr<std::vector<RecordedFile>> RecordedModelFiles(Env& env, const std::string& dir) {
  const std::string manifest = absl::StrCat(dir, "/", std::string(kManifestFile));
  std::vector<RecordedFile> files;
  if (!env.Exists(manifest)) {
    return files;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(manifest));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<ManifestEntry> entries, ParseManifest(text, manifest));
  for (const ManifestEntry& entry : entries) {
    if (!absl::StartsWith(entry.path, "state/") || entry.path == kMetaFile) {
      files.push_back({absl::StrCat(dir, "/", entry.path), entry.checksum});
    }
  }
  return files;
}

}  // namespace hearth::trainer
