// Table-driven checks of the ops: float against double, gradients by finite differences, guard
// bytes, repeatability, timing; on the CPU and on a GPU. An op brings cases (op_cases.cc); nothing
// here knows an op.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/exec.h"

namespace hearth::kernels::harness {

// What a buffer is to the case.
enum class Role : uint8_t {
  kInput,       // filled before the run, must be unchanged after it unless `mutated`
  kOutput,      // filled with NaN before the run, compared after it
  kAccumulate,  // filled before the run (with 0 for the gradient check), compared after it
};

// How a buffer is filled. `a` and `b` by kind.
struct Fill {
  enum Kind : uint8_t {
    kNormal,    // mean a, standard deviation b
    kUniform,   // [a, b)
    kConstant,  // a
    kIndex,     // integers uniform in [a, b)
    kRamp,      // i mod a: positions of packed sequences
    kSteps,     // (i mod a) / b, rounded down
    kStarts,    // (i mod a) rounded down to a multiple of b: where documents of b rows begin
    kDoubling,  // where documents of 1, 2, 4 .. rows begin in each a
    kWeights,   // loss weights: 0 for every third element, else in [0.5, 1.5)
    kHoles,     // as kNormal, but every fifth -infinity and every seventh NaN
    kExtremes,  // per 32 elements: powers of two, zeros, subnormals, largest, infinities, NaN
  };
  Kind kind = kNormal;
  double a = 0.0;
  double b = 1.0;
};

// What decides a buffer's type on a GPU. On the CPU all kinds have the storage type under test.
enum class Kind : uint8_t {
  kStorage,         // A: activations and weights
  kStatistic,       // f32: rstd, mean, lse, nll, and f32 optimizer state
  kWeightGradient,  // G: f32, or bf16
};

struct BufferSpec {
  std::string name;
  std::vector<int64_t> shape;
  Role role = Role::kInput;
  Fill fill = {};
  // kF32: as `kind` says. Fixed types: kI32, kI64, kF64 (sums), kBF16, kE4M3 and kE5M2 (operands
  // that are narrow on every device), and kU8 standing for fixed f32 (loss weights).
  DType dtype = DType::kF32;
  Kind kind = Kind::kStorage;
  // Not empty: the buffer is a QuantView (Buffers::Quant) of `dtype` of the buffer of this name,
  // whose shape this is. Checked bit for bit against what that buffer holds after the run.
  std::string quant_of = "";
  bool quant_columns = true;
  double quant_scale = 53.0;  // not a power of two: the product rounds too
  // Not empty: the first contents, byte for byte; `fill` does not count.
  std::string contents = "";
  // false: on a GPU whose context is not deterministic two runs may differ in bits; each is then
  // compared with double instead.
  bool cuda_repeatable = true;
};

// Short forms of the rows above.
BufferSpec Statistic(std::string name, std::vector<int64_t> shape, Role role = Role::kOutput);
// i32, an input: whole numbers drawn from `first` up to `end`, which is not among them.
BufferSpec Indices(std::string name, std::vector<int64_t> shape, int64_t first, int64_t end);
BufferSpec WeightGradient(std::string name,
                          std::vector<int64_t> shape,
                          Role role = Role::kAccumulate);
BufferSpec Quantised(std::string name,
                     std::string quant_of,
                     std::vector<int64_t> shape,
                     DType dtype,
                     bool columns = true);
// `bytes` of packed values or scales, in words of eight; an output, compared bit for bit.
BufferSpec Words(std::string name, size_t bytes);
// KeptBytes of a kept input [rows, cols] (core/kept_input.h), compared bit for bit; an output.
BufferSpec KeptWords(std::string name, int64_t rows, int64_t cols);
// A struct on the tensors' device, whose size is a multiple of 8: kI64 words, compared bit for bit.
template <typename T>
BufferSpec Struct(std::string name, const T& value, Role role = Role::kInput) {
  static_assert(sizeof(T) % 8 == 0);
  BufferSpec spec;
  spec.name = std::move(name);
  spec.shape = {static_cast<int64_t>(sizeof(T) / 8)};
  spec.role = role;
  spec.dtype = DType::kI64;
  spec.contents.assign(reinterpret_cast<const char*>(&value), sizeof(T));
  return spec;
}

// The types that a run's buffers have, by Kind.
struct Storage {
  DType activations = DType::kF32;
  DType statistics = DType::kF32;
  DType weight_gradients = DType::kF32;

  static Storage Cpu(DType dtype) { return {dtype, dtype, dtype}; }
  static Storage Cuda(DType a, DType g) { return {a, DType::kF32, g}; }
};

// The buffers of one run, each between guard bytes that read as NaN. On a GPU the host keeps an
// image of them: Get, Values, BitEqual and DamagedGuard speak of the image.
class Buffers {
 public:
  // Same `seed` and `values`, same values: the double run sees those of the run under test exactly.
  //   values            : the types that the first values are rounded to
  //   zero_accumulators : kAccumulate buffers start at 0
  Buffers(const std::vector<BufferSpec>& specs,
          const Storage& storage,
          const Storage& values,
          uint64_t seed,
          bool zero_accumulators);
  // The same types for storage and values, as on the CPU.
  Buffers(const std::vector<BufferSpec>& specs,
          DType storage,
          uint64_t seed,
          bool zero_accumulators)
      : Buffers(specs, Storage::Cpu(storage), Storage::Cpu(DType::kF32), seed, zero_accumulators) {}
  // For timing: device memory only, without guards; large float buffers repeat a pattern of values,
  // outputs and accumulators hold 0.
  static absl::StatusOr<Buffers> ForTiming(const std::vector<BufferSpec>& specs,
                                           const Storage& storage,
                                           const Exec& exec);
  ~Buffers();
  Buffers(Buffers&& other) noexcept;
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // The same image again, for one more run of the same first values: filling is slow. Only before
  // Upload.
  Buffers Clone() const;

  // Copies the image to exec's GPU; from then on views are of device memory.
  absl::Status Upload(const Exec& exec);
  // Waits for the stream and copies everything back into the image, guards too.
  absl::Status Download(const Exec& exec);

  TensorView operator[](const std::string& name) const;
  // The view of a `quant_of` buffer. Empty (not wanted) if absent or if the storage is kF64: ops
  // quantise floats.
  QuantView Quant(const std::string& name) const;
  DType storage() const { return storage_; }
  double Get(const std::string& name, int64_t i) const;
  void Set(const std::string& name, int64_t i, double value);
  // Every value of a buffer, widened.
  std::vector<double> Values(const std::string& name) const;
  // The image's bytes of a buffer; of a QuantView all of its parts.
  std::string Bytes(const std::string& name) const;
  DType TypeOf(const std::string& name) const;
  // Empty, or which buffer was written outside its bounds.
  std::string DamagedGuard() const;
  bool BitEqual(const Buffers& other, const std::string& name) const;
  size_t TotalBytes() const;
  // Sums over the buffers named, once for each time that they are named.
  double BytesOf(const std::vector<std::string>& names) const;

 private:
  struct Entry {
    TensorView view;               // of the image; without one of nothing
    std::vector<uint64_t> memory;  // guard, data, guard; 8-byte units
    size_t bytes = 0;
    void* device = nullptr;  // the data on the GPU
    DType quant = DType::kF32;
  };

  Buffers() = default;
  void Add(const std::string& name, const TensorView& view, DType quant);
  absl::Status AllocateDeviceMemory(const Exec& exec, size_t guard_bytes);

  DType storage_ = DType::kF32;
  std::map<std::string, Entry> entries_;
  void* arena_ = nullptr;
};

using RunFn = std::function<absl::Status(const Exec&, const Buffers&)>;
using WorkspaceFn = std::function<size_t(const Buffers&, int threads)>;

// output -> cotangent, or input -> gradient.
struct GradientPair {
  std::string value;
  std::string gradient;
};

struct OpCase {
  std::string op;
  std::string name;
  std::vector<BufferSpec> buffers = {};
  RunFn prepare = {};  // optional: on a GPU, once before forward is timed; not for the checks
  RunFn forward = {};
  RunFn backward = {};         // optional
  WorkspaceFn workspace = {};  // optional: bytes for either
  // The loss of the gradient check is the sum over `outputs` of value * cotangent.
  std::vector<GradientPair> outputs = {};
  std::vector<GradientPair> inputs = {};
  // Tolerance of float against double, class NMSE: ||f - d|| / ||d|| <= slack * 2^-24 *
  // sqrt(reduction). slack 0: class exact, bit for bit after widening (and rounding to the buffer's
  // type). No single element may be off by more than 10 such bounds of |d| + rms(d).
  double slack = 8.0;
  int64_t reduction = 1;
  // The same for fp32 on a GPU, if it needs another figure; negative: as slack.
  double cuda_slack = -1.0;
  // Class NMSE where a buffer of the run is stored in bf16 or FP8: bf16_slack * 2^-8 instead, if
  // that is more. Sums are fp32, so it does not grow with the reduction.
  double bf16_slack = 3.0;
  bool thread_invariant = true;  // false: bits may depend on Exec::threads (OpenBLAS)
  // false: the op has no double version; QuantViews and `check` tell, and with slack 0 the CPU's
  // float run is what a GPU is compared with.
  bool double_reference = true;
  bool bf16_gradients = true;  // false: weight gradients only as f32
  bool cpu_only = false;       // not on a GPU
  // Optional: what else must hold of the image after a run; empty, or what is wrong.
  std::function<std::string(const Buffers&)> check = {};
  bool perf = false;           // only timed; too large for the checks
  bool cuda_only = false;      // not on the CPU: too large
  bool early_start = false;    // timed with Exec::early_start, as in the passes that call the op
  bool recorded = false;       // forward is timed as a replayed graph: launches take no host time
  double forward_flops = 0.0;  // 0: report GB/s
  double backward_flops = 0.0;
  // Buffers read or written by either direction, one mention for each pass over one; empty: every
  // buffer once.
  std::vector<std::string> forward_traffic = {};
  std::vector<std::string> backward_traffic = {};
};

// What most rows of cases begin with: the name, and the size of the tensors.
struct CountShape {
  const char* name;
  int64_t count;  // elements
};
struct MatrixShape {
  const char* name;
  int64_t rows, cols;
};

// The case `name` of `op`. It is only timed (`perf`) if its name begins with "perf_".
OpCase NewCase(std::string op, std::string name);
// The same, of class exact (slack 0).
OpCase NewExactCase(std::string op, std::string name);

// Adds "kept", written by what the case is about, and "kept.without", by a call known to be right,
// to `c` and checks that they are the same bytes.
void AddKeptTwice(OpCase& c, int64_t rows, int64_t cols);

// Adds to `c` the QuantView `of`_quant, and `of`_alone if `twice`: for a call of the op without its
// plain output. Columns where both extents are multiples of 16.
void AddQuantised(
    OpCase& c, const std::string& of, const std::vector<int64_t>& shape, DType dtype, bool twice);

// One case for each row of `shapes`, which `make` builds of it; then those of the tables and
// functions that follow: CasesOf(kShapes, PlainCase, kBlockShapes, BlockCase).
inline std::vector<OpCase> CasesOf() {
  return {};
}
template <typename Shapes, typename Make, typename... More>
std::vector<OpCase> CasesOf(const Shapes& shapes, const Make& make, const More&... more) {
  std::vector<OpCase> cases;
  for (const auto& shape : shapes) {
    cases.push_back(make(shape));
  }
  for (OpCase& op_case : CasesOf(more...)) {
    cases.push_back(std::move(op_case));
  }
  return cases;
}

// All cases, op by op (cases.cc lists them).
std::vector<OpCase> AllCases();

// Each returns empty on success, else what is wrong.
std::string CheckAgainstDouble(const OpCase& op_case);
std::string CheckGradients(const OpCase& op_case);
// Forward, then backward where there is one, on the CPU. Empty, or what failed.
std::string RunOnCpu(const OpCase& op_case, const Buffers& buffers, int threads);
// Checks one run: every QuantView against the buffer it is of, then op_case.check.
std::string CheckImage(const OpCase& op_case, const Buffers& buffers);
// All buffers that are not inputs, with the tolerance of the case; `cuda`: its figures for a GPU.
std::string CompareWithDouble(const OpCase& op_case,
                              const Buffers& got,
                              const Buffers& wide,
                              bool cuda);
// Seconds of the fastest of several runs on `threads` threads; 0 if there is no such direction.
struct Timing {
  double forward_s = 0.0;
  double backward_s = 0.0;
  double forward_bytes = 0.0;
  double backward_bytes = 0.0;
};
Timing Measure(const OpCase& op_case, int threads);

inline constexpr uint64_t kSeed = 20240517;

}  // namespace hearth::kernels::harness
