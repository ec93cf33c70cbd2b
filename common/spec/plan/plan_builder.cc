#include "common/spec/plan/plan_builder.h"

#include "common/base/status_macros.h"

namespace hearth::spec {
namespace {

constexpr int64_t kAlignment = 256;

PlannedBuffer Make(std::string name, BufferClass buffer_class, int64_t bytes, Lifetime life) {
  PlannedBuffer buffer;
  buffer.name = std::move(name);
  buffer.buffer_class = buffer_class;
  buffer.bytes = bytes;
  buffer.alignment = kAlignment;
  buffer.first_use = life.first;
  buffer.last_use = life.last;
  return buffer;
}

PlannedBuffer Shaped(PlannedBuffer buffer, DType format, std::vector<int64_t> shape) {
  buffer.format = format;
  buffer.shape = std::move(shape);
  return buffer;
}

int64_t Elements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    elements *= size;
  }
  return elements;
}

}  // namespace

BufferId PlanBuilder::Add(PlannedBuffer buffer) {
  const BufferId id = {static_cast<int32_t>(plan_.buffers().size())};
  if (status_.ok()) {
    status_ = plan_.Add(std::move(buffer));
  }
  return id;
}

BufferId PlanBuilder::Floats(std::string name,
                             BufferClass buffer_class,
                             DType format,
                             std::vector<int64_t> shape,
                             Lifetime life,
                             MemoryTier tier) {
  const int64_t elements = Elements(shape);
  const int64_t bytes = wide_bytes_ > 0 ? elements * wide_bytes_ : DTypeBytes(format, elements);
  PlannedBuffer buffer = Make(std::move(name), buffer_class, bytes, life);
  buffer.tier = tier;
  return Add(Shaped(std::move(buffer), format, std::move(shape)));
}

BufferId PlanBuilder::Packed(std::string name,
                             BufferClass buffer_class,
                             DType format,
                             std::vector<int64_t> shape,
                             Lifetime life,
                             MemoryTier tier) {
  PlannedBuffer buffer =
      Make(std::move(name), buffer_class, DTypeBytes(format, Elements(shape)), life);
  buffer.packed = true;
  buffer.tier = tier;
  return Add(Shaped(std::move(buffer), format, std::move(shape)));
}

BufferId PlanBuilder::Words(std::string name,
                            BufferClass buffer_class,
                            int64_t element_bytes,
                            std::vector<int64_t> shape,
                            Lifetime life) {
  PlannedBuffer buffer = Make(std::move(name), buffer_class, Elements(shape) * element_bytes, life);
  buffer.shape = std::move(shape);
  return Add(std::move(buffer));
}

BufferId PlanBuilder::Bytes(
    std::string name, BufferClass buffer_class, int64_t bytes, Lifetime life, MemoryTier tier) {
  PlannedBuffer buffer = Make(std::move(name), buffer_class, bytes, life);
  buffer.tier = tier;
  return Add(std::move(buffer));
}

BufferId PlanBuilder::Pinned(std::string name, int64_t bytes, int32_t last) {
  PlannedBuffer buffer = Make(std::move(name), BufferClass::kWorkspace, bytes, {0, last});
  buffer.tier = MemoryTier::kPinnedHost;
  return Add(std::move(buffer));
}

absl::StatusOr<TrainingPlan> PlanBuilder::Finish() && {
  HEARTH_RETURN_IF_ERROR(status_);
  plan_.Place();
  return std::move(plan_);
}

}  // namespace hearth::spec
