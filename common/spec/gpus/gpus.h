// What GPUs are, by name: the rows of configs/gpus.yaml, which are built into the programs. Nothing
// else names a GPU or has such figures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/spec/recipe/recipe.h"

namespace hearth::spec {

// What the operands of a matrix product are. Each has a rate in a GPU's row.
enum class MatrixFormat : uint8_t {
  kBf16,
  kFp8,       // one scale a tensor
  kFp8Block,  // a scale for each block
  kFp4Block,
};
inline constexpr int kMatrixFormatCount = 4;
std::string_view MatrixFormatName(MatrixFormat format);
// In the order of the enumerators.
std::vector<std::string_view> MatrixFormatNames();

// configs/gpus.yaml explains the figures and has their sources. 0 or empty: not known, or there is
// none.
struct GpuRow {
  std::string name;
  std::vector<std::string> words;                   // all stand in the driver's name
  int compute = 0;                                  // compute capability times ten: 90 is 9.0
  std::string plan_only;                            // why Hearth cannot run on it
  double memory_gb = 0;                             // nominal
  double memory_mib = 0;                            // as the driver reports it
  double bandwidth = 0;                             // of device memory, bytes/s
  double flops[kMatrixFormatCount] = {0, 0, 0, 0};  // dense with FP32 sums, FLOP/s
  std::string link;                                 // between GPUs of a host
  double link_bytes = 0;                            // bytes/s in each direction
  double host_link_bytes = 0;                       // the same between the GPU and its host
  double power_watts = 0;
  double price_usd = 0;

  double Flops(MatrixFormat format) const { return flops[static_cast<int>(format)]; }
  double bf16_flops() const { return Flops(MatrixFormat::kBf16); }
  // Device memory, bytes: what the driver reports where that is known, else the nominal size.
  int64_t memory_bytes() const;
};

// All rows, in the order of the file.
absl::Span<const GpuRow> Gpus();

// The row whose words all stand in `name`, a driver's name of a GPU, as words of their own; of
// several the one with the most letters. nullptr when there is none, or when the name has a word
// that makes it another card (`other_cards` of the file: an RTX 5070 Ti is no RTX 5070).
const GpuRow* FindGpu(std::string_view name);

// The row that a person means: by its name without regard to case, blanks and dashes, or by the end
// of it ("5090"), or by a driver's name. kInvalidArgument with the nearest names.
absl::StatusOr<const GpuRow*> GpuByName(std::string_view name);

// How a GPU runs a recipe in this version.
struct RecipeOnGpu {
  Execution execution = Execution::kNone;
  // What the products of quantised layers run in; emulated ones in BF16.
  MatrixFormat format = MatrixFormat::kBf16;
  std::string why;  // of kNone and kEmulated, a sentence
};
RecipeOnGpu RecipeOn(const GpuRow& gpu, const Recipe& recipe);

// What the units of a GPU of this compute capability (times ten) multiply for the products of the
// recipe's quantised layers. nullopt: it has none for them.
std::optional<MatrixFormat> UnitsFor(const Recipe& recipe, int compute);

// Device memory that a process takes outside its arena, bytes: CUDA context and code, cuBLASLt,
// cuDNN, graphs. Measured on one H200 (driver 580, CUDA 13.0, cuDNN 9.19): 563 to 568 MB over
// models, batches and recipes; other GPUs differ by some ten MB.
inline constexpr int64_t kProcessOverheadBytes = 566'000'000;

// What NCCL adds to that in a world of several ranks, bytes: buffers of its channels to each peer
// and its kernels. Measured with NCCL 2.28.3 on four H200 of a node, without NVLink multicast: 901
// to 905 MB over recipes, buckets and ways to divide the optimizer, 200 MB less with
// NCCL_MAX_CTAS=16; about as much with two. More GPUs and several hosts: not measured (`bench
// --devices` prints what it predicts and what it measures).
inline constexpr int64_t kNcclOverheadBytes = 905'000'000;

constexpr int64_t OverheadBytes(int world_size) {
  return kProcessOverheadBytes + (world_size > 1 ? kNcclOverheadBytes : 0);
}

// What other GPUs, drivers and versions of the libraries may take beyond the figures above, bytes:
// a GPU that runs full ends the job, a plan that is this much too careful costs nothing.
inline constexpr int64_t kOverheadMarginBytes = 240'000'000;

// How much of a device's total memory (bytes) a plan may take: all but OverheadBytes and the margin
// on "cuda", all on "cpu". May be negative.
int64_t PlannableBytes(std::string_view device, int64_t memory_bytes, int world_size);

// The same for a process that has opened a GPU of `total` bytes and finds `free` of them free. If
// the GPU is its own, exactly what PlannableBytes promises, however much of its own overhead is in
// use by then, so that a plan that fits is never refused here. What others hold, such as a desktop,
// is not promised; as nobody can tell it from the context, the margin stays free beside it.
int64_t PlannableBytesNow(int64_t total, int64_t free, int world_size);

}  // namespace hearth::spec
