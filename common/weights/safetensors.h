// The safetensors file format: a little-endian uint64 header length, a JSON header, the tensors'
// bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/chunked_file.h"
#include "common/io/env.h"

namespace hearth::weights {

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

// A tensor of a file that is to be written.
struct TensorEntry {
  std::string name;
  TensorDType dtype = TensorDType::kF32;
  std::vector<int64_t> shape;
};

// Fills `out` with the bytes of tensor `index` from `begin` on. Depends only on these; called
// from several threads at a time.
using FillTensor =
    std::function<absl::Status(size_t index, int64_t begin, absl::Span<uint8_t> out)>;

// Writes the file with `threads` threads (>= 1), on which its bytes do not depend.
// kInvalidArgument: two entries of one name. Errors: those of `fill` and Env.
absl::StatusOr<FileFacts> WriteSafetensors(Env& env,
                                           const std::string& path,
                                           absl::Span<const TensorEntry> entries,
                                           const std::map<std::string, std::string>& metadata,
                                           const FillTensor& fill,
                                           int threads);
// The same for tensors in memory.
absl::StatusOr<FileFacts> WriteSafetensors(Env& env,
                                           const std::string& path,
                                           absl::Span<const TensorView> tensors,
                                           const std::map<std::string, std::string>& metadata = {},
                                           int threads = 1);

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

}  // namespace hearth::weights
