#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/core/formats.h"
#include "kernels/core/kept_input.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"
#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {
namespace {

// Before and behind every buffer. A multiple of 256 bytes: the alignment of device memory.
constexpr size_t kGuardWords = 32;
constexpr size_t kGuardBytes = kGuardWords * 8;
// NaN in every float format: what is read out of bounds spreads.
constexpr uint64_t kGuardPattern = 0xFFFFFFFFFFFFFFFF;
// Elements of a pattern that fills a large buffer for timing.
constexpr int64_t kPatternElements = int64_t{1} << 18;
constexpr const char* kQuantParts[] = {".rows", ".columns", ".scale", ".amax"};

constexpr size_t RoundUp(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// A value of Fill::kExtremes: one that bf16 holds too, or zero in its place. Blocks of 32 have one
// kind each, most of them with other values beside.
double Extreme(const RngKey& key, int64_t i) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const uint64_t element = static_cast<uint64_t>(i);
  const double sign = RngWord(key, element) % 2 == 0 ? 1.0 : -1.0;
  const bool marked = i % 32 == i / 32 % 32;
  const auto power = [&](int from, int count) {
    return std::ldexp(
        sign, from + static_cast<int>(RngWord(key, element) / 2 % static_cast<uint32_t>(count)));
  };
  switch (i / 32 % 10) {
    case 0:
      return power(-30, 60);
    case 1:
      return sign * 0.0;
    case 2:
      return power(-149, 23);  // subnormal
    case 3:
      return marked ? sign * 0x1.FEp127 : power(100, 28);  // bf16's largest
    case 4:
      return marked ? sign * 0x1.EEp127
                    : power(100, 20);  // the largest that comes back, and others
    case 5:
      return marked ? kInfinity : power(-4, 8);
    case 6:
      return marked ? -kInfinity : sign * 0.0;
    case 7:
      return marked ? std::numeric_limits<double>::quiet_NaN() : power(-4, 8);
    case 8:
      return sign * kInfinity;
    default:
      return marked ? power(120, 1) : power(-133, 200);
  }
}

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
    case Fill::kSteps: {
      const int64_t step = i % static_cast<int64_t>(fill.a) / static_cast<int64_t>(fill.b);
      return static_cast<double>(step);
    }
    case Fill::kStarts: {
      const int64_t at = i % static_cast<int64_t>(fill.a);
      return static_cast<double>(at - at % static_cast<int64_t>(fill.b));
    }
    case Fill::kDoubling: {
      const int64_t at = i % static_cast<int64_t>(fill.a);
      int64_t length = 1;
      while (2 * length <= at + 1) {
        length *= 2;
      }
      return static_cast<double>(length - 1);
    }
    case Fill::kWeights:
      return i % 3 == 1 ? 0.0 : static_cast<float>(0.5 + double{RngUniform(key, element)});
    case Fill::kHoles:
      return i % 7 == 0   ? std::numeric_limits<double>::quiet_NaN()
             : i % 5 == 0 ? -std::numeric_limits<double>::infinity()
                          : static_cast<float>(fill.a + fill.b * RngNormal(key, element));
    case Fill::kExtremes:
      return Extreme(key, i);
  }
  return 0.0;
}

DType StorageOf(const BufferSpec& spec, const Storage& storage) {
  if (spec.dtype == DType::kU8) {
    return DType::kF32;
  }
  if (spec.dtype != DType::kF32) {
    return spec.dtype;
  }
  switch (spec.kind) {
    case Kind::kStorage:
      return storage.activations;
    case Kind::kStatistic:
      return storage.statistics;
    case Kind::kWeightGradient:
      return storage.weight_gradients;
  }
  return DType::kF32;
}

void Store(const TensorView& view, int64_t i, double value) {
  const float single = static_cast<float>(value);
  switch (view.dtype) {
    case DType::kF64:
      view.as<double>()[i] = value;
      return;
    case DType::kF32:
      view.as<float>()[i] = single;
      return;
    case DType::kBF16:
      view.as<uint16_t>()[i] = EncodeBf16(single);
      return;
    case DType::kE4M3:
      view.as<uint8_t>()[i] = EncodeE4m3(single);
      return;
    case DType::kE5M2:
      view.as<uint8_t>()[i] = EncodeE5m2(single);
      return;
    case DType::kI32:
      view.as<int32_t>()[i] = std::isnan(value) ? -1 : static_cast<int32_t>(value);
      return;
    case DType::kI64:
      view.as<int64_t>()[i] = std::isnan(value) ? -1 : static_cast<int64_t>(value);
      return;
    default:
      HEARTH_CHECK(false, "harness buffers have no such type");
  }
}

double Load(const TensorView& view, int64_t i) {
  switch (view.dtype) {
    case DType::kF64:
      return view.as<double>()[i];
    case DType::kF32:
      return double{view.as<float>()[i]};
    case DType::kBF16:
      return double{DecodeBf16(view.as<uint16_t>()[i])};
    case DType::kE4M3:
      return double{DecodeE4m3(view.as<uint8_t>()[i])};
    case DType::kE5M2:
      return double{DecodeE5m2(view.as<uint8_t>()[i])};
    case DType::kI32:
      return static_cast<double>(view.as<int32_t>()[i]);
    case DType::kI64:
      return static_cast<double>(view.as<int64_t>()[i]);
    default:
      HEARTH_CHECK(false, "harness buffers have no such type");
  }
}

TensorView Shaped(DType dtype, const std::vector<int64_t>& shape) {
  TensorView view;
  view.dtype = dtype;
  for (int64_t extent : shape) {
    view.shape[static_cast<size_t>(view.rank++)] = extent;
  }
  return view;
}

// The parts of a QuantView as tensors of bytes and floats, in the order of kQuantParts. Parts that
// are not wanted have no elements.
std::vector<TensorView> QuantShapes(const BufferSpec& spec) {
  const TensorView plain = Shaped(spec.dtype, spec.shape);
  return {Shaped(spec.dtype, {plain.rows(), plain.cols()}),
          spec.quant_columns ? Shaped(spec.dtype, {plain.cols(), plain.rows()})
                             : Shaped(spec.dtype, {0}),
          Shaped(DType::kF32, {1}), Shaped(DType::kF32, {1})};
}

// The first contents of a buffer.
void FillBuffer(const BufferSpec& spec,
                const TensorView& view,
                DType values,
                const RngKey& key,
                bool zero_accumulators) {
  if (!spec.contents.empty()) {
    HEARTH_CHECK(spec.contents.size() == view.bytes(), "contents fill the buffer");
    std::memcpy(view.data, spec.contents.data(), spec.contents.size());
    return;
  }
  for (int64_t i = 0; i < view.numel(); ++i) {
    double value =
        spec.role == Role::kOutput
            ? std::numeric_limits<double>::quiet_NaN()
            : double{RoundToFormat(static_cast<float>(ValueAt(spec.fill, key, i)), values)};
    if (spec.role == Role::kInput && spec.dtype == DType::kF64) {
      value = ValueAt(spec.fill, key, i);
    }
    if (spec.role == Role::kAccumulate && zero_accumulators) {
      value = 0.0;
    }
    Store(view, i, value);
  }
}

// Device memory of `bytes` bytes filled with copies of its first `filled` bytes.
absl::Status Spread(const Exec& exec, void* data, size_t filled, size_t bytes) {
  unsigned char* to = static_cast<unsigned char*>(data);
  for (size_t done = filled; done < bytes; done *= 2) {
    HEARTH_RETURN_IF_ERROR(Copy(exec, to + done, to, std::min(done, bytes - done)));
  }
  return absl::OkStatus();
}

}  // namespace

BufferSpec Statistic(std::string name, std::vector<int64_t> shape, Role role) {
  BufferSpec spec = {std::move(name), std::move(shape), role};
  spec.kind = Kind::kStatistic;
  return spec;
}

BufferSpec Indices(std::string name, std::vector<int64_t> shape, int64_t first, int64_t end) {
  return {std::move(name),
          std::move(shape),
          Role::kInput,
          {Fill::kIndex, static_cast<double>(first), static_cast<double>(end)},
          DType::kI32};
}

BufferSpec WeightGradient(std::string name, std::vector<int64_t> shape, Role role) {
  BufferSpec spec = {std::move(name), std::move(shape), role};
  spec.kind = Kind::kWeightGradient;
  return spec;
}

BufferSpec Quantised(
    std::string name, std::string quant_of, std::vector<int64_t> shape, DType dtype, bool columns) {
  BufferSpec spec = {std::move(name), std::move(shape), Role::kOutput};
  spec.dtype = dtype;
  spec.quant_of = std::move(quant_of);
  spec.quant_columns = columns;
  return spec;
}

BufferSpec Words(std::string name, size_t bytes) {
  BufferSpec spec = {std::move(name), {static_cast<int64_t>((bytes + 7) / 8)}, Role::kOutput};
  spec.dtype = DType::kI64;
  return spec;
}

BufferSpec KeptWords(std::string name, int64_t rows, int64_t cols) {
  return Words(std::move(name), static_cast<size_t>(KeptBytes(rows, cols)));
}

OpCase NewCase(std::string op, std::string name) {
  const bool perf = absl::StartsWith(name, "perf_");
  return {.op = std::move(op), .name = std::move(name), .perf = perf};
}

OpCase NewExactCase(std::string op, std::string name) {
  OpCase c = NewCase(std::move(op), std::move(name));
  c.slack = 0.0;
  return c;
}

void AddKeptTwice(OpCase& c, int64_t rows, int64_t cols) {
  c.buffers.push_back(KeptWords("kept", rows, cols));
  if (c.perf) {
    return;
  }
  c.buffers.push_back(KeptWords("kept.without", rows, cols));
  const auto before = c.check;
  c.check = [before](const Buffers& b) {
    const std::string error = before ? before(b) : "";
    const bool same = b.Bytes("kept") == b.Bytes("kept.without");
    return error.empty() && !same ? "the kept input differs beside block forms" : error;
  };
}

void AddQuantised(
    OpCase& c, const std::string& of, const std::vector<int64_t>& shape, DType dtype, bool twice) {
  const TensorView plain = Shaped(dtype, shape);
  const bool columns = plain.rows() % 16 == 0 && plain.cols() % 16 == 0;
  c.buffers.push_back(Quantised(of + "_quant", of, shape, dtype, columns));
  if (twice) {
    c.buffers.push_back(Quantised(of + "_alone", of, shape, dtype, columns));
  }
}

void Buffers::Add(const std::string& name, const TensorView& view, DType quant) {
  Entry entry;
  entry.view = view;
  entry.quant = quant;
  entry.bytes = DTypeBytes(view.dtype, view.numel());
  entries_[name] = std::move(entry);
}

Buffers::Buffers(const std::vector<BufferSpec>& specs,
                 const Storage& storage,
                 const Storage& values,
                 uint64_t seed,
                 bool zero_accumulators)
    : storage_(storage.activations) {
  const auto image = [this](const std::string& name) -> TensorView& {
    Entry& entry = entries_.at(name);
    entry.memory.assign(kGuardWords * 2 + (entry.bytes + 7) / 8, kGuardPattern);
    entry.view.data = entry.memory.data() + kGuardWords;
    return entry.view;
  };
  uint32_t tensor = 0;
  for (const BufferSpec& spec : specs) {
    const RngKey key = {seed, RngPurpose::kTest, 0, 0, tensor++};
    if (spec.quant_of.empty()) {
      Add(spec.name, Shaped(StorageOf(spec, storage), spec.shape), DType::kF32);
      FillBuffer(spec, image(spec.name), StorageOf(spec, values), key, zero_accumulators);
      continue;
    }
    const std::vector<TensorView> parts = QuantShapes(spec);
    for (size_t i = 0; i < parts.size(); ++i) {
      Add(spec.name + kQuantParts[i], parts[i], spec.dtype);
      const TensorView& view = image(spec.name + kQuantParts[i]);
      if (i < 2) {
        std::memset(view.data, 0xFF, view.bytes());
      } else {
        Store(view, 0, i == 2 ? spec.quant_scale : 0.0);
      }
    }
  }
}

Buffers::~Buffers() {
  if (arena_ != nullptr) {
    FreeDevice(arena_);
  }
}

Buffers::Buffers(Buffers&& other) noexcept
    : storage_(other.storage_),
      entries_(std::move(other.entries_)),
      arena_(std::exchange(other.arena_, nullptr)) {}

Buffers Buffers::Clone() const {
  HEARTH_CHECK(arena_ == nullptr, "only an image in host memory is cloned");
  Buffers copy;
  copy.storage_ = storage_;
  copy.entries_ = entries_;
  for (auto& [name, entry] : copy.entries_) {
    entry.view.data = entry.memory.data() + kGuardWords;
  }
  return copy;
}

absl::Status Buffers::AllocateDeviceMemory(const Exec& exec, size_t guard_bytes) {
  size_t total = 0;
  for (const auto& [name, entry] : entries_) {
    total += 2 * guard_bytes + RoundUp(entry.bytes);
  }
  HEARTH_ASSIGN_OR_RETURN(arena_, AllocateDevice(*exec.cuda, std::max<size_t>(total, 256)));
  unsigned char* at = static_cast<unsigned char*>(arena_);
  for (auto& [name, entry] : entries_) {
    entry.device = at + guard_bytes;
    at += 2 * guard_bytes + RoundUp(entry.bytes);
  }
  return absl::OkStatus();
}

absl::Status Buffers::Upload(const Exec& exec) {
  HEARTH_RETURN_IF_ERROR(AllocateDeviceMemory(exec, kGuardBytes));
  for (const auto& [name, entry] : entries_) {
    HEARTH_RETURN_IF_ERROR(Copy(exec, static_cast<unsigned char*>(entry.device) - kGuardBytes,
                                entry.memory.data(), entry.memory.size() * 8));
  }
  return Synchronize(exec);
}

absl::Status Buffers::Download(const Exec& exec) {
  HEARTH_RETURN_IF_ERROR(Synchronize(exec));
  for (auto& [name, entry] : entries_) {
    HEARTH_RETURN_IF_ERROR(Copy(exec, entry.memory.data(),
                                static_cast<unsigned char*>(entry.device) - kGuardBytes,
                                entry.memory.size() * 8));
  }
  return Synchronize(exec);
}

absl::StatusOr<Buffers> Buffers::ForTiming(const std::vector<BufferSpec>& specs,
                                           const Storage& storage,
                                           const Exec& exec) {
  Buffers buffers;
  buffers.storage_ = storage.activations;
  // A small copy of each buffer, whose contents are then spread over the real one.
  std::vector<BufferSpec> small;
  for (const BufferSpec& spec : specs) {
    if (!spec.quant_of.empty()) {
      const std::vector<TensorView> parts = QuantShapes(spec);
      for (size_t i = 0; i < parts.size(); ++i) {
        buffers.Add(spec.name + kQuantParts[i], parts[i], spec.dtype);
      }
      continue;
    }
    const TensorView view = Shaped(StorageOf(spec, storage), spec.shape);
    buffers.Add(spec.name, view, DType::kF32);
    // Positions, starts, tokens and structs keep their meaning only as a whole.
    const bool whole = view.dtype == DType::kI32 || view.dtype == DType::kI64;
    if (spec.role == Role::kInput || !spec.contents.empty()) {
      small.push_back(spec);
      small.back().shape = {whole ? view.numel() : std::min(view.numel(), kPatternElements)};
    }
  }
  HEARTH_RETURN_IF_ERROR(buffers.AllocateDeviceMemory(exec, 0));
  for (const auto& [name, entry] : buffers.entries_) {
    HEARTH_RETURN_IF_ERROR(Zero(exec, entry.device, entry.bytes));
  }
  const Buffers patterns(small, storage, storage, kSeed, false);
  for (const BufferSpec& spec : small) {
    const TensorView pattern = patterns[spec.name];
    const Entry& entry = buffers.entries_.at(spec.name);
    HEARTH_RETURN_IF_ERROR(Copy(exec, entry.device, pattern.data, pattern.bytes()));
    HEARTH_RETURN_IF_ERROR(Spread(exec, entry.device, pattern.bytes(), entry.bytes));
  }
  for (const BufferSpec& spec : specs) {
    if (!spec.quant_of.empty()) {
      const float scale = static_cast<float>(spec.quant_scale);
      HEARTH_RETURN_IF_ERROR(
          Copy(exec, buffers.entries_.at(spec.name + ".scale").device, &scale, sizeof(scale)));
    }
  }
  HEARTH_RETURN_IF_ERROR(Synchronize(exec));
  return buffers;
}

TensorView Buffers::operator[](const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) {
    return TensorView();
  }
  TensorView view = it->second.view;
  if (it->second.device != nullptr) {
    view.data = it->second.device;
  }
  return view;
}

QuantView Buffers::Quant(const std::string& name) const {
  QuantView quant;
  const auto it = entries_.find(name + ".rows");
  if (it == entries_.end() || storage_ == DType::kF64) {
    return quant;
  }
  quant.dtype = it->second.quant;
  quant.rows = (*this)[name + ".rows"].data;
  const TensorView columns = (*this)[name + ".columns"];
  quant.columns = columns.numel() > 0 ? columns.data : nullptr;
  quant.scale = (*this)[name + ".scale"].as<float>();
  quant.amax = (*this)[name + ".amax"].as<float>();
  return quant;
}

double Buffers::Get(const std::string& name, int64_t i) const {
  return Load(entries_.at(name).view, i);
}

void Buffers::Set(const std::string& name, int64_t i, double value) {
  Store(entries_.at(name).view, i, value);
}

std::vector<double> Buffers::Values(const std::string& name) const {
  const TensorView& view = entries_.at(name).view;
  std::vector<double> values(static_cast<size_t>(view.numel()));
  for (int64_t i = 0; i < view.numel(); ++i) {
    values[static_cast<size_t>(i)] = Load(view, i);
  }
  return values;
}

std::string Buffers::Bytes(const std::string& name) const {
  const auto bytes_of = [](const Entry& entry) {
    return std::string(static_cast<const char*>(entry.view.data), entry.bytes);
  };
  if (const auto it = entries_.find(name); it != entries_.end()) {
    return bytes_of(it->second);
  }
  std::string all;
  for (const char* part : kQuantParts) {
    absl::StrAppend(&all, bytes_of(entries_.at(name + part)));
  }
  return all;
}

DType Buffers::TypeOf(const std::string& name) const {
  return entries_.at(name).view.dtype;
}

std::string Buffers::DamagedGuard() const {
  const std::string expected(kGuardBytes, '\xFF');
  for (const auto& [name, entry] : entries_) {
    const char* begin = reinterpret_cast<const char*>(entry.memory.data());
    const char* data_end = begin + kGuardBytes + entry.bytes;
    if (std::memcmp(begin, expected.data(), kGuardBytes) != 0) {
      return name + " (before it)";
    }
    if (std::memcmp(data_end, expected.data(), kGuardBytes) != 0) {
      return name + " (behind it)";
    }
  }
  return "";
}

bool Buffers::BitEqual(const Buffers& other, const std::string& name) const {
  return Bytes(name) == other.Bytes(name);
}

size_t Buffers::TotalBytes() const {
  size_t total = 0;
  for (const auto& [name, entry] : entries_) {
    total += entry.bytes;
  }
  return total;
}

double Buffers::BytesOf(const std::vector<std::string>& names) const {
  double total = 0;
  for (const std::string& name : names) {
    if (const auto it = entries_.find(name); it != entries_.end()) {
      total += static_cast<double>(it->second.bytes);
      continue;
    }
    for (const char* part : kQuantParts) {
      const auto it = entries_.find(name + part);
      total += it == entries_.end() ? 0.0 : static_cast<double>(it->second.bytes);
    }
  }
  return total;
}

}  // namespace hearth::kernels::harness
