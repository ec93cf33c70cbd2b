#include "kernels/gemm/product_check.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "kernels/core/block_quant.h"
#include "kernels/core/rng.h"
#include "kernels/cuda/device.h"
#include "kernels/formats/row_difference.h"
#include "kernels/formats/span.h"

namespace hearth::kernels {
namespace {

// Lines of a tile of block scales: where one begins, scales can be cut.
constexpr int64_t kRows = 128;
// Random codes repeat after so many bytes, a prime number: rows differ.
constexpr int64_t kPeriod = 65521;

// Rows of a matrix, from the first element of the first row to the last one of the last.
struct Stretch {
  void* data = nullptr;
  size_t bytes = 0;
};

Stretch StretchOf(const TensorView& matrix, int64_t row_elements) {
  return {matrix.data, static_cast<size_t>(DTypeBytes(
                           matrix.dtype, (matrix.rows() - 1) * row_elements + matrix.cols()))};
}

TensorView RowsOf(const TensorView& matrix, int64_t row_elements, int64_t begin, int64_t count) {
  return TensorView(static_cast<void*>(static_cast<uint8_t*>(matrix.data) +
                                       DTypeBytes(matrix.dtype, begin * row_elements)),
                    matrix.dtype, {count, matrix.cols()});
}

// The same product of some rows. `begin` is a multiple of kRows.
GemmArgs Slice(const GemmArgs& args, int64_t begin, int64_t count) {
  const GemmExtents e = ExtentsOf(args);
  GemmArgs slice = args;
  slice.a = RowsOf(args.a, e.lda, begin, count);
  slice.c = RowsOf(args.c, e.ldc, begin, count);
  if (!args.addend.empty()) {
    slice.addend = RowsOf(args.addend, e.ldc, begin, count);
  }
  if (args.block_scales_a != nullptr) {
    slice.block_scales_a += BlockScaleOffset(args.block_layout_a, begin, 0, e.m, e.k);
  }
  return slice;
}

// The first rows and the last ones, which may end within a tile.
std::vector<GemmArgs> Slices(const GemmArgs& args) {
  const int64_t m = ExtentsOf(args).m;
  std::vector<GemmArgs> slices = {Slice(args, 0, std::min(m, kRows))};
  if (m > kRows) {
    const int64_t last = (m - 1) / kRows * kRows;
    slices.push_back(Slice(args, last, m - last));
  }
  return slices;
}

absl::StatusOr<std::vector<uint8_t>> Download(const Exec& exec, const Stretch& from) {
  std::vector<uint8_t> bytes(from.bytes);
  HEARTH_RETURN_IF_ERROR(Copy(exec, bytes.data(), from.data, from.bytes));
  HEARTH_RETURN_IF_ERROR(Synchronize(exec));
  return bytes;
}

absl::Status Upload(const Exec& exec, const std::vector<uint8_t>& from, const Stretch& to) {
  HEARTH_RETURN_IF_ERROR(Copy(exec, to.data, from.data(), to.bytes));
  return Synchronize(exec);  // the source is pageable and may be gone soon
}

// Codes of magnitudes below 2, none of them NaN or infinite: in FP8 the exponent's first bit is 0.
std::vector<uint8_t> RandomCodes(DType dtype, size_t bytes, size_t from) {
  static const std::vector<uint8_t>& random = *[] {
    auto* const codes = new std::vector<uint8_t>(kPeriod);
    const RngKey key = {19, RngPurpose::kTest, 0, 0, 0};
    for (int64_t i = 0; i < kPeriod; ++i) {
      (*codes)[static_cast<size_t>(i)] =
          static_cast<uint8_t>(RngWord(key, static_cast<uint64_t>(i)) >> 13);
    }
    return codes;
  }();
  const uint8_t mask = dtype == DType::kE2M1 ? 0xFF : 0xBF;
  std::vector<uint8_t> codes(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    codes[i] = random[(from + i) % kPeriod] & mask;
  }
  return codes;
}

// Scales of a slice: near 1, different from block to block, padding 0.
std::vector<uint8_t> RandomScales(BlockLayout layout, int64_t lines, int64_t extent) {
  const BlockLayoutRow& row = RowOf(layout);
  const int64_t blocks = BlocksOf(row, extent);
  // 2^-2 to 2^1, or 0.5 to 1.875.
  const auto code = [&](uint8_t random) {
    return static_cast<uint8_t>(row.scale_dtype == DType::kE8M0 ? 125 + random % 4
                                                                : 0x30 + random % 16);
  };
  const std::vector<uint8_t> random =
      RandomCodes(DType::kE2M1, static_cast<size_t>(lines * blocks), 7);
  std::vector<uint8_t> scales(static_cast<size_t>(BlockScaleBytes(layout, lines, extent)));
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t block = 0; block < blocks; ++block) {
      scales[static_cast<size_t>(BlockScaleOffset(layout, line, block, lines, extent))] =
          code(random[static_cast<size_t>(line * blocks + block)]);
    }
  }
  return scales;
}

// Rows of a; `from`: where in the random codes they begin.
absl::Status Randomise(const Exec& exec, const GemmArgs& slice, size_t from) {
  const GemmExtents e = ExtentsOf(slice);
  const Stretch a = StretchOf(slice.a, e.lda);
  HEARTH_RETURN_IF_ERROR(Upload(exec, RandomCodes(slice.a.dtype, a.bytes, from), a));
  if (slice.block_scales_a == nullptr) {
    return absl::OkStatus();
  }
  const std::vector<uint8_t> scales = RandomScales(slice.block_layout_a, e.m, e.k);
  return Upload(exec, scales, {const_cast<uint8_t*>(slice.block_scales_a), scales.size()});
}

std::vector<float> Values(const std::vector<uint8_t>& bytes, const GemmArgs& slice) {
  const GemmExtents e = ExtentsOf(slice);
  std::vector<float> values(static_cast<size_t>(e.m * e.n));
  for (int64_t row = 0; row < e.m; ++row) {
    DecodeSpan(bytes.data() + DTypeBytes(slice.c.dtype, row * e.ldc), e.n, slice.c.dtype,
               values.data() + row * e.n);
  }
  return values;
}

std::string Describe(const GemmArgs& args) {
  const GemmExtents e = ExtentsOf(args);
  return absl::StrFormat("the product [%d, %d] x [%d, %d] of %s and %s%s", e.m, e.k, e.k, e.n,
                         DTypeName(args.a.dtype), DTypeName(args.b.dtype),
                         args.beta != 0.0 ? ", added to what is there," : "");
}

}  // namespace

absl::Status ProductCheck::Run(const Exec& exec,
                               const GemmArgs& args,
                               Product native,
                               Product reference) {
  const GemmExtents e = ExtentsOf(args);
  if (e.m == 0 || e.n == 0) {
    return native(exec, args);
  }
  const GemmKey kind = GemmKeyOf(args);
  met_.insert(kind);
  if (compared_.contains(kind)) {
    return native(exec, args);
  }
  const std::vector<GemmArgs> slices = Slices(args);
  const bool adds = args.beta != 0.0 && args.addend.empty();
  std::vector<std::vector<uint8_t>> before(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    HEARTH_RETURN_IF_ERROR(Randomise(exec, slices[i], i * 1009));
    if (adds) {
      HEARTH_ASSIGN_OR_RETURN(before[i], Download(exec, StretchOf(slices[i].c, e.ldc)));
    }
  }
  HEARTH_RETURN_IF_ERROR(native(exec, args));
  bool zero = false;
  for (size_t i = 0; i < slices.size(); ++i) {
    const Stretch c = StretchOf(slices[i].c, e.ldc);
    HEARTH_ASSIGN_OR_RETURN(const std::vector<uint8_t> got, Download(exec, c));
    if (adds) {
      HEARTH_RETURN_IF_ERROR(Upload(exec, before[i], c));
    }
    HEARTH_RETURN_IF_ERROR(reference(exec, slices[i]));
    HEARTH_ASSIGN_OR_RETURN(const std::vector<uint8_t> want, Download(exec, c));
    HEARTH_RETURN_IF_ERROR(Upload(exec, got, c));
    const std::vector<float> wanted = Values(want, slices[i]);
    const double off = LargestRowDifference(Values(got, slices[i]), wanted, e.n);
    if (!(off <= tolerance_)) {
      return absl::UnimplementedError(absl::StrFormat(
          "%s is not right on block-scaled units: a row differs from the emulated one by %.3g; up "
          "to %.3g is rounding",
          Describe(args), off, tolerance_));
    }
    largest_ = std::max(largest_, off);
    zero |= std::all_of(wanted.begin(), wanted.end(), [](float value) { return value == 0.0F; });
  }
  if (!zero) {
    compared_.insert(kind);
  }
  return absl::OkStatus();
}

}  // namespace hearth::kernels
