// The checks and timings of harness.h on a GPU: against the CPU's double run of the same inputs,
// repeated, from a captured graph, between guard bytes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/context.h"
#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {

struct Outcome {
  enum Kind : uint8_t { kOk, kSkipped, kFailed };
  Kind kind = kOk;
  std::string text;  // why, if not kOk
};

// What the GPU gives, measured in this run.
struct Ceilings {
  double copy_bytes_s = 0;  // read and written by a kernel that copies
  double bf16_flops = 0;    // 8192^3
  double fp8_flops = 0;     // the same with fast accumulation; 0: it does not run
};

struct GpuTiming {
  double forward_s = 0;  // median of several batches of launches; 0: no such direction
  double backward_s = 0;
  double forward_bytes = 0;
  double backward_bytes = 0;
};

class Gpu {
 public:
  // `fixed_order`: only library algorithms that repeat their bits; else the fastest, and buffers
  // that are not `cuda_repeatable` need not repeat.
  static absl::StatusOr<std::unique_ptr<Gpu>> Open(int ordinal, bool fixed_order);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Lets block-scaled products go to the GPU's own units where they come out right, as the engine
  // does, and prints which.
  absl::Status ChooseProducts();
  const GpuProperties& properties() const { return context_->gpu(); }
  // The storage types that a case is checked in: A f32 and bf16, and both with bf16 gradients if
  // the case has weight gradients.
  static std::vector<Storage> StoragesOf(const OpCase& op_case);
  static std::string NameOf(const Storage& storage);

  // kSkipped: the op says kUnimplemented.
  Outcome Check(const OpCase& op_case, const Storage& storage);
  // Whether one run of forward and backward works.
  Outcome Try(const OpCase& op_case, const Storage& storage);
  // After an error that the process cannot recover from, nothing more can run.
  bool broken();

  absl::StatusOr<Ceilings> MeasureCeilings();
  absl::StatusOr<GpuTiming> Measure(const OpCase& op_case, const Storage& storage);

 private:
  explicit Gpu(std::unique_ptr<CudaContext> context) : context_(std::move(context)) {}
  std::string CheckRun(const OpCase& op_case,
                       const Storage& storage,
                       const Buffers& untouched,
                       const Buffers& run);
  absl::Status Launch(const OpCase& op_case, const Exec& exec, const Buffers& buffers, bool graph);
  // Runs on `buffers`, which hold the first values, and gives them back with the results.
  absl::StatusOr<Buffers> Run(const OpCase& op_case, Buffers buffers, bool graph);
  absl::StatusOr<double> Time(const Exec& exec, const std::function<absl::Status()>& launch);
  // The same of a call of `run`, which takes each of the copies in turn.
  absl::StatusOr<double> TimeCalls(const RunFn& run,
                                   const Exec& exec,
                                   const std::vector<Buffers>& copies);
  absl::StatusOr<double> TimeRecorded(const RunFn& run,
                                      const Exec& exec,
                                      const std::vector<Buffers>& copies);

  std::unique_ptr<CudaContext> context_;
  Exec exec_;
};

}  // namespace hearth::kernels::harness
