#include "common/weights/model_files.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/formats/codecs.h"
#include "nlohmann/json.hpp"

namespace hearth::weights {
namespace {

// Those that the folder's index names; without one the single file.
absl::StatusOr<std::set<std::string>> FileNames(Env& env, const std::string& dir) {
  const std::string index = absl::StrCat(dir, "/", std::string(kHfIndexFile));
  if (!env.Exists(index)) {
    return std::set<std::string>{std::string(kHfWeightsFile)};
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, env.ReadFile(index));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    return absl::DataLossError(absl::StrCat(index, ": no weight_map"));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    // A name with a slash could lead out of the folder.
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
      return absl::DataLossError(absl::StrCat(index, ": bad file name for ", tensor));
    }
    names.insert(file.get<std::string>());
  }
  return names;
}

absl::Status CheckTensor(const ModelFiles& files,
                         const spec::Parameter& p,
                         const spec::HfTensor& t,
                         const TensorView* tensor) {
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
  if (!IsFloat(tensor->dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(files.dir(), ": tensor \"", t.name, "\" is ",
                                                   std::string(TensorDTypeName(tensor->dtype)),
                                                   ", not F32, BF16 or F16"));
  }
  return absl::OkStatus();
}

// Rows [first, first + rows) of a matrix that the file keeps as [columns, tensor_rows].
void ReadTransposed(const TensorView& tensor,
                    int64_t tensor_rows,
                    int64_t columns,
                    int64_t first,
                    int64_t rows,
                    float* out) {
  std::vector<float> line(static_cast<size_t>(rows));
  for (int64_t column = 0; column < columns; ++column) {
    ReadElements(tensor, column * tensor_rows + first, absl::MakeSpan(line));
    for (int64_t row = 0; row < rows; ++row) {
      out[row * columns + column] = line[static_cast<size_t>(row)];
    }
  }
}

}  // namespace

int64_t Columns(const spec::Parameter& parameter) {
  return parameter.shape.size() > 1 ? parameter.shape[1] : 1;
}

std::vector<int64_t> HfShape(const spec::Parameter& parameter, const spec::HfTensor& tensor) {
  if (parameter.shape.size() < 2) {
    return {tensor.rows};
  }
  return tensor.transpose ? std::vector<int64_t>{Columns(parameter), tensor.rows}
                          : std::vector<int64_t>{tensor.rows, Columns(parameter)};
}

bool IsFloat(TensorDType dtype) {
  return dtype == TensorDType::kF32 || dtype == TensorDType::kBF16 || dtype == TensorDType::kF16;
}

void ReadElements(const TensorView& tensor, int64_t begin, absl::Span<float> out) {
  const char* data = static_cast<const char*>(tensor.data) + begin * TensorDTypeBytes(tensor.dtype);
  if (tensor.dtype == TensorDType::kF32) {
    std::memcpy(out.data(), data, out.size() * sizeof(float));
    return;
  }
  const bool bf16 = tensor.dtype == TensorDType::kBF16;
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    // Tensors of a file need not be aligned.
    std::memcpy(&bits, data + i * sizeof bits, sizeof bits);
    out[i] = bf16 ? formats::DecodeBf16(bits) : formats::DecodeF16(bits);
  }
}

absl::StatusOr<ModelFiles> ModelFiles::Open(Env& env, const std::string& dir) {
  HEARTH_ASSIGN_OR_RETURN(const std::set<std::string> names, FileNames(env, dir));
  ModelFiles files;
  files.dir_ = dir;
  for (const std::string& name : names) {
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file,
                            SafetensorsFile::Open(env, absl::StrCat(dir, "/", name)));
    files.files_.push_back(std::move(file));
  }
  return files;
}

const TensorView* ModelFiles::Find(std::string_view name) const {
  const auto find = [this](std::string_view each) -> const TensorView* {
    for (const auto& file : files_) {
      if (const TensorView* t = file->Find(each); t != nullptr) {
        return t;
      }
    }
    return nullptr;
  };
  const TensorView* whole = find(name);
  const size_t dot = name.find('.');
  const std::string_view head = name.substr(0, dot);
  if (whole != nullptr || (head != "model" && head != "transformer")) {
    return whole;
  }
  // A folder that was saved from the base class (GPT2Model, LlamaModel) lacks the prefix.
  return find(name.substr(dot + 1));
}

std::vector<const TensorView*> ModelFiles::Tensors() const {
  std::vector<const TensorView*> tensors;
  for (const auto& file : files_) {
    for (const TensorView& tensor : file->tensors()) {
      tensors.push_back(&tensor);
    }
  }
  return tensors;
}

absl::StatusOr<WeightReader> WeightReader::Open(Env& env,
                                                const std::string& dir,
                                                const std::vector<spec::Parameter>& table,
                                                WeightChoice choice) {
  HEARTH_ASSIGN_OR_RETURN(ModelFiles files, ModelFiles::Open(env, dir));
  WeightReader reader(std::move(files), table);
  for (const spec::Parameter& parameter : table) {
    std::vector<const TensorView*>& tensors = reader.tensors_.emplace_back();
    for (const spec::HfTensor& t : parameter.hf) {
      tensors.push_back(reader.files_.Find(t.name));
      HEARTH_RETURN_IF_ERROR(CheckTensor(reader.files_, parameter, t, tensors.back()));
    }
  }
  if (choice == WeightChoice::kEma) {
    HEARTH_ASSIGN_OR_RETURN(reader.average_, StateAverage::Open(env, dir, table));
  }
  return reader;
}

void WeightReader::ReadRows(size_t k, int64_t first, int64_t rows, float* out) const {
  const spec::Parameter& parameter = (*table_)[k];
  const int64_t columns = Columns(parameter);
  if (average_.has_value()) {
    average_->Read(k, first * columns, absl::MakeSpan(out, static_cast<size_t>(rows * columns)));
    return;
  }
  for (size_t i = 0; i < parameter.hf.size(); ++i) {
    const spec::HfTensor& t = parameter.hf[i];
    // A parameter may be made of several tensors (q, k and v): each has some of its rows.
    const int64_t from = std::max(first, t.row_offset);
    const int64_t to = std::min(first + rows, t.row_offset + t.rows);
    if (from >= to) {
      continue;
    }
    float* const target = out + (from - first) * columns;
    if (t.transpose) {
      ReadTransposed(*tensors_[k][i], t.rows, columns, from - t.row_offset, to - from, target);
    } else {
      ReadElements(*tensors_[k][i], (from - t.row_offset) * columns,
                   absl::MakeSpan(target, static_cast<size_t>((to - from) * columns)));
    }
  }
}

void WeightReader::ReadTensor(const TensorView& tensor,
                              int64_t begin,
                              absl::Span<float> out) const {
  for (size_t k = 0; average_.has_value() && k < tensors_.size(); ++k) {
    for (size_t i = 0; i < tensors_[k].size(); ++i) {
      if (tensors_[k][i] == &tensor) {
        return ReadAverage(k, (*table_)[k].hf[i], begin, out);
      }
    }
  }
  ReadElements(tensor, begin, out);
}

void WeightReader::ReadAverage(size_t k,
                               const spec::HfTensor& tensor,
                               int64_t begin,
                               absl::Span<float> out) const {
  const int64_t columns = Columns((*table_)[k]);
  if (!tensor.transpose) {
    average_->Read(k, tensor.row_offset * columns + begin, out);
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    // The file has it as [columns, rows]: its element e is of row e % rows and column e / rows.
    const int64_t element = begin + static_cast<int64_t>(i);
    const int64_t row = tensor.row_offset + element % tensor.rows;
    average_->Read(k, row * columns + element / tensor.rows, out.subspan(i, 1));
  }
}

}  // namespace hearth::weights
