// The safetensors file format: a little-endian uint64 header length, a JSON header, the tensors'
// bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/env.h"

namespace hearth::trainer {

enum class TensorDType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kU16,
  kI16,
  kBF16,
  kF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64
};

std::string_view TensorDTypeName(TensorDType dtype);  // as in the header: "F32", "BF16", ...
int TensorDTypeBytes(TensorDType dtype);

// A tensor in memory, dense, row-major. Does not own `data`.
struct TensorView {
  std::string name;
  TensorDType dtype = TensorDType::kF32;
  std::vector<int64_t> shape;  // empty = scalar
  const void* data = nullptr;

  int64_t elements() const;
  int64_t bytes() const { return elements() * TensorDTypeBytes(dtype); }
};

// Streams tensors whose bytes come one after the other; the header is written first, from the names
// and shapes.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    TensorDType dtype = TensorDType::kF32;
    std::vector<int64_t> shape;
  };
  // kInvalidArgument: two entries of one name.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      Env& env,
      const std::string& path,
      std::vector<Entry> entries,
      const std::map<std::string, std::string>& metadata = {});

  // The next bytes of the data section, in the order of the entries; pieces of any size.
  absl::Status Append(std::string_view bytes);
  // fsync and close. kInternal: fewer or more bytes than the entries have.
  absl::Status Finish();

 private:
  SafetensorsWriter() = default;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
  int64_t expected_ = 0;
  int64_t written_ = 0;
};

absl::Status WriteSafetensors(Env& env,
                              const std::string& path,
                              absl::Span<const TensorView> tensors,
                              const std::map<std::string, std::string>& metadata = {});

// An open file; the views point into its memory map. Thread-safe.
class SafetensorsFile {
 public:
  // kDataLoss names the file and what is wrong with it: every offset and size is checked before
  // use. kNotFound.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(Env& env, const std::string& path);

  // nullptr when there is none.
  const TensorView* Find(std::string_view name) const;
  // Find, but kDataLoss naming the file when it is absent or has another dtype or shape.
  absl::StatusOr<const TensorView*> Get(std::string_view name,
                                        TensorDType dtype,
                                        absl::Span<const int64_t> shape) const;
  const std::vector<TensorView>& tensors() const { return tensors_; }  // by offset
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

 private:
  SafetensorsFile() = default;
  absl::Status Parse(absl::Span<const uint8_t> bytes);

  std::string path_;
  std::unique_ptr<MappedFile> map_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace hearth::trainer
