// Ops whose element (row, col) of each output part follows from element (row, col) of each input:
// activation functions and their gradients, with quantised outputs in the same pass, of one scale
// (QuantView) or in blocks (BlockQuantView).
//
// The output is [rows, kOutputs * cols]: part o of a row is columns o * cols and on. An Op is a
// trivially copyable struct of device pointers with
//   kInputs, kOutputs
//   kBatch            : rows a thread has loads in flight for
//   kBlocks           : resident blocks of a multiprocessor to leave registers for
//   Input(i, row, col): the address of element (row, col) of input i, linear in row
//   kBias, bias       : whether Apply wants a bias; [cols] or null
//   kKept, kKeptInputs, kept : inputs 0 to kKeptInputs - 1, rows of one matrix side by side from
//                       Input(0, 0, 0) on, are also written to `kept`, or read from there instead
//   kExtra, extra     : 1: Apply has one more result, a matrix [rows, cols] of its own of which
//                       `extra`, columns alone, is made, where the output's columns are
//   Apply(in, bias, out) : kInputs floats, bias[col] (0 if null) -> kOutputs + kExtra floats
// The output may alias inputs element by element: a thread reads what it overwrites before.
#pragma once

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/block_tile.cuh"
#include "kernels/cuda/context.h"
#include "kernels/cuda/kept.cuh"
#include "kernels/cuda/quant_tile.cuh"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

inline constexpr int kPointwiseThreads = 256;

template <typename Op>
inline constexpr int kResults = Op::kOutputs + Op::kExtra;

// A tile of 2^14 values a block. With columns wanted it is 128 x 128, so that what is written is
// whole 128-byte lines either way; else rows are longer.
template <bool kColumns>
struct PointwiseTile {
  static constexpr int kCols = kColumns ? 128 : 512;
  static constexpr int kRows = 128 * 128 / kCols;
  static constexpr int kPacks = kCols / 8;  // of a row
  static constexpr int kRowsAtOnce = kPointwiseThreads / kPacks;
  static constexpr int kPasses = kRows / kRowsAtOnce;
};

// Blocks of a row of tiles, and rows of a block: with columns those of a tile, else maybe fewer.
struct PointwiseTiling {
  uint32_t across;
  int rows;
};

// One pack of each output from one of each input.
template <typename A, typename Op>
__device__ __forceinline__ void ApplyToPacks(const Op& op,
                                             const Raw8<A> (&in)[Op::kInputs],
                                             const float (&bias)[8],
                                             Raw8<A> (&out)[kResults<Op>]) {
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    float y[2][kResults<Op>];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float x[Op::kInputs];
#pragma unroll
      for (int i = 0; i < Op::kInputs; ++i) {
        x[i] = ValueOf(in[i], k + n);
      }
      op.Apply(x, bias[k + n], y[n]);
    }
#pragma unroll
    for (int o = 0; o < kResults<Op>; ++o) {
      SetPair(out[o], k, y[0][o], y[1][o]);
    }
  }
}

// The packs of the first `tile_rows` rows of a tile: sink(row of the tile, element of the first
// part's pack in the output, packs) for each of this thread's that exist, the column of the tile
// being TileColumn.
template <typename Tile>
__device__ __forceinline__ int TileColumn() {
  return threadIdx.x % Tile::kPacks * 8;
}
template <typename A, typename Tile, int kBatch, typename Op, typename Sink>
__device__ __forceinline__ void ApplyToTile(const Op& op,
                                            int64_t rows,
                                            int64_t cols,
                                            int64_t row0,
                                            int64_t col0,
                                            int tile_rows,
                                            const Sink& sink) {
  static_assert(Tile::kPasses % kBatch == 0);
  const int tile_row = threadIdx.x / Tile::kPacks;
  const int64_t col = col0 + TileColumn<Tile>();
  // Rows of this thread that exist: tile_row + pass * kRowsAtOnce below `end`.
  const int end =
      col < cols ? static_cast<int>(min(rows - row0, static_cast<int64_t>(tile_rows))) : 0;

  float bias[8] = {};
  if constexpr (Op::kBias) {
    if (op.bias != nullptr && col < cols) {
      LoadFloats<8>(op.bias + col, bias);
    }
  }
  // Inputs are linear in the row, so one distance leads from each of the thread's rows to its next.
  const A* from[Op::kInputs];
  int64_t step[Op::kInputs];  // from one row of this thread to its next
#pragma unroll
  for (int i = 0; i < Op::kInputs; ++i) {
    from[i] = op.Input(i, row0 + tile_row, col);
    step[i] = (op.Input(i, 1, 0) - op.Input(i, 0, 0)) * Tile::kRowsAtOnce;
  }
  int64_t at = (row0 + tile_row) * Op::kOutputs * cols + col;  // of the next row that is written
#pragma unroll 1
  for (int row = tile_row; row < end; row += kBatch * Tile::kRowsAtOnce) {
    Raw8<A> in[kBatch][Op::kInputs];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (row + b * Tile::kRowsAtOnce < end) {
#pragma unroll
        for (int i = 0; i < Op::kInputs; ++i) {
          if (Op::kKept == KeptUse::kRead && i < Op::kKeptInputs) {
            in[b][i] = LoadKept8<A>(op.kept, from[i] - op.Input(0, 0, 0));
          } else {
            in[b][i] = LoadRaw8Once(from[i]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < Op::kInputs; ++i) {
        from[i] += step[i];
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int r = row + b * Tile::kRowsAtOnce;
      if (r >= end) {
        break;
      }
      if constexpr (Op::kKept == KeptUse::kWrite) {
#pragma unroll
        for (int i = 0; i < Op::kKeptInputs; ++i) {
          StoreKept8(op.kept, op.Input(i, row0 + r, col) - op.Input(0, 0, 0), in[b][i]);
        }
      }
      Raw8<A> rounded[kResults<Op>];
      ApplyToPacks<A>(op, in[b], bias, rounded);
      sink(r, at, rounded);
      at += Tile::kRowsAtOnce * Op::kOutputs * cols;
    }
  }
}

// cols is a multiple of 8 and everything is aligned to 16 bytes; with kColumns, rows and cols are
// multiples of 16.
template <typename A, typename Op, bool kColumns>
__global__ void __launch_bounds__(kPointwiseThreads, Op::kBlocks) PointwiseKernel(
    Op op, A* out, QuantView quant, int64_t rows, int64_t cols, PointwiseTiling tiles) {
  using Tile = PointwiseTile<kColumns>;
  // Without columns the 32 words are what the reduction of the magnitude takes.
  constexpr int kWords = kColumns ? QuantTile<128>::Words(Tile::kCols) : 32;
  __shared__ __align__(16) uint32_t words[kResults<Op>][kWords];
  const int64_t row0 = static_cast<int64_t>(blockIdx.x / tiles.across) * tiles.rows;
  const int64_t col0 = static_cast<int64_t>(blockIdx.x % tiles.across) * Tile::kCols;
  const bool e4m3 = quant.dtype == DType::kE4M3;
  const float scale = QuantScale(quant);
  float extra_scale = 0;
  bool extra_e4m3 = false;
  if constexpr (Op::kExtra == 1) {
    extra_scale = QuantScale(op.extra);
    extra_e4m3 = op.extra.dtype == DType::kE4M3;
  }
  uint32_t amax = 0;
  // Forms are made of the rounded values, those that a reader of the plain output would see.
  const auto sink = [&](int row, int64_t at, const Raw8<A>(&rounded)[kResults<Op>]) {
    if constexpr (Op::kExtra == 1 && kColumns) {
      float v[8];
      Unpack(rounded[Op::kOutputs], v);
      QuantTile<128>(words[Op::kOutputs], Tile::kCols)
          .Put(row, TileColumn<Tile>(), QuantizePack(v, extra_scale, extra_e4m3));
    }
#pragma unroll
    for (int o = 0; o < Op::kOutputs; ++o) {
      if (out != nullptr) {
        StoreRaw8(out + at + o * cols, rounded[o]);
      }
      if (!kHasForms<A> || quant.empty()) {
        continue;
      }
      amax = RaiseMagnitude(amax, rounded[o]);
      if (!quant.has_values()) {
        continue;
      }
      float v[8];
      Unpack(rounded[o], v);
      const uint2 bytes = QuantizePack(v, scale, e4m3);
      if (quant.rows != nullptr) {
        StoreQuantRow(quant, at + o * cols, bytes);
      }
      if constexpr (kColumns) {
        QuantTile<128>(words[o], Tile::kCols).Put(row, TileColumn<Tile>(), bytes);
      }
    }
  };
  ApplyToTile<A, Tile, Op::kBatch>(op, rows, cols, row0, col0, tiles.rows, sink);
  if constexpr (kColumns) {
    __syncthreads();
    const int there = static_cast<int>(min(rows - row0, static_cast<int64_t>(Tile::kRows)));
    const int tile_cols = static_cast<int>(min(cols - col0, static_cast<int64_t>(Tile::kCols)));
#pragma unroll
    for (int o = 0; o < Op::kOutputs; ++o) {
      QuantTile<128>(words[o], Tile::kCols)
          .WriteColumns(quant.columns, rows, row0, o * cols + col0, there, tile_cols);
    }
    if constexpr (Op::kExtra == 1) {
      QuantTile<128>(words[Op::kOutputs], Tile::kCols)
          .WriteColumns(op.extra.columns, rows, row0, col0, there, tile_cols);
    }
    __syncthreads();  // the maximum below is reduced in the same shared memory
  }
  if (kHasForms<A> && quant.amax != nullptr) {
    RaiseAmaxOfBlock(quant.amax, MagnitudeOf<A>(amax), words[0]);
  }
}

// With block forms of the output [rows, kOutputs * cols]. cols is a multiple of 16, and of 128 if
// there are several outputs; everything is aligned to 16 bytes.
template <typename A, typename Op, BlockLayout kLayout>
__global__ void __launch_bounds__(kPointwiseThreads, ResidentBlocks<A>(Op::kOutputs))
    PointwiseBlockKernel(Op op,
                         A* out,
                         const __grid_constant__ BlockQuantView quant,
                         int64_t rows,
                         int64_t cols,
                         uint32_t tiles_across) {
  using Tile = PointwiseTile<true>;
  static_assert(kPointwiseThreads == kBlockThreads && Tile::kCols == kBlockTile);
  constexpr int kTiles = Op::kOutputs;  // a block of threads holds one of each output
  extern __shared__ __align__(16) unsigned char memory[];
  auto* tiles = reinterpret_cast<BlockTile<A>*>(memory);
  const int64_t row0 = static_cast<int64_t>(blockIdx.x / tiles_across) * Tile::kRows;
  const int64_t col0 = static_cast<int64_t>(blockIdx.x % tiles_across) * Tile::kCols;
  // Zeros beyond the output.
  if (rows - row0 < kBlockTile || cols - col0 < kBlockTile) {
    for (int at = threadIdx.x; at < kTiles * BlockTile<A>::kWords; at += kPointwiseThreads) {
      tiles[at / BlockTile<A>::kWords].words[at % BlockTile<A>::kWords] = 0;
    }
    __syncthreads();
  }
  uint32_t largest = 0;
  const auto sink = [&](int row, int64_t at, const Raw8<A>(&rounded)[kResults<Op>]) {
#pragma unroll
    for (int o = 0; o < Op::kOutputs; ++o) {
      if (out != nullptr) {
        StoreRaw8(out + at + o * cols, rounded[o]);
      }
      largest = RaiseMagnitude(largest, rounded[o]);
      tiles[o].Put(row, TileColumn<Tile>(), rounded[o]);
    }
  };
  ApplyToTile<A, Tile, Op::kBatch>(op, rows, cols, row0, col0, Tile::kRows, sink);
  __syncthreads();
#pragma unroll 1
  for (int part = 0; part < kTiles; ++part) {
    const BlockPlace place = {rows, Op::kOutputs * cols, row0, part * cols + col0,
                              blockIdx.x == 0 && part == 0};
    // The magnitude of all parts counts once.
    WriteBlockForms<A, kLayout>(quant, place, part == 0 ? MagnitudeOf<A>(largest) : 0, tiles[part]);
  }
}

// Any shape and alignment: an element a thread.
template <typename A, typename Op>
__global__ void __launch_bounds__(kPointwiseThreads)
    PointwiseAnyKernel(Op op, A* out, QuantView quant, int64_t rows, int64_t cols) {
  __shared__ uint32_t scratch[32];
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kPointwiseThreads + threadIdx.x;
  uint32_t amax = 0;
  // Threads behind the end stay: the reduction below needs whole warps.
  if (at < rows * cols) {
    const int64_t row = at / cols;
    const int64_t col = at % cols;
    float x[Op::kInputs];
    float y[kResults<Op>];
#pragma unroll
    for (int i = 0; i < Op::kInputs; ++i) {
      const A* from = op.Input(i, row, col);
      x[i] = Op::kKept == KeptUse::kRead && i < Op::kKeptInputs
                 ? LoadKept(op.kept, from - op.Input(0, 0, 0))
                 : ToFloat(*from);
    }
    op.Apply(x, op.bias != nullptr ? ToFloat(op.bias[col]) : 0.0F, y);
#pragma unroll
    for (int o = 0; o < Op::kOutputs; ++o) {
      const A rounded = FromFloat<A>(y[o]);
      const float v = ToFloat(rounded);
      if (out != nullptr) {
        out[(row * Op::kOutputs + o) * cols + col] = rounded;
      }
      if constexpr (!kHasForms<A>) {
        continue;
      }
      amax = RaiseMagnitude(amax, v);
      if (quant.has_values()) {
        StoreQuantValue(quant, rows, Op::kOutputs * cols, row, o * cols + col, v,
                        QuantScale(quant));
      }
    }
    if constexpr (Op::kExtra == 1) {
      StoreQuantValue(op.extra, rows, cols, row, col, ToFloat(FromFloat<A>(y[Op::kOutputs])),
                      QuantScale(op.extra));
    }
  }
  if (kHasForms<A> && quant.amax != nullptr) {
    RaiseAmaxOfBlock(quant.amax, amax, scratch);
  }
}

template <typename A, typename Op>
absl::Status PointwiseBlocks(const Exec& exec,
                             const char* name,
                             const Op& op,
                             bool aligned,
                             const TensorView& out,
                             const BlockQuantView& blocks,
                             int64_t rows,
                             int64_t cols) {
  if (!aligned || !Aligned16(op.bias) || !Aligned16(out.data)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": block forms of operands that are not aligned to 16 bytes"));
  }
  const auto launch = [&](auto kernel) -> absl::Status {
    constexpr int kBytes = static_cast<int>(sizeof(BlockTile<A>)) * Op::kOutputs;
    if (kBytes > 48 * 1024) {
      HEARTH_CUDA_RETURN_IF_ERROR(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    }
    const int64_t across = CeilDiv(cols, kBlockTile);
    const auto grid = static_cast<unsigned>(CeilDiv(rows, kBlockTile) * across);
    kernel<<<grid, kPointwiseThreads, kBytes, StreamOf(exec)>>>(op, out.as<A>(), blocks, rows, cols,
                                                                static_cast<uint32_t>(across));
    return HEARTH_CUDA_LAUNCHED(name);
  };
  if constexpr (Op::kExtra == 0) {
    return VisitLayout(blocks.layout, [&](auto layout) {
      return launch(PointwiseBlockKernel<A, Op, decltype(layout)::value>);
    });
  }
  return absl::InvalidArgumentError(absl::StrCat(name, ": block forms beside one scale a tensor"));
}

// Rows of a block of PointwiseKernel without columns: those of a tile, fewer where that would leave
// multiprocessors with nothing to do. A thread has a row after another: with few rows (generated
// tokens) it is the waits, not the bytes, that take time.
template <typename Tile>
int64_t PointwiseRows(int64_t rows, int64_t across, int multiprocessors) {
  int64_t tile_rows = Tile::kRows;
  while (tile_rows > Tile::kRowsAtOnce && CeilDiv(rows, tile_rows) * across < multiprocessors) {
    tile_rows /= 2;
  }
  return tile_rows;
}

// `aligned`: every input starts at a multiple of 16 bytes. Either `quant` or `blocks` is empty.
template <typename A, typename Op>
absl::Status Pointwise(const Exec& exec,
                       const char* name,
                       const Op& op,
                       bool aligned,
                       const TensorView& out,
                       const QuantView& quant,
                       const BlockQuantView& blocks,
                       int64_t rows,
                       int64_t cols) {
  if (rows == 0 || cols == 0) {
    return absl::OkStatus();
  }
  aligned = aligned && Aligned16(op.kept.values);
  if constexpr (kHasForms<A>) {
    if (!blocks.empty()) {
      return PointwiseBlocks<A>(exec, name, op, aligned, out, blocks, rows, cols);
    }
  }
  const bool columns = quant.columns != nullptr;
  if constexpr (Op::kExtra == 1) {
    aligned = aligned && Aligned16(op.extra.columns);
  }
  const bool vectors = aligned && cols % 8 == 0 && Aligned16(op.bias) && Aligned16(out.data) &&
                       Aligned16(quant.rows) &&
                       (!columns || (rows % 16 == 0 && cols % 16 == 0 && Aligned16(quant.columns)));
  // A kept block is 32 values under one scale; the kernel that goes value by value cannot find it.
  if (!vectors && Op::kKept == KeptUse::kWrite) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": an input to be kept where not all is aligned to 16 bytes"));
  }
  if (!vectors) {
    const auto blocks = static_cast<unsigned>(CeilDiv(rows * cols, kPointwiseThreads));
    PointwiseAnyKernel<A, Op>
        <<<blocks, kPointwiseThreads, 0, StreamOf(exec)>>>(op, out.as<A>(), quant, rows, cols);
    return HEARTH_CUDA_LAUNCHED(name);
  }
  const auto launch = [&](auto kernel, int64_t tile_rows, int64_t across) {
    const auto blocks = static_cast<unsigned>(CeilDiv(rows, tile_rows) * across);
    const PointwiseTiling tiles = {static_cast<uint32_t>(across), static_cast<int>(tile_rows)};
    kernel<<<blocks, kPointwiseThreads, 0, StreamOf(exec)>>>(op, out.as<A>(), quant, rows, cols,
                                                             tiles);
    return HEARTH_CUDA_LAUNCHED(name);
  };
  using Square = PointwiseTile<true>;
  using Long = PointwiseTile<false>;
  // Square tiles where columns are written, so that both directions have whole lines of memory;
  // else long ones.
  if constexpr (kHasForms<A> && Op::kKept != KeptUse::kWrite) {
    if (columns || Op::kExtra == 1) {
      return launch(PointwiseKernel<A, Op, true>, Square::kRows, CeilDiv(cols, Square::kCols));
    }
  }
  const int64_t across = CeilDiv(cols, Long::kCols);
  return launch(PointwiseKernel<A, Op, false>,
                PointwiseRows<Long>(rows, across, exec.cuda->gpu().multiprocessors), across);
}

template <KeptUse kUse>
using KeptUseIs = std::integral_constant<KeptUse, kUse>;

// run(KeptUseIs<...>(), the view): what the op does with its kept input.
template <typename A, typename Run>
absl::Status WithKept(const KeptInput& kept, const Run& run) {
  if constexpr (kHasForms<A>) {
    if (!kept.empty()) {
      return run(KeptUseIs<KeptUse::kRead>(), kept);
    }
  }
  return run(KeptUseIs<KeptUse::kNone>(), kept);
}
template <typename A, typename Run>
absl::Status WithKept(const KeptInput& keep, const KeptInput& kept, const Run& run) {
  if constexpr (kHasForms<A>) {
    if (!keep.empty()) {
      return run(KeptUseIs<KeptUse::kWrite>(), keep);
    }
  }
  return WithKept<A>(kept, run);
}

}  // namespace hearth::kernels::cuda
