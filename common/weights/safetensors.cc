#include "common/weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace hearth::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

using Json = nlohmann::json;

constexpr int64_t kMaxHeaderBytes = int64_t{100} << 20;  // as the reference implementation
constexpr size_t kHeaderAlignment = 8;

struct DTypeRow {
  TensorDType dtype;
  std::string_view name;
  int bytes;
};
constexpr DTypeRow kDTypes[] = {
    {TensorDType::kBool, "BOOL", 1},      {TensorDType::kU8, "U8", 1},
    {TensorDType::kI8, "I8", 1},          {TensorDType::kF8E4M3, "F8_E4M3", 1},
    {TensorDType::kF8E5M2, "F8_E5M2", 1}, {TensorDType::kU16, "U16", 2},
    {TensorDType::kI16, "I16", 2},        {TensorDType::kBF16, "BF16", 2},
    {TensorDType::kF16, "F16", 2},        {TensorDType::kU32, "U32", 4},
    {TensorDType::kI32, "I32", 4},        {TensorDType::kF32, "F32", 4},
    {TensorDType::kU64, "U64", 8},        {TensorDType::kI64, "I64", 8},
    {TensorDType::kF64, "F64", 8},
};

const DTypeRow& Row(TensorDType dtype) {
  return kDTypes[static_cast<size_t>(dtype)];
}

int64_t Elements(absl::Span<const int64_t> shape) {
  int64_t n = 1;
  for (const int64_t d : shape) {
    n *= d;
  }
  return n;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// One entry of the header, checked; `data_bytes` is the size of the data section.
absl::Status ParseEntry(const std::string& name,
                        const Json& json,
                        int64_t data_bytes,
                        TensorView* tensor,
                        int64_t* begin) {
  const auto error = [&name](std::string_view what) {
    return absl::DataLossError(absl::StrCat("tensor \"", name, "\": ", std::string(what)));
  };
  if (!json.is_object()) {
    return error("entry is not an object");
  }
  const auto dtype = json.find("dtype");
  const auto shape = json.find("shape");
  const auto offsets = json.find("data_offsets");
  if (dtype == json.end() || !dtype->is_string()) {
    return error("no dtype");
  }
  if (shape == json.end() || !shape->is_array()) {
    return error("no shape");
  }
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2) {
    return error("no data_offsets");
  }
  const std::string dtype_name = dtype->get<std::string>();
  const auto* row = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                 [&](const DTypeRow& r) { return r.name == dtype_name; });
  if (row == std::end(kDTypes)) {
    return error(absl::StrCat("unknown dtype ", dtype_name));
  }
  int64_t bytes = row->bytes;
  tensor->name = name;
  tensor->dtype = row->dtype;
  for (const Json& d : *shape) {
    if (!d.is_number_unsigned() || d.get<uint64_t>() > static_cast<uint64_t>(data_bytes)) {
      // A dimension larger than the data is possible only beside a zero; nobody stores that.
      return error("impossible shape");
    }
    const int64_t size = d.get<int64_t>();
    // Divided, not multiplied: a product of hostile sizes could overflow.
    if (size > 0 && bytes > data_bytes / size) {
      return error("shape is larger than the file");
    }
    bytes *= size;
    tensor->shape.push_back(size);
  }
  if (!(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return error("data_offsets are not positive integers");
  }
  const uint64_t from = (*offsets)[0].get<uint64_t>();
  const uint64_t to = (*offsets)[1].get<uint64_t>();
  if (from > to || to > static_cast<uint64_t>(data_bytes)) {
    return error(absl::StrCat("data_offsets [", from, ", ", to, "] leave the ", data_bytes,
                              " bytes of data: the file is truncated or damaged"));
  }
  if (to - from != static_cast<uint64_t>(bytes)) {
    return error(absl::StrCat("has ", to - from, " bytes, shape ", ShapeText(tensor->shape), " of ",
                              dtype_name, " needs ", bytes));
  }
  *begin = static_cast<int64_t>(from);
  return absl::OkStatus();
}

}  // namespace

std::string_view TensorDTypeName(TensorDType dtype) {
  return Row(dtype).name;
}
int TensorDTypeBytes(TensorDType dtype) {
  return Row(dtype).bytes;
}
int64_t TensorView::elements() const {
  return Elements(shape);
}

absl::StatusOr<FileFacts> WriteSafetensors(Env& env,
                                           const std::string& path,
                                           absl::Span<const TensorEntry> entries,
                                           const std::map<std::string, std::string>& metadata,
                                           const FillTensor& fill,
                                           int threads) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::vector<int64_t> begins = {0};  // of each tensor in the data, then the end
  for (const TensorEntry& entry : entries) {
    if (header.contains(entry.name)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": two tensors named ", entry.name));
    }
    const int64_t begin = begins.back();
    begins.push_back(begin + Elements(entry.shape) * Row(entry.dtype).bytes);
    nlohmann::ordered_json json;
    json["dtype"] = std::string(Row(entry.dtype).name);
    json["shape"] = entry.shape;
    json["data_offsets"] = {begin, begins.back()};
    header[entry.name] = std::move(json);
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  // The format allows spaces behind the header; with them the data begin at a multiple of 8.
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const uint64_t size = text.size();
  std::string head(reinterpret_cast<const char*>(&size), sizeof size);
  head += text;
  const auto head_bytes = static_cast<int64_t>(head.size());
  const auto fill_chunk = [&](int64_t offset, absl::Span<uint8_t> out) -> absl::Status {
    if (offset < head_bytes) {
      const size_t n = std::min(out.size(), static_cast<size_t>(head_bytes - offset));
      std::memcpy(out.data(), head.data() + offset, n);
      out.remove_prefix(n);
      offset += static_cast<int64_t>(n);
    }
    int64_t at = offset - head_bytes;
    // The last tensor that begins at or before `at`; empty ones before it have no bytes.
    auto tensor = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), at) -
                                      begins.begin() - 1);
    for (; !out.empty(); ++tensor) {
      const size_t n = std::min(out.size(), static_cast<size_t>(begins[tensor + 1] - at));
      if (n > 0) {
        HEARTH_RETURN_IF_ERROR(fill(tensor, at - begins[tensor], out.subspan(0, n)));
      }
      out.remove_prefix(n);
      at += static_cast<int64_t>(n);
    }
    return absl::OkStatus();
  };
  return WriteChunkedFile(env, path, head_bytes + begins.back(), fill_chunk, threads);
}

absl::StatusOr<FileFacts> WriteSafetensors(Env& env,
                                           const std::string& path,
                                           absl::Span<const TensorView> tensors,
                                           const std::map<std::string, std::string>& metadata,
                                           int threads) {
  std::vector<TensorEntry> entries;
  for (const TensorView& t : tensors) {
    entries.push_back({t.name, t.dtype, t.shape});
  }
  const auto fill = [&](size_t index, int64_t begin, absl::Span<uint8_t> out) {
    std::memcpy(out.data(), static_cast<const uint8_t*>(tensors[index].data) + begin, out.size());
    return absl::OkStatus();
  };
  return WriteSafetensors(env, path, entries, metadata, fill, threads);
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(Env& env,
                                                                       const std::string& path) {
  if (!env.Exists(path)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path;
  HEARTH_ASSIGN_OR_RETURN(file->map_, env.Map(path));
  const absl::Status status = file->Parse(file->map_->bytes());
  if (!status.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": ", std::string(status.message())));
  }
  return file;
}

absl::Status SafetensorsFile::Parse(absl::Span<const uint8_t> bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  uint64_t header_bytes = 0;
  if (size < 8) {
    return absl::DataLossError(absl::StrCat(size, " bytes: no safetensors header"));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > static_cast<uint64_t>(std::min(size - 8, kMaxHeaderBytes))) {
    return absl::DataLossError(absl::StrCat("header length ", header_bytes,
                                            " at offset 0 leaves the ", size,
                                            "-byte file: truncated or not safetensors"));
  }
  const char* text = reinterpret_cast<const char*>(bytes.data()) + 8;
  const Json json = Json::parse(text, text + header_bytes, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::DataLossError("the header at offset 8 is not a JSON object");
  }
  const int64_t data_bytes = size - 8 - static_cast<int64_t>(header_bytes);
  const uint8_t* data = bytes.data() + 8 + header_bytes;
  std::vector<std::pair<int64_t, TensorView>> found;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) {
        return absl::DataLossError("__metadata__ is not an object");
      }
      for (const auto& [key, value] : entry.items()) {
        if (value.is_string()) {
          metadata_[key] = value.get<std::string>();
        }
      }
      continue;
    }
    TensorView tensor;
    int64_t begin = 0;
    HEARTH_RETURN_IF_ERROR(ParseEntry(name, entry, data_bytes, &tensor, &begin));
    tensor.data = data + begin;
    found.emplace_back(begin, std::move(tensor));
  }
  // The header's order is not that of the data.
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t end = 0;
  for (auto& [begin, tensor] : found) {
    if (begin < end) {
      return absl::DataLossError(absl::StrCat("tensor \"", tensor.name, "\" overlaps"));
    }
    end = begin + tensor.bytes();
    index_.emplace(tensor.name, tensors_.size());
    tensors_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

absl::StatusOr<const TensorView*> SafetensorsFile::Get(std::string_view name,
                                                       TensorDType dtype,
                                                       absl::Span<const int64_t> shape) const {
  const TensorView* tensor = Find(name);
  if (tensor == nullptr) {
    return absl::DataLossError(absl::StrCat(path_, ": no tensor \"", std::string(name), "\""));
  }
  if (tensor->dtype != dtype || absl::Span<const int64_t>(tensor->shape) != shape) {
    return absl::DataLossError(
        absl::StrCat(path_, ": tensor \"", std::string(name), "\" is ",
                     std::string(TensorDTypeName(tensor->dtype)), " ", ShapeText(tensor->shape),
                     ", expected ", std::string(TensorDTypeName(dtype)), " ", ShapeText(shape)));
  }
  return tensor;
}

}  // namespace hearth::weights
