#include "worker/trainer/model/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;

Arena::Arena(spec::MemoryPlan plan, DType float_dtype, uint8_t* base, bool owned)
    : plan_(std::move(plan)), float_dtype_(float_dtype), base_(base), owned_(owned) {}

Arena::~Arena() {
  if (owned_) {
    munmap(base_, static_cast<size_t>(plan_.arena_bytes()));
  }
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Allocate(spec::MemoryPlan plan, DType float_dtype) {
  const int64_t bytes = plan.arena_bytes();
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the machine does not give ", bytes, " bytes of memory"));
  }
  // Fewer TLB misses; a hint that may be refused without harm.
  madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return std::unique_ptr<Arena>(
      new Arena(std::move(plan), float_dtype, static_cast<uint8_t*>(base), true));
}

std::unique_ptr<Arena> Arena::WithoutMemory(spec::MemoryPlan plan, DType float_dtype) {
  // Any aligned non-null address serves: views must not look absent.
  return std::unique_ptr<Arena>(
      new Arena(std::move(plan), float_dtype, reinterpret_cast<uint8_t*>(4096), false));
}

void* Arena::Bytes(std::string_view name, int64_t bytes) const {
  const absl::StatusOr<const spec::PlannedBuffer*> buffer = plan_.Find(name);
  HEARTH_CHECK(buffer.ok(), std::string(name).c_str());
  HEARTH_CHECK(bytes <= (*buffer)->bytes, std::string(name).c_str());
  return base_ + (*buffer)->offset;
}

int64_t Arena::BytesOf(std::string_view name) const {
  const absl::StatusOr<const spec::PlannedBuffer*> buffer = plan_.Find(name);
  HEARTH_CHECK(buffer.ok(), std::string(name).c_str());
  return (*buffer)->bytes;
}

TensorView Arena::Typed(std::string_view name,
                        DType dtype,
                        std::initializer_list<int64_t> shape) const {
  TensorView view(static_cast<void*>(nullptr), dtype, shape);
  view.data = Bytes(name, static_cast<int64_t>(view.bytes()));
  return view;
}

TensorView Arena::Floats(std::string_view name, std::initializer_list<int64_t> shape) const {
  return Typed(name, float_dtype_, shape);
}

}  // namespace hearth::trainer
