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
//   kQuantisedAlone   : whether there are kernels for QuantisedAlone outputs, beside that for any
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
#include "kernels/cuda/launch.cuh"
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
  static constexpr int kCols = kColumns ? 128 : 256;
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

// One pack of each input, as it lies in memory.
template <typename A, typename Op>
struct PointwisePacks {
  Raw8<A> raw[Op::kInputs];
  KeptPack kept[Op::kInputs];  // of the inputs that are read from `kept`, in place of `raw`
};
template <typename Op>
__device__ __forceinline__ constexpr bool ReadsKept(int input) {
  return Op::kKept == KeptUse::kRead && input < Op::kKeptInputs;
}

// Inputs are linear in the row, so one distance leads from each row of a thread to the next that it
// works on, `rows` further down.
template <typename Op>
__device__ __forceinline__ int64_t InputStep(const Op& op, int i, int rows) {
  return (op.Input(i, 1, 0) - op.Input(i, 0, 0)) * rows;
}

// Where a thread's next row of the kept inputs lies.
template <typename Op>
class KeptPlaces {
 public:
  __device__ __forceinline__ KeptPlaces(const Op& op, int64_t row, int64_t col, int rows) {
#pragma unroll
    for (int i = 0; i < Op::kKeptInputs; ++i) {
      const int64_t element = op.Input(i, row, col) - op.Input(0, 0, 0);
      values_[i] = op.kept.values + element;
      scales_[i] = op.kept.scales + element / kKeptBlock;
    }
    step_ = InputStep(op, 0, rows);
  }
  __device__ __forceinline__ uint8_t* Values(int i) const {
    return values_[i];
  }
  __device__ __forceinline__ uint8_t* Scale(int i) const {
    return scales_[i];
  }
  __device__ __forceinline__ void Advance() {
#pragma unroll
    for (int i = 0; i < Op::kKeptInputs; ++i) {
      values_[i] += step_;
      scales_[i] += step_ / kKeptBlock;
    }
  }

 private:
  uint8_t* values_[Op::kKeptInputs];
  uint8_t* scales_[Op::kKeptInputs];
  int64_t step_;
};

// The same of the others, and what loads all of them.
template <typename A, typename Op>
class PointwiseReader {
 public:
  __device__ __forceinline__ PointwiseReader(const Op& op, int64_t row, int64_t col, int rows)
      : kept_(op, row, col, rows) {
#pragma unroll
    for (int i = 0; i < Op::kInputs; ++i) {
      from_[i] = op.Input(i, row, col);
      step_[i] = InputStep(op, i, rows);
    }
  }
  __device__ __forceinline__ void Load(PointwisePacks<A, Op>& to) const {
#pragma unroll
    for (int i = 0; i < Op::kInputs; ++i) {
      if (ReadsKept<Op>(i)) {
        to.kept[i] = LoadKeptPack(kept_.Values(i), kept_.Scale(i));
      } else {
        to.raw[i] = LoadRaw8Once(from_[i]);
      }
    }
  }
  __device__ __forceinline__ void Advance() {
    if (Op::kKept == KeptUse::kRead) {
      kept_.Advance();
    }
#pragma unroll
    for (int i = 0; i < Op::kInputs; ++i) {
      from_[i] += step_[i];
    }
  }

 private:
  KeptPlaces<Op> kept_;
  const A* from_[Op::kInputs];
  int64_t step_[Op::kInputs];
};

// One pack of each output from one of each input.
template <typename A, typename Op>
__device__ __forceinline__ void ApplyToPacks(const Op& op,
                                             PointwisePacks<A, Op>& in,
                                             const float (&bias)[8],
                                             Raw8<A> (&out)[kResults<Op>]) {
  float scale[Op::kInputs];
#pragma unroll
  for (int i = 0; i < Op::kInputs; ++i) {
    scale[i] = ReadsKept<Op>(i) ? UseKeptScale(in.kept[i]) : 1.0F;
  }
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    float x[2][Op::kInputs];
    float y[2][kResults<Op>];
#pragma unroll
    for (int i = 0; i < Op::kInputs; ++i) {
      const float2 pair = ReadsKept<Op>(i)
                              ? KeptPairOf(in.kept[i], k, scale[i])
                              : make_float2(ValueOf(in.raw[i], k), ValueOf(in.raw[i], k + 1));
      x[0][i] = pair.x;
      x[1][i] = pair.y;
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      op.Apply(x[n], bias[k + n], y[n]);
    }
#pragma unroll
    for (int o = 0; o < kResults<Op>; ++o) {
      SetPair(out[o], k, y[0][o], y[1][o]);
    }
  }
}

// The packs of the first `tile_rows` rows of a tile: sink(row of the tile, element of the first
// part's pack in the output, packs)
// for each of this thread's that exist, the column of the tile being TileColumn.
template <typename Tile>
__device__ __forceinline__ int TileColumn() {
  return threadIdx.x % Tile::kPacks * 8;
}
template <typename A, typename Tile, bool kWhole, typename Op, typename Sink>
__device__ __forceinline__ void ApplyToTile(const Op& op,
                                            int64_t rows,
                                            int64_t cols,
                                            int64_t row0,
                                            int64_t col0,
                                            int tile_rows,
                                            const Sink& sink) {
  constexpr int kBatch = Op::kBatch;
  static_assert(Tile::kPasses % kBatch == 0);
  const int tile_row = threadIdx.x / Tile::kPacks;
  const int64_t col = col0 + TileColumn<Tile>();
  // Rows of this thread that exist: tile_row + pass * kRowsAtOnce below `end`.
  int end = Tile::kRows;
  if constexpr (!kWhole) {
    end = col < cols ? static_cast<int>(min(rows - row0, static_cast<int64_t>(tile_rows))) : 0;
  }

  float bias[8] = {};
  if constexpr (Op::kBias) {
    if (op.bias != nullptr && col < cols) {
      LoadFloats<8>(op.bias + col, bias);
    }
  }
  PointwiseReader<A, Op> reader(op, row0 + tile_row, col, Tile::kRowsAtOnce);
  KeptPlaces<Op> keep(op, row0 + tile_row, col, Tile::kRowsAtOnce);
  int64_t at = (row0 + tile_row) * Op::kOutputs * cols + col;  // of the next row that is written
#pragma unroll 1
  for (int row = tile_row; row < end; row += kBatch * Tile::kRowsAtOnce) {
    // All loads of a batch are under way before the first value is waited for.
    PointwisePacks<A, Op> in[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (kWhole || row + b * Tile::kRowsAtOnce < end) {
        reader.Load(in[b]);
      }
      reader.Advance();
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int r = row + b * Tile::kRowsAtOnce;
      if (!kWhole && r >= end) {
        break;
      }
      if constexpr (Op::kKept == KeptUse::kWrite) {
        // Whole tiles have registers left to go from row to row.
        if constexpr (!kWhole) {
          keep = KeptPlaces<Op>(op, row0 + r, col, 0);
        }
#pragma unroll
        for (int i = 0; i < Op::kKeptInputs; ++i) {
          StoreKept8<A, kWhole>(keep.Values(i), keep.Scale(i), in[b].raw[i]);
        }
        keep.Advance();
      }
      Raw8<A> rounded[kResults<Op>];
      ApplyToPacks<A>(op, in[b], bias, rounded);
      sink(r, at, rounded);
      at += Tile::kRowsAtOnce * Op::kOutputs * cols;
    }
  }
}

// What is known when a kernel is compiled of the outputs that are wanted: nothing, ..
struct AnyOutputs {
  static constexpr bool kFixed = false;
};
// .. or that the tiles are whole and the values quantised alone, by rows (and by columns in square
// tiles), in this format, with what is extra in E4M3: what training in FP8 calls most.
template <bool kIsE4m3>
struct QuantisedAlone {
  static constexpr bool kFixed = true;
  static constexpr bool kE4m3 = kIsE4m3;
};
template <typename Outputs>
__device__ __forceinline__ uint2 QuantizePackAs(const float (&v)[8], float scale, bool e4m3) {
  if constexpr (Outputs::kFixed) {
    return QuantizePack < Outputs::kE4m3 ? __NV_E4M3 : __NV_E5M2 > (v, scale);
  }
  return QuantizePack(v, scale, e4m3);
}

// The bytes of a block's tiles by columns.
template <typename Op, typename Tile, bool kWhole, int kWords>
__device__ __forceinline__ void WriteTileColumns(const Op& op,
                                                 const QuantView& quant,
                                                 uint32_t (&words)[kResults<Op>][kWords],
                                                 int64_t rows,
                                                 int64_t cols,
                                                 int64_t row0,
                                                 int64_t col0) {
  int tile_rows = Tile::kRows;
  int tile_cols = Tile::kCols;
  if constexpr (!kWhole) {
    tile_rows = static_cast<int>(min(rows - row0, static_cast<int64_t>(Tile::kRows)));
    tile_cols = static_cast<int>(min(cols - col0, static_cast<int64_t>(Tile::kCols)));
  }
#pragma unroll
  for (int o = 0; o < Op::kOutputs; ++o) {
    QuantTile<128>(words[o], Tile::kCols)
        .WriteColumns(quant.columns, rows, row0, o * cols + col0, tile_rows, tile_cols);
  }
  if constexpr (Op::kExtra == 1) {
    QuantTile<128>(words[Op::kOutputs], Tile::kCols)
        .WriteColumns(op.extra.columns, rows, row0, col0, tile_rows, tile_cols);
  }
}

// cols is a multiple of 8 and everything is aligned to 16 bytes; with kColumns, rows and cols are
// multiples of 16.
template <typename A, typename Op, bool kColumns, typename Outputs>
__global__ void __launch_bounds__(kPointwiseThreads, Op::kBlocks) PointwiseKernel(
    Op op, A* out, QuantView quant, int64_t rows, int64_t cols, PointwiseTiling tiles) {
  using Tile = PointwiseTile<kColumns>;
  constexpr bool kFixed = Outputs::kFixed;
  // Without columns the 32 words are what the reduction of the magnitude takes.
  constexpr int kWords = kColumns ? QuantTile<128>::Words(Tile::kCols) : 32;
  __shared__ __align__(16) uint32_t words[kResults<Op>][kWords];
  const int64_t row0 = static_cast<int64_t>(blockIdx.x / tiles.across) * tiles.rows;
  const int64_t col0 = static_cast<int64_t>(blockIdx.x % tiles.across) * Tile::kCols;
  const bool e4m3 = quant.dtype == DType::kE4M3;
  TakeTurn();
  const float scale = QuantScale(quant);
  float extra_scale = 0;
  bool extra_e4m3 = kFixed;
  if constexpr (Op::kExtra == 1) {
    extra_scale = QuantScale(op.extra);
    extra_e4m3 = kFixed || op.extra.dtype == DType::kE4M3;
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
      if (!kFixed && out != nullptr) {
        StoreRaw8(out + at + o * cols, rounded[o]);
      }
      if (!kHasForms<A> || (!kFixed && quant.empty())) {
        continue;
      }
      amax = RaiseMagnitude(amax, rounded[o]);
      if (!kFixed && !quant.has_values()) {
        continue;
      }
      float v[8];
      Unpack(rounded[o], v);
      const uint2 bytes = QuantizePackAs<Outputs>(v, scale, e4m3);
      if (kFixed || quant.rows != nullptr) {
        StoreQuantRow(quant, at + o * cols, bytes);
      }
      if constexpr (kColumns) {
        QuantTile<128>(words[o], Tile::kCols).Put(row, TileColumn<Tile>(), bytes);
      }
    }
  };
  ApplyToTile<A, Tile, kFixed>(op, rows, cols, row0, col0, tiles.rows, sink);
  if constexpr (kColumns) {
    __syncthreads();
    WriteTileColumns<Op, Tile, kFixed>(op, quant, words, rows, cols, row0, col0);
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
  ApplyToTile<A, Tile, false>(op, rows, cols, row0, col0, Tile::kRows, sink);
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
  TakeTurn();
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

// Whether packs of 8 can be read and written, if they can be of the inputs.
template <typename Op>
bool CanUseVectors(
    const Op& op, const TensorView& out, const QuantView& quant, int64_t rows, int64_t cols) {
  if constexpr (Op::kExtra == 1) {
    if (!Aligned16(op.extra.columns)) {
      return false;
    }
  }
  return cols % 8 == 0 && Aligned16(op.bias) && Aligned16(out.data) && Aligned16(quant.rows) &&
         (quant.columns == nullptr ||
          (rows % 16 == 0 && cols % 16 == 0 && Aligned16(quant.columns)));
}

// Whether QuantisedAlone holds of a call with these tiles.
template <typename Tile, typename Op>
bool IsQuantisedAlone(
    const Op& op, const TensorView& out, const QuantView& quant, int64_t rows, int64_t cols) {
  constexpr bool kColumns = std::is_same_v<Tile, PointwiseTile<true>>;
  if constexpr (Op::kExtra == 1) {
    if (op.extra.dtype != DType::kE4M3) {
      return false;
    }
  }
  return out.data == nullptr && quant.rows != nullptr && (!kColumns || quant.columns != nullptr) &&
         rows % Tile::kRows == 0 && cols % Tile::kCols == 0;
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
  const bool vectors = aligned && CanUseVectors(op, out, quant, rows, cols);
  // A kept block is 32 values under one scale; the kernel that goes value by value cannot find it.
  if (!vectors && Op::kKept == KeptUse::kWrite) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": an input to be kept where not all is aligned to 16 bytes"));
  }
  if (!vectors) {
    const auto blocks = static_cast<unsigned>(CeilDiv(rows * cols, kPointwiseThreads));
    return LaunchInTurn(exec, name, PointwiseAnyKernel<A, Op>, {dim3(blocks), kPointwiseThreads},
                        op, out.as<A>(), quant, rows, cols);
  }
  const auto launch = [&](auto kernel, int64_t tile_rows, int64_t across) {
    const auto blocks = static_cast<unsigned>(CeilDiv(rows, tile_rows) * across);
    const PointwiseTiling tiles = {static_cast<uint32_t>(across), static_cast<int>(tile_rows)};
    return LaunchInTurn(exec, name, kernel, {dim3(blocks), kPointwiseThreads}, op, out.as<A>(),
                        quant, rows, cols, tiles);
  };
  const auto launch_tiles = [&](auto columns_too) {
    constexpr bool kColumns = decltype(columns_too)::value;
    using Tile = PointwiseTile<kColumns>;
    const int64_t across = CeilDiv(cols, Tile::kCols);
    if constexpr (Op::kQuantisedAlone) {
      if (IsQuantisedAlone<Tile>(op, out, quant, rows, cols)) {
        return quant.dtype == DType::kE4M3
                   ? launch(PointwiseKernel<A, Op, kColumns, QuantisedAlone<true>>, Tile::kRows,
                            across)
                   : launch(PointwiseKernel<A, Op, kColumns, QuantisedAlone<false>>, Tile::kRows,
                            across);
      }
    }
    const int64_t tile_rows =
        kColumns ? Tile::kRows
                 : PointwiseRows<Tile>(rows, across, exec.cuda->gpu().multiprocessors);
    return launch(PointwiseKernel<A, Op, kColumns, AnyOutputs>, tile_rows, across);
  };
  // Square tiles where columns are written, so that both directions have whole lines of memory;
  // else long ones.
  if constexpr (Op::kExtra == 1) {
    return launch_tiles(std::true_type());
  } else {
    if constexpr (kHasForms<A> && Op::kKept != KeptUse::kWrite) {
      if (columns) {
        return launch_tiles(std::true_type());
      }
    }
    return launch_tiles(std::false_type());
  }
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
