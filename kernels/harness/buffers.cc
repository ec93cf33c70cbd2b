#include <cstring>
#include <limits>

#include "common/base/status_macros.h"
#include "kernels/core/rng.h"
#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {
namespace {

constexpr size_t kGuardWords = 16;
constexpr uint64_t kGuardPattern = 0xA5A5A5A5A5A5A5A5;

// One value. Floats are made exact in f32 so that both storage types start from the same numbers.
double ValueAt(const Fill& fill, const RngKey& key, int64_t i) {
  const uint64_t element = static_cast<uint64_t>(i);
  switch (fill.kind) {
    case Fill::kNormal:
      return static_cast<float>(fill.a + fill.b * RngNormal(key, element));
    case Fill::kUniform:
      return static_cast<float>(fill.a + (fill.b - fill.a) * double{RngUniform(key, element)});
    case Fill::kConstant:
      return fill.a;
    case Fill::kIndex:
      return fill.a +
             static_cast<double>(RngWord(key, element) % static_cast<uint32_t>(fill.b - fill.a));
    case Fill::kRamp:
      return static_cast<double>(i % static_cast<int64_t>(fill.a));
    case Fill::kSteps:
      return static_cast<double>(i % static_cast<int64_t>(fill.a) / static_cast<int64_t>(fill.b));
    case Fill::kWeights:
      return i % 3 == 1 ? 0.0 : static_cast<float>(0.5 + double{RngUniform(key, element)});
  }
  return 0.0;
}

DType StorageOf(const BufferSpec& spec, DType storage) {
  if (spec.dtype == DType::kF32) {
    return storage;
  }
  return spec.dtype == DType::kU8 ? DType::kF32 : spec.dtype;
}

void Store(const TensorView& view, int64_t i, double value) {
  switch (view.dtype) {
    case DType::kF64:
      view.as<double>()[i] = value;
      return;
    case DType::kF32:
      view.as<float>()[i] = static_cast<float>(value);
      return;
    case DType::kI32:
      view.as<int32_t>()[i] = static_cast<int32_t>(value);
      return;
    default:
      HEARTH_CHECK(false, "harness buffers are f32, f64 or i32");
  }
}

double Load(const TensorView& view, int64_t i) {
  switch (view.dtype) {
    case DType::kF64:
      return view.as<double>()[i];
    case DType::kF32:
      return double{view.as<float>()[i]};
    case DType::kI32:
      return double{static_cast<double>(view.as<int32_t>()[i])};
    default:
      HEARTH_CHECK(false, "harness buffers are f32, f64 or i32");
  }
}

}  // namespace

Buffers::Buffers(const std::vector<BufferSpec>& specs,
                 DType storage,
                 uint64_t seed,
                 bool zero_accumulators)
    : storage_(storage) {
  uint32_t tensor = 0;
  for (const BufferSpec& spec : specs) {
    Entry entry;
    entry.view.dtype = StorageOf(spec, storage);
    for (int64_t extent : spec.shape) {
      entry.view.shape[static_cast<size_t>(entry.view.rank++)] = extent;
    }
    entry.bytes = DTypeBytes(entry.view.dtype, entry.view.numel());
    entry.memory.assign(kGuardWords * 2 + (entry.bytes + 7) / 8, kGuardPattern);
    Entry& kept = entries_[spec.name] = std::move(entry);
    kept.view.data = kept.memory.data() + kGuardWords;
    const RngKey key = {seed, RngPurpose::kTest, 0, 0, tensor++};
    for (int64_t i = 0; i < kept.view.numel(); ++i) {
      double value = spec.role == Role::kOutput ? std::numeric_limits<double>::quiet_NaN()
                                                : ValueAt(spec.fill, key, i);
      if (spec.role == Role::kAccumulate && zero_accumulators) {
        value = 0.0;
      }
      Store(kept.view, i, value);
    }
  }
}

TensorView Buffers::operator[](const std::string& name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? TensorView() : it->second.view;
}

double Buffers::Get(const std::string& name, int64_t i) const {
  return Load((*this)[name], i);
}

void Buffers::Set(const std::string& name, int64_t i, double value) {
  Store((*this)[name], i, value);
}

std::vector<double> Buffers::Values(const std::string& name) const {
  const TensorView view = (*this)[name];
  std::vector<double> values(static_cast<size_t>(view.numel()));
  for (int64_t i = 0; i < view.numel(); ++i) {
    values[static_cast<size_t>(i)] = Load(view, i);
  }
  return values;
}

std::string Buffers::DamagedGuard() const {
  for (const auto& [name, entry] : entries_) {
    std::vector<unsigned char> expected(kGuardWords * 8, 0xA5);
    const auto* begin = reinterpret_cast<const unsigned char*>(entry.memory.data());
    const auto* data_end = begin + kGuardWords * 8 + entry.bytes;
    if (std::memcmp(begin, expected.data(), kGuardWords * 8) != 0 ||
        std::memcmp(data_end, expected.data(), kGuardWords * 8) != 0) {
      return name;
    }
  }
  return "";
}

bool Buffers::BitEqual(const Buffers& other, const std::string& name) const {
  const Entry& mine = entries_.at(name);
  const Entry& theirs = other.entries_.at(name);
  return mine.bytes == theirs.bytes &&
         std::memcmp(mine.view.data, theirs.view.data, mine.bytes) == 0;
}

size_t Buffers::TotalBytes() const {
  size_t total = 0;
  for (const auto& [name, entry] : entries_) {
    total += entry.bytes;
  }
  return total;
}

}  // namespace hearth::kernels::harness
