#include "worker/trainer/checkpoint/hf_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/formats/codecs.h"
#include "common/hf/hf_config.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/checkpoint/meta.h"

namespace hearth::trainer {
namespace {

constexpr std::string_view kWeightsFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr size_t kChunkBytes = size_t{1} << 20;

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
  return (t.row_offset + i % t.rows) * columns + i / t.rows;
}

std::string_view HfDTypeName(TensorDType dtype) {
  return dtype == TensorDType::kBF16  ? "bfloat16"
         : dtype == TensorDType::kF16 ? "float16"
                                      : "float32";
}

// Converts to the file's format a chunk at a time.
class ChunkedOutput {
 public:
  ChunkedOutput(SafetensorsWriter& writer, TensorDType dtype) : writer_(writer), dtype_(dtype) {
    buffer_.reserve(kChunkBytes + sizeof(float));
  }

  absl::Status Put(float value) {
    if (dtype_ == TensorDType::kF32) {
      Append(value);
    } else {
      Append(dtype_ == TensorDType::kBF16 ? formats::EncodeBf16(value) : formats::EncodeF16(value));
    }
    return buffer_.size() < kChunkBytes ? absl::OkStatus() : Flush();
  }

  absl::Status Flush() {
    HEARTH_RETURN_IF_ERROR(writer_.Append(buffer_));
    buffer_.clear();
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Append(T value) {
    buffer_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  SafetensorsWriter& writer_;
  const TensorDType dtype_;
  std::string buffer_;
};

float LoadElement(const TensorView& tensor, int64_t i) {
  const char* data = static_cast<const char*>(tensor.data);
  if (tensor.dtype == TensorDType::kF32) {
    float value;
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
        if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
          return absl::DataLossError(absl::StrCat(index, ": bad file name for ", tensor));
        }
        names.insert(file.get<std::string>());
      }
    } else {
      names.insert(std::string(kWeightsFile));
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

template <typename T>
absl::Status WriteWeights(Env& env,
                          const std::string& dir,
                          const spec::ModelShape& shape,
                          int64_t max_position,
                          const std::vector<spec::Parameter>& table,
                          absl::Span<const T* const> weights,
                          TensorDType dtype) {
  if (weights.size() != table.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(weights.size(), " weights for a table of ", table.size()));
  }
  HEARTH_RETURN_IF_ERROR(env.CreateDirs(dir));
  HEARTH_RETURN_IF_ERROR(env.WriteFileAtomically(
      absl::StrCat(dir, "/config.json"), hf::HfConfig(shape, max_position, HfDTypeName(dtype))));
  std::vector<SafetensorsWriter::Entry> entries;
  for (const spec::Parameter& p : table) {
    for (const spec::HfTensor& t : p.hf) {
      entries.push_back({t.name, dtype, HfShape(p, t)});
    }
  }
  HEARTH_ASSIGN_OR_RETURN(
      const std::unique_ptr<SafetensorsWriter> writer,
      SafetensorsWriter::Create(env, absl::StrCat(dir, "/", std::string(kWeightsFile)),
                                std::move(entries), {{"format", "pt"}}));
  ChunkedOutput output(*writer, dtype);
  for (size_t k = 0; k < table.size(); ++k) {
    const int64_t columns = Columns(table[k]);
    for (const spec::HfTensor& t : table[k].hf) {
      const int64_t n = t.rows * columns;
      for (int64_t i = 0; i < n; ++i) {
        HEARTH_RETURN_IF_ERROR(output.Put(ToFloat(weights[k][SourceIndex(t, columns, i)])));
      }
    }
  }
  HEARTH_RETURN_IF_ERROR(output.Flush());
  return writer->Finish();
}

}  // namespace

absl::Status WriteHfModel(Env& env,
                          const std::string& dir,
                          const spec::ModelShape& shape,
                          int64_t max_position,
                          const std::vector<spec::Parameter>& table,
                          absl::Span<const float* const> weights,
                          TensorDType dtype) {
  return WriteWeights(env, dir, shape, max_position, table, weights, dtype);
}

absl::Status WriteHfModel(Env& env,
                          const std::string& dir,
                          const spec::ModelShape& shape,
                          int64_t max_position,
                          const std::vector<spec::Parameter>& table,
                          absl::Span<const uint16_t* const> weights,
                          TensorDType dtype) {
  return WriteWeights(env, dir, shape, max_position, table, weights, dtype);
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
  for (size_t k = 0; k < table.size(); ++k) {
    const spec::Parameter& p = table[k];
    std::fill_n(weights[k], p.elements(), 0.0f);
    for (const spec::HfTensor& t : p.hf) {
      HEARTH_RETURN_IF_ERROR(LoadTensor(files, p, t, weights[k]));
    }
  }
  return absl::OkStatus();
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
      files.push_back({absl::StrCat(dir, "/", entry.path), entry.sha256});
    }
  }
  return files;
}

}  // namespace hearth::trainer
