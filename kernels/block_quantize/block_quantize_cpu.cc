#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "kernels/block_quantize/block_quantize.h"
#include "kernels/core/cpu.h"
#include "kernels/core/formats.h"
#include "kernels/core/rng.h"
#include "kernels/formats/block_scale.h"
#include "kernels/step_gate/step_gate.h"

namespace hearth::kernels {
namespace {

constexpr int kMaxSpans = kMaxHadamard / kSpan;

void RaiseAmax(float* amax, uint32_t bits) {
  std::atomic_ref<float> shared(*amax);
  // Compared as integers, where NaN is above everything: it is never lost.
  const uint32_t recorded = RecordedMagnitude(bits);
  float seen = shared.load(std::memory_order_relaxed);
  while ((std::bit_cast<uint32_t>(seen) & 0x7FFFFFFF) < recorded &&
         !shared.compare_exchange_weak(seen, std::bit_cast<float>(recorded),
                                       std::memory_order_relaxed)) {
  }
}

// One form of a tensor: line l, position k is x[l * line_step + k * step].
template <typename T>
struct Job {
  const T* x;
  int64_t lines, extent;
  int64_t line_step, step;
  const BlockQuantView* quant;
  const BlockForm* form;
  TensorScale tensor;
  SignWords signs;
  RngKey key;
  uint64_t first_element;
  std::vector<uint32_t> squares;  // magnitudes of the square tiles, a row of tiles after the other

  float At(int64_t line, int64_t k) const {
    return static_cast<float>(x[line * line_step + k * step]);
  }
};

// The spans of a group, before and while they are quantised.
struct Group {
  float v[kMaxSpans][kSpan];
  uint32_t largest[kMaxSpans];
  int spans = 1;
};

struct LineResult {
  uint32_t largest = 0;
  uint64_t saturated = 0;
  uint64_t underflowed = 0;

  void Add(const SpanCounts& counts) {
    saturated += counts.saturated;
    underflowed += counts.underflowed;
  }
};

void Transform(const SignWords& signs, int hadamard, Group& group) {
  const int spans = hadamard / kSpan;
  for (int s = 0; s < group.spans; ++s) {
    HadamardSpan(group.v[s], signs.Of(s % spans * kSpan));
  }
  // The stages beyond a span: each adds and subtracts spans that are `distance` apart.
  for (int distance = 1; distance < spans; distance *= 2) {
    for (int s = 0; s < group.spans; ++s) {
      for (int i = 0; i < kSpan && (s & distance) == 0; ++i) {
        const float low = group.v[s][i];
        const float high = group.v[s + distance][i];
        group.v[s][i] = HadamardStage(low, high, false);
        group.v[s + distance][i] = HadamardStage(high, low, true);
      }
    }
  }
  const float norm = HadamardNorm(hadamard);
  for (int s = 0; s < group.spans; ++s) {
    for (float& v : group.v[s]) {
      v = MulRn(v, norm);
    }
  }
}

template <typename T>
void Load(const Job<T>& job, int64_t line, int64_t begin, Group& group) {
  for (int s = 0; s < group.spans; ++s) {
    for (int i = 0; i < kSpan; ++i) {
      group.v[s][i] = job.At(line, begin + int64_t{s} * kSpan + i);
    }
  }
  if (job.form->hadamard > 0) {
    Transform(job.signs, job.form->hadamard, group);
  }
  for (int s = 0; s < group.spans; ++s) {
    group.largest[s] = LargestMagnitude(group.v[s]);
  }
}

// The magnitudes of the tiles of length x length, where they share a scale.
template <typename T>
void MeasureSquares(const Exec& exec, int64_t length, Job<T>& job) {
  const int64_t across = CeilDiv(job.extent, length);
  job.squares.assign(static_cast<size_t>(CeilDiv(job.lines, length) * across), 0);
  ParallelFor(exec, CeilDiv(job.lines, length), 1, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin * length; line < std::min(end * length, job.lines); ++line) {
      for (int64_t k = 0; k < job.extent; ++k) {
        uint32_t& largest = job.squares[static_cast<size_t>(line / length * across + k / length)];
        largest = std::max(largest, FloatBits(job.At(line, k)) & 0x7FFFFFFFU);
      }
    }
  });
}

template <typename T>
uint32_t SquareMagnitude(const Job<T>& job, int64_t length, int64_t line, int64_t k) {
  return job.squares[static_cast<size_t>(line / length * CeilDiv(job.extent, length) + k / length)];
}

template <BlockLayout kLayout, typename T>
void StoreScale(const Job<T>& job,
                int64_t line,
                int64_t k,
                typename ScaleOf<kLayout>::Stored scale) {
  const int64_t at =
      BlockScaleOffset(kLayout, line, k / RowOf(kLayout).length, job.lines, job.extent);
  std::memcpy(job.form->scales + at, &scale, sizeof(scale));
}

template <BlockLayout kLayout, typename T>
void StoreE2m1(const Job<T>& job, int64_t line, int64_t k, const E2m1Codes& codes, uint8_t scale) {
  std::memcpy(static_cast<uint8_t*>(job.form->values) + (line * job.extent + k) / 2, codes.words,
              sizeof(codes.words));
  StoreScale<kLayout>(job, line, k, scale);
}

// Sums over `count` spans as pairs of pairs.
float TreeSum(const float* values, int count) {
  // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.UndefReturn): callers set `count` values
  return count == 1 ? values[0]
                    : AddRn(TreeSum(values, count / 2), TreeSum(values + count / 2, count / 2));
}

template <BlockLayout kLayout, typename T>
void QuantizeEdenGroup(
    const Job<T>& job, int64_t line, int64_t begin, const Group& group, LineResult& result) {
  EdenBlock blocks[kMaxSpans];
  float squares[kMaxSpans];
  float projections[kMaxSpans];
  for (int s = 0; s < group.spans; ++s) {
    blocks[s] = QuantizeEden(group.v[s], group.largest[s], job.tensor);
    squares[s] = blocks[s].squares;
    projections[s] = blocks[s].projection;
  }
  // One factor for the whole group makes its projection exact; the blocks' scales take it up.
  const float sum = TreeSum(squares, group.spans);
  const float projection = TreeSum(projections, group.spans);
  for (int s = 0; s < group.spans; ++s) {
    const int64_t k = begin + int64_t{s} * kSpan;
    const uint64_t element = job.first_element + static_cast<uint64_t>(line * job.extent + k);
    const uint32_t random = RngBlock(job.key, element / 8)[0] & 0xFFFFU;
    const uint8_t scale = EdenScale(blocks[s].base, sum, projection, random);
    StoreE2m1<kLayout>(job, line, k, blocks[s].codes, scale);
    if (scale != kE4m3Nan) {
      result.Add(
          CountSpan<4>(group.v[s], blocks[s].codes.words, blocks[s].factor, kE2m1Max, scale == 0));
    }
  }
}

template <BlockLayout kLayout, typename T>
void QuantizeE2m1Span(
    const Job<T>& job, int64_t line, int64_t k, const Group& group, int s, LineResult& result) {
  const uint32_t largest =
      job.quant->square ? SquareMagnitude(job, RowOf(kLayout).length, line, k) : group.largest[s];
  const uint64_t element = job.first_element + static_cast<uint64_t>(line * job.extent + k);
  const E2m1Block block =
      QuantizeE2m1(group.v[s], largest, job.form->rounding, job.tensor, job.key, element);
  StoreE2m1<kLayout>(job, line, k, block.codes, block.scale);
  if (block.scale != kE4m3Nan) {
    result.Add(
        CountSpan<4>(group.v[s], block.codes.words, block.factor, kE2m1Max, block.scale == 0));
  }
}

template <BlockLayout kLayout, typename T>
void QuantizeFp8Span(
    const Job<T>& job, int64_t line, int64_t k, const Group& group, int s, LineResult& result) {
  using Scale = ScaleOf<kLayout>;
  constexpr int kSpans = RowOf(kLayout).length / kSpan;
  const bool e4m3 = job.quant->dtype == DType::kE4M3;
  uint32_t largest = 0;
  if (job.quant->square) {
    largest = SquareMagnitude(job, RowOf(kLayout).length, line, k);
  } else {
    // A block has several spans, which share a scale and so a maximum.
    const int first = s / kSpans * kSpans;
    largest = *std::max_element(group.largest + first,
                                group.largest + std::min(first + kSpans, group.spans));
  }
  const typename Scale::Stored scale = Scale::Make(largest, MaxFiniteInverse(e4m3));
  const uint64_t element = job.first_element + static_cast<uint64_t>(line * job.extent + k);
  Fp8Codes codes;
  if (Scale::IsFinite(scale)) {
    const float factor = Scale::Inverse(scale);
    codes = job.form->rounding == Rounding::kNearest
                ? EncodeFp8Span(group.v[s], factor, e4m3)
                : EncodeFp8SpanStochastic(group.v[s], factor, e4m3, job.key, element);
    result.Add(CountSpan<8>(group.v[s], codes.words, factor, MaxFinite(job.quant->dtype), false));
  }
  std::memcpy(static_cast<uint8_t*>(job.form->values) + line * job.extent + k, codes.words,
              sizeof(codes.words));
  StoreScale<kLayout>(job, line, k, scale);
}

template <BlockLayout kLayout, typename T>
void QuantizeLine(const Job<T>& job, int64_t line, LineResult& result) {
  // The last group may be shorter than the others.
  const int64_t length = std::max<int64_t>(job.form->hadamard, RowOf(kLayout).length);
  for (int64_t begin = 0; begin < job.extent; begin += length) {
    Group group;
    group.spans = static_cast<int>(std::min(length, job.extent - begin) / kSpan);
    Load(job, line, begin, group);
    for (int s = 0; s < group.spans; ++s) {
      result.largest = std::max(result.largest, group.largest[s]);
    }
    // Measured alone: the maximum makes the scale of a later call.
    if (!job.form->has_values()) {
      continue;
    }
    if (job.form->rounding == Rounding::kEden) {
      if constexpr (RowOf(kLayout).fp4) {
        QuantizeEdenGroup<kLayout>(job, line, begin, group, result);
      }
      continue;
    }
    for (int s = 0; s < group.spans; ++s) {
      if constexpr (RowOf(kLayout).fp4) {
        QuantizeE2m1Span<kLayout>(job, line, begin + int64_t{s} * kSpan, group, s, result);
      } else {
        QuantizeFp8Span<kLayout>(job, line, begin + int64_t{s} * kSpan, group, s, result);
      }
    }
  }
}

template <BlockLayout kLayout, typename T>
void QuantizeForm(const Exec& exec, Job<T> job) {
  const BlockForm& form = *job.form;
  if (!form.wanted()) {
    return;
  }
  if (form.has_values()) {
    // Products read whole tiles of scales, also those behind the edge of the tensor.
    std::memset(form.scales, 0, BlockScaleBytes(kLayout, job.lines, job.extent));
    if (job.quant->square) {
      MeasureSquares(exec, RowOf(kLayout).length, job);
    }
    if (RowOf(kLayout).tensor_scale) {
      job.tensor = TensorScaleOf(*form.amax, form.rounding);
      *form.tensor_scale = job.tensor.decode;
    }
  }
  job.signs = SignsOf(form.signs, job.key.seed, job.key.step, job.quant->rotation);
  ParallelFor(exec, job.lines, RowGrain(job.extent), [&](int64_t begin, int64_t end) {
    LineResult result;
    for (int64_t line = begin; line < end; ++line) {
      QuantizeLine<kLayout>(job, line, result);
    }
    if (form.measured != nullptr) {
      RaiseAmax(form.measured, result.largest);
    }
    if (form.counts != nullptr && form.has_values()) {
      std::atomic_ref<uint64_t>(form.counts[0]) += result.saturated;
      std::atomic_ref<uint64_t>(form.counts[1]) += result.underflowed;
    }
  });
}

template <BlockLayout kLayout, typename T>
void QuantizeOne(const Exec& exec, const BlockQuantizeTensor& tensor) {
  const BlockQuantView& quant = tensor.quant;
  const int64_t rows = tensor.x.rows();
  const int64_t cols = tensor.x.cols();
  Job<T> job = {tensor.x.as<T>(), rows, cols, cols,      1, &quant,
                &quant.rows,      {},   {},   quant.key, 0, {}};
  job.key.purpose = RngPurpose::kBlockRounding;
  if (quant.position != nullptr) {
    job.key.step = static_cast<uint32_t>(quant.position->step);
    job.key.micro_batch = quant.position->micro_batch;
  }
  QuantizeForm<kLayout>(exec, job);
  job.form = &quant.columns;
  // The transposed form is the same work with lines and positions exchanged.
  std::swap(job.lines, job.extent);
  std::swap(job.line_step, job.step);
  // Random numbers of its own, behind those of the rows.
  job.first_element = static_cast<uint64_t>(rows * cols);
  QuantizeForm<kLayout>(exec, job);
  if (quant.amax != nullptr) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < rows * cols; ++i) {
      largest = std::max(largest, FloatBits(static_cast<float>(job.x[i])) & 0x7FFFFFFFU);
    }
    RaiseAmax(quant.amax, largest);
  }
}

// Values of 16 elements without their scale.
void DecodeSpan(const BlockScaledView& x, int64_t at, float (&out)[kSpan]) {
  const uint8_t* bytes = static_cast<const uint8_t*>(x.values);
  for (int i = 0; i < kSpan; ++i) {
    const int64_t e = at + i;
    switch (x.dtype) {
      case DType::kE2M1:
        out[i] = DecodeE2m1((uint32_t{bytes[e / 2]} >> (e % 2 * 4)) & 15U);
        break;
      case DType::kE4M3:
        out[i] = DecodeE4m3(bytes[e]);
        break;
      default:
        out[i] = DecodeE5m2(bytes[e]);
    }
  }
}

// Sixteen elements from number `at` on, of one line, times their block's scale.
template <BlockLayout kLayout, typename T>
void DequantizeSpan(const BlockScaledView& x, int64_t lines, int64_t extent, int64_t at, T* out) {
  const int64_t line = at / extent;
  const int64_t k = at % extent;
  typename ScaleOf<kLayout>::Stored stored;
  std::memcpy(&stored,
              x.scales + BlockScaleOffset(kLayout, line, k / RowOf(kLayout).length, lines, extent),
              sizeof(stored));
  const float scale = ScaleOf<kLayout>::Decode(stored);
  float v[kSpan];
  DecodeSpan(x, at, v);
  for (int i = 0; i < kSpan; ++i) {
    out[i] = T{MulRn(v[i], scale)};
  }
}

template <BlockLayout kLayout, typename T>
void DequantizeImpl(const Exec& exec, const BlockDequantizeArgs& args) {
  const int64_t extent = args.y.cols();
  ParallelFor(exec, args.y.rows(), RowGrain(extent), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * extent; at < end * extent; at += kSpan) {
      DequantizeSpan<kLayout>(args.x, args.y.rows(), extent, at, args.y.as<T>() + at);
    }
  });
}

}  // namespace

absl::Status ComputeWithBlocks(const Exec& exec,
                               const TensorView& out,
                               const BlockQuantView& blocks,
                               DType dtype,
                               int64_t rows,
                               int64_t cols,
                               absl::FunctionRef<absl::Status(const TensorView&)> compute) {
  if (blocks.empty()) {
    return compute(out);
  }
  std::vector<double> memory;  // aligned to 16 bytes
  BlockQuantizeTensor tensor;
  tensor.x = TensorView(out.data, dtype, {rows, cols});
  tensor.quant = blocks;
  if (out.empty()) {
    memory.resize((tensor.x.bytes() + sizeof(double) - 1) / sizeof(double) + 1);
    tensor.x.data = memory.data();
  }
  HEARTH_RETURN_IF_ERROR(compute(tensor.x));
  BlockQuantizeArgs args;
  args.tensors = absl::MakeConstSpan(&tensor, 1);
  return BlockQuantize(exec, args);
}

namespace cpu {

absl::Status BlockQuantize(const Exec& exec, const BlockQuantizeArgs& args) {
  if (args.skip != nullptr && *args.skip != 0) {
    return absl::OkStatus();
  }
  for (const BlockQuantizeTensor& tensor : args.tensors) {
    if (tensor.quant.empty() || tensor.x.numel() == 0) {
      continue;
    }
    DispatchFloating(tensor.x.dtype, [&]<typename T>() {
      return VisitLayout(tensor.quant.layout, [&](auto layout) {
        QuantizeOne<layout.value, T>(exec, tensor);
        return 0;
      });
    });
    const bool written = tensor.quant.rows.has_values() || tensor.quant.columns.has_values();
    if (args.counter != nullptr && written) {
      ++*args.counter;
    }
  }
  return absl::OkStatus();
}

absl::Status UpdateBlockAmax(const Exec&, const UpdateBlockAmaxArgs& args) {
  const bool skip = args.skip != nullptr && *args.skip != 0;
  for (int64_t i = 0; i < args.n; ++i) {
    if (!skip) {
      args.amax[i] = NextBlockAmax(args.measured[i], args.amax[i], args.margin);
    }
    args.measured[i] = 0.0F;
  }
  return absl::OkStatus();
}

absl::Status BlockDequantize(const Exec& exec, const BlockDequantizeArgs& args) {
  return DispatchFloating(args.y.dtype, [&]<typename T>() {
    return VisitLayout(args.x.layout, [&](auto layout) {
      DequantizeImpl<layout.value, T>(exec, args);
      return absl::OkStatus();
    });
  });
}

}  // namespace cpu

}  // namespace hearth::kernels
