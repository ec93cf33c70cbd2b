// Table-driven checks of the ops: float against double, gradients by finite differences, guard
// bytes, repeatability, timing. An op brings cases (op_cases.cc); nothing here knows an op.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
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
    kSteps,     // (i mod a) / b, rounded down: segments
    kWeights,   // loss weights: 0 for every third element, else in [0.5, 1.5)
  };
  Kind kind = kNormal;
  double a = 0.0;
  double b = 1.0;
};

struct BufferSpec {
  std::string name;
  std::vector<int64_t> shape;
  Role role = Role::kInput;
  Fill fill = {};
  // kF32: the storage type under test (float or double). Fixed types: kI32, kF64 (sums), and kU8
  // standing for fixed f32 (loss weights).
  DType dtype = DType::kF32;
};

// The buffers of one run in one storage type, each between guard bytes.
class Buffers {
 public:
  // `zero_accumulators`: kAccumulate buffers start at 0. Same `seed`, same values (the double run
  // sees the float run's values exactly).
  Buffers(const std::vector<BufferSpec>& specs,
          DType storage,
          uint64_t seed,
          bool zero_accumulators);

  TensorView operator[](const std::string& name) const;
  DType storage() const { return storage_; }
  double Get(const std::string& name, int64_t i) const;
  void Set(const std::string& name, int64_t i, double value);
  // Every value of a buffer, widened.
  std::vector<double> Values(const std::string& name) const;
  // Empty, or which buffer was written outside its bounds.
  std::string DamagedGuard() const;
  bool BitEqual(const Buffers& other, const std::string& name) const;
  size_t TotalBytes() const;

 private:
  struct Entry {
    TensorView view;
    std::vector<uint64_t> memory;  // guard, data, guard; 8-byte units
    size_t bytes = 0;
  };

  DType storage_;
  std::map<std::string, Entry> entries_;
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
  std::vector<BufferSpec> buffers;
  RunFn forward;
  RunFn backward;         // optional
  WorkspaceFn workspace;  // optional: bytes for either
  // The loss of the gradient check is the sum over `outputs` of value * cotangent.
  std::vector<GradientPair> outputs;
  std::vector<GradientPair> inputs;
  // Tolerance of float against double, class NMSE: ||f - d|| / ||d|| <= slack * 2^-24 *
  // sqrt(reduction). slack 0: class exact, bit for bit after widening.
  double slack = 8.0;
  int64_t reduction = 1;
  bool thread_invariant = true;  // false: bits may depend on Exec::threads (OpenBLAS)
  bool perf = false;             // only timed; too large for the checks
  double forward_flops = 0.0;    // 0: report GB/s
  double backward_flops = 0.0;
};

// All cases, op by op (cases.cc lists them).
std::vector<OpCase> AllCases();

// Each returns empty on success, else what is wrong.
std::string CheckAgainstDouble(const OpCase& op_case);
std::string CheckGradients(const OpCase& op_case);
// Seconds of the fastest of several runs on `threads` threads; 0 if there is no such direction.
struct Timing {
  double forward_s = 0.0;
  double backward_s = 0.0;
  double bytes = 0.0;
};
Timing Measure(const OpCase& op_case, int threads);

}  // namespace hearth::kernels::harness
