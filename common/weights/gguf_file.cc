#include "common/weights/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/io/chunked_file.h"

namespace hearth::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian here");

constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;
// Rows are read and encoded in batches of about so many elements.
constexpr int64_t kBatchElements = int64_t{1} << 18;

// Numbers of enum gguf_type.
template <typename T>
constexpr uint32_t kTypeOf = 0;
template <>
constexpr uint32_t kTypeOf<uint8_t> = 0;
template <>
constexpr uint32_t kTypeOf<uint32_t> = 4;
template <>
constexpr uint32_t kTypeOf<int32_t> = 5;
template <>
constexpr uint32_t kTypeOf<float> = 6;
template <>
constexpr uint32_t kTypeOf<bool> = 7;
template <>
constexpr uint32_t kTypeOf<std::string> = 8;
constexpr uint32_t kArrayType = 9;

int64_t Padded(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void Put(std::string& out, const std::string& text) {
  Put<uint64_t>(out, text.size());
  out += text;
}

template <typename T>
void PutValue(std::string& out, const T& value) {
  Put<uint32_t>(out, kTypeOf<T>);
  Put(out, value);
}

template <typename T>
void PutValue(std::string& out, const std::vector<T>& values) {
  Put<uint32_t>(out, kArrayType);
  Put<uint32_t>(out, kTypeOf<T>);
  Put<uint64_t>(out, values.size());
  for (const T& value : values) {
    Put(out, value);
  }
}

// Everything in front of the tensors' bytes, padding included. `begins`: of each tensor in the
// bytes, then the end.
std::string Head(const GgufMetadata& metadata,
                 absl::Span<const GgufTensor> tensors,
                 const std::vector<int64_t>& begins) {
  std::string head = "GGUF";
  Put<uint32_t>(head, kVersion);
  Put<uint64_t>(head, tensors.size());
  Put<uint64_t>(head, metadata.size());
  for (const auto& [key, value] : metadata) {
    Put(head, key);
    std::visit([&head](const auto& each) { PutValue(head, each); }, value);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    Put(head, tensors[i].name);
    Put<uint32_t>(head, static_cast<uint32_t>(tensors[i].shape.size()));
    // ggml counts dimensions from the innermost one.
    for (auto dimension = tensors[i].shape.rbegin(); dimension != tensors[i].shape.rend();
         ++dimension) {
      Put<uint64_t>(head, static_cast<uint64_t>(*dimension));
    }
    Put<uint32_t>(head, tensors[i].format->ggml_type);
    Put<uint64_t>(head, static_cast<uint64_t>(begins[i]));
  }
  head.resize(static_cast<size_t>(Padded(static_cast<int64_t>(head.size()))), '\0');
  return head;
}

// kInvalidArgument, with tensor and row: a value of rows from `first` on that blocks cannot hold.
absl::Status CheckHeld(const GgufTensor& tensor, int64_t first, const std::vector<float>& values) {
  const float largest = tensor.format->largest;
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [largest](float value) { return std::fabs(value) <= largest; });
  if (bad == values.end()) {
    return absl::OkStatus();
  }
  const int64_t row = first + (bad - values.begin()) / tensor.columns();
  const std::string format(tensor.format->name);
  return absl::InvalidArgumentError(
      std::isfinite(*bad)
          ? absl::StrCat("tensor ", tensor.name, " has ", *bad, " in row ", row, ", but ", format,
                         " holds at most ", largest)
          : absl::StrCat("tensor ", tensor.name, " has a value that is not finite in row ", row,
                         ", which ", format, " cannot hold"));
}

// Bytes [begin, begin + out.size()) of a tensor: its rows in batches, encoded whole, and of them
// what is asked for.
absl::Status FillTensorBytes(const GgufTensor& tensor,
                             size_t index,
                             const FillRows& fill,
                             int64_t begin,
                             absl::Span<uint8_t> out) {
  const int64_t row_bytes = tensor.format->Bytes(tensor.columns());
  const int64_t end = begin + static_cast<int64_t>(out.size());
  const int64_t last = (end + row_bytes - 1) / row_bytes;
  const int64_t batch = std::max<int64_t>(1, kBatchElements / tensor.columns());
  std::vector<float> values;
  std::vector<uint8_t> encoded;
  for (int64_t row = begin / row_bytes; row < last; row += batch) {
    const int64_t rows = std::min(batch, last - row);
    values.resize(static_cast<size_t>(rows * tensor.columns()));
    HEARTH_RETURN_IF_ERROR(fill(index, row, rows, values.data()));
    if (tensor.format->block > 1) {
      HEARTH_RETURN_IF_ERROR(CheckHeld(tensor, row, values));
    }
    encoded.resize(static_cast<size_t>(rows * row_bytes));
    tensor.format->encode(values.data(), static_cast<int64_t>(values.size()) / tensor.format->block,
                          encoded.data());
    const int64_t from = std::max(begin, row * row_bytes);
    const int64_t to = std::min(end, (row + rows) * row_bytes);
    std::memcpy(out.data() + (from - begin), encoded.data() + (from - row * row_bytes),
                static_cast<size_t>(to - from));
  }
  return absl::OkStatus();
}

// The same of rows that are encoded already. A scale that is NaN is found too: ggml reads one of
// NVFP4 as zero.
absl::Status CopyTensorBytes(const GgufTensor& tensor,
                             size_t index,
                             const EncodedRow& encoded,
                             int64_t begin,
                             absl::Span<uint8_t> out) {
  const int64_t row_bytes = tensor.format->Bytes(tensor.columns());
  std::vector<uint8_t> bytes(static_cast<size_t>(row_bytes));
  std::vector<float> values(static_cast<size_t>(tensor.columns()));
  while (!out.empty()) {
    const int64_t row = begin / row_bytes;
    const int64_t within = begin % row_bytes;
    encoded(index, row, 0, absl::MakeSpan(bytes));
    tensor.format->decode(bytes.data(), tensor.columns() / tensor.format->block, values.data());
    HEARTH_RETURN_IF_ERROR(CheckHeld(tensor, row, values));
    const auto count =
        static_cast<size_t>(std::min(row_bytes - within, static_cast<int64_t>(out.size())));
    std::memcpy(out.data(), bytes.data() + within, count);
    out.remove_prefix(count);
    begin += static_cast<int64_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace

int64_t GgufTensor::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    rows *= shape[i];
  }
  return rows;
}

absl::StatusOr<FileFacts> WriteGguf(Env& env,
                                    const std::string& path,
                                    const GgufMetadata& metadata,
                                    absl::Span<const GgufTensor> tensors,
                                    const FillRows& fill,
                                    int threads,
                                    const EncodedRow& encoded) {
  std::set<std::string> names;
  std::vector<int64_t> begins = {0};
  for (const GgufTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": two tensors named ", tensor.name));
    }
    begins.push_back(begins.back() + Padded(tensor.bytes()));
  }
  const std::string head = Head(metadata, tensors, begins);
  const auto head_bytes = static_cast<int64_t>(head.size());
  const auto fill_chunk = [&](int64_t offset, absl::Span<uint8_t> out) -> absl::Status {
    std::fill(out.begin(), out.end(), uint8_t{0});  // the padding
    const int64_t end = offset + static_cast<int64_t>(out.size());
    if (offset < head_bytes) {
      std::memcpy(out.data(), head.data() + offset,
                  static_cast<size_t>(std::min(end, head_bytes) - offset));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t first = std::max(offset, head_bytes + begins[i]);
      const int64_t past = std::min(end, head_bytes + begins[i] + tensors[i].bytes());
      if (first >= past) {
        continue;
      }
      const int64_t begin = first - head_bytes - begins[i];
      const absl::Span<uint8_t> part =
          out.subspan(static_cast<size_t>(first - offset), static_cast<size_t>(past - first));
      if (encoded && encoded(i, 0, 0, {})) {
        HEARTH_RETURN_IF_ERROR(CopyTensorBytes(tensors[i], i, encoded, begin, part));
      } else {
        HEARTH_RETURN_IF_ERROR(FillTensorBytes(tensors[i], i, fill, begin, part));
      }
    }
    return absl::OkStatus();
  };
  return WriteChunkedFile(env, path, head_bytes + begins.back(), fill_chunk, threads);
}

}  // namespace hearth::weights
