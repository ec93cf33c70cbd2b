// Collects the buffers of a training plan, each with its handle.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/plan/step_buffers.h"

namespace hearth::spec {

// Moments of the step, both included.
struct Lifetime {
  int32_t first = 0;
  int32_t last = 0;
};

// Keeps the first error, which Finish returns.
class PlanBuilder {
 public:
  // `wide_bytes`: TrainingPlanOptions.
  explicit PlanBuilder(int wide_bytes) : wide_bytes_(wide_bytes) {}

  // A floating tensor, in the format or as wide as the device stores it.
  BufferId Floats(std::string name,
                  BufferClass buffer_class,
                  DType format,
                  std::vector<int64_t> shape,
                  Lifetime life,
                  MemoryTier tier = MemoryTier::kDevice);
  // A floating tensor in the format on every device.
  BufferId Packed(std::string name,
                  BufferClass buffer_class,
                  DType format,
                  std::vector<int64_t> shape,
                  Lifetime life,
                  MemoryTier tier = MemoryTier::kDevice);
  // Elements of `element_bytes` bytes each, on every device.
  BufferId Words(std::string name,
                 BufferClass buffer_class,
                 int64_t element_bytes,
                 std::vector<int64_t> shape,
                 Lifetime life);
  BufferId Bytes(std::string name,
                 BufferClass buffer_class,
                 int64_t bytes,
                 Lifetime life,
                 MemoryTier tier = MemoryTier::kDevice);
  // Memory of the host that lives for the whole step.
  BufferId Pinned(std::string name, int64_t bytes, int32_t last);

  StepBuffers& ids() { return plan_.ids; }
  // How many bytes a buffer has that was added; 0 after an error.
  int64_t BytesOf(BufferId id) const { return status_.ok() ? plan_.At(id).bytes : 0; }
  absl::StatusOr<TrainingPlan> Finish() &&;

 private:
  BufferId Add(PlannedBuffer buffer);

  const int wide_bytes_;
  TrainingPlan plan_;
  absl::Status status_;
};

}  // namespace hearth::spec
