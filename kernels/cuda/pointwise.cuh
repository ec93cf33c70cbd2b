// Ops whose element (row, col) of each output part follows from element (row, col) of each input:
// activation functions and their gradients, with quantised outputs in the same pass.
//
// The output is [rows, kOutputs * cols]: part o of a row is columns o * cols and on. An Op is a
// trivially copyable struct of device pointers with
//   kInputs, kOutputs
//   kBatch            : rows a thread has loads in flight for
//   kBlocks           : resident blocks of a multiprocessor to leave registers for
//   Input(i, row, col): the address of element (row, col) of input i
//   kBias, bias       : whether Apply wants a bias; [cols] or null
//   Apply(in, bias, out) : kInputs floats, bias[col] (0 if null) -> kOutputs floats
// The output may alias inputs element by element: a thread reads what it overwrites before.
#pragma once

#include "kernels/cuda/quant_tile.cuh"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

// 1 / (1 + e^-x) over the whole range; for bf16 with the approximations of the special function
// unit (absolute error below 1e-6; results below 2^-126 are 0).
template <typename A>
__device__ __forceinline__ float SigmoidFor(float x) {
  if constexpr (sizeof(A) == 2) {
    float e;
    float s;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.4426950408889634F));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1.0F + e));
    return s;
  } else {
    return 1.0F / (1.0F + expf(-x));
  }
}

// Elements k and k + 1 of a pack, in one conversion.
__device__ __forceinline__ void RoundPair(float a, float b, Pack<Bf16, 8>& pack, int k) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  pack.at[k] = pair.x;
  pack.at[k + 1] = pair.y;
}
__device__ __forceinline__ void RoundPair(float a, float b, Pack<float, 8>& pack, int k) {
  pack.at[k] = a;
  pack.at[k + 1] = b;
}

inline constexpr int kPointwiseThreads = 256;

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

// cols is a multiple of 8 and everything is aligned to 16 bytes; with kColumns, rows and cols are
// multiples of 16.
template <typename A, typename Op, bool kColumns>
__global__ void __launch_bounds__(kPointwiseThreads, Op::kBlocks)
    PointwiseKernel(Op op, A* out, QuantView quant, int64_t rows, int64_t cols) {
  using Tile = PointwiseTile<kColumns>;
  static_assert(Tile::kPasses % Op::kBatch == 0);
  constexpr int kWords = kColumns ? QuantTile<128>::Words(Tile::kCols) : 4;
  __shared__ __align__(16) uint32_t words[Op::kOutputs][kWords];
  __shared__ uint32_t scratch[32];
  const int64_t tiles_across = CeilDiv(cols, Tile::kCols);
  const int64_t row0 = blockIdx.x / tiles_across * Tile::kRows;
  const int64_t col0 = blockIdx.x % tiles_across * Tile::kCols;
  const int tile_col = threadIdx.x % Tile::kPacks * 8;
  const int tile_row = threadIdx.x / Tile::kPacks;
  const int64_t col = col0 + tile_col;
  const bool e4m3 = quant.dtype == DType::kE4M3;
  const float scale = QuantScale(quant);
  uint32_t amax = 0;
  // Rows of this thread that exist: tile_row + pass * kRowsAtOnce below `end`.
  const int end =
      col < cols ? static_cast<int>(min(rows - row0, static_cast<int64_t>(Tile::kRows))) : 0;

  float bias[8] = {};
  if constexpr (Op::kBias) {
    if (op.bias != nullptr && col < cols) {
      LoadFloats<8>(op.bias + col, bias);
    }
  }
#pragma unroll 1
  for (int pass = 0; pass < Tile::kPasses; pass += Op::kBatch) {
    Pack<A, 8> in[Op::kBatch][Op::kInputs];
#pragma unroll
    for (int b = 0; b < Op::kBatch; ++b) {
      const int r = tile_row + (pass + b) * Tile::kRowsAtOnce;
      if (r < end) {
#pragma unroll
        for (int i = 0; i < Op::kInputs; ++i) {
          in[b][i] = LoadPack<8>(op.Input(i, row0 + r, col));
        }
      }
    }
#pragma unroll
    for (int b = 0; b < Op::kBatch; ++b) {
      const int r = tile_row + (pass + b) * Tile::kRowsAtOnce;
      if (r >= end) {
        break;
      }
      Pack<A, 8> rounded[Op::kOutputs];
#pragma unroll
      for (int k = 0; k < 8; k += 2) {
        float y[2][Op::kOutputs];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          float x[Op::kInputs];
#pragma unroll
          for (int i = 0; i < Op::kInputs; ++i) {
            x[i] = ToFloat(in[b][i].at[k + n]);
          }
          op.Apply(x, bias[k + n], y[n]);
        }
#pragma unroll
        for (int o = 0; o < Op::kOutputs; ++o) {
          RoundPair(y[0][o], y[1][o], rounded[o], k);
        }
      }
#pragma unroll
      for (int o = 0; o < Op::kOutputs; ++o) {
        const int64_t at = ((row0 + r) * Op::kOutputs + o) * cols + col;
        if (out != nullptr) {
          StorePack<8>(out + at, rounded[o]);
        }
        if (quant.empty()) {
          continue;
        }
        float v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          v[k] = ToFloat(rounded[o].at[k]);
        }
        amax = RaiseMagnitude(amax, v);
        const uint2 bytes = QuantizePack(v, scale, e4m3);
        if (quant.rows != nullptr) {
          StoreQuantRow(quant, at, bytes);
        }
        if constexpr (kColumns) {
          QuantTile<128>(words[o], Tile::kCols).Put(r, tile_col, bytes);
        }
      }
    }
  }
  if constexpr (kColumns) {
    __syncthreads();
    const int tile_rows = static_cast<int>(min(rows - row0, static_cast<int64_t>(Tile::kRows)));
    const int tile_cols = static_cast<int>(min(cols - col0, static_cast<int64_t>(Tile::kCols)));
#pragma unroll
    for (int o = 0; o < Op::kOutputs; ++o) {
      QuantTile<128>(words[o], Tile::kCols)
          .WriteColumns(quant.columns, rows, row0, o * cols + col0, tile_rows, tile_cols);
    }
  }
  if (quant.amax != nullptr) {
    RaiseAmaxOfBlock(quant.amax, amax, scratch);
  }
}

// Any shape and alignment: an element a thread.
template <typename A, typename Op>
__global__ void __launch_bounds__(kPointwiseThreads)
    PointwiseAnyKernel(Op op, A* out, QuantView quant, int64_t rows, int64_t cols) {
  __shared__ uint32_t scratch[32];
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kPointwiseThreads + threadIdx.x;
  uint32_t amax = 0;
  if (at < rows * cols) {
    const int64_t row = at / cols;
    const int64_t col = at % cols;
    float x[Op::kInputs];
    float y[Op::kOutputs];
#pragma unroll
    for (int i = 0; i < Op::kInputs; ++i) {
      x[i] = ToFloat(*op.Input(i, row, col));
    }
    op.Apply(x, op.bias != nullptr ? ToFloat(op.bias[col]) : 0.0F, y);
#pragma unroll
    for (int o = 0; o < Op::kOutputs; ++o) {
      const A rounded = FromFloat<A>(y[o]);
      const float v = ToFloat(rounded);
      if (out != nullptr) {
        out[(row * Op::kOutputs + o) * cols + col] = rounded;
      }
      amax = RaiseMagnitude(amax, v);
      if (quant.has_values()) {
        StoreQuantValue(quant, rows, Op::kOutputs * cols, row, o * cols + col, v,
                        QuantScale(quant));
      }
    }
  }
  if (quant.amax != nullptr) {
    RaiseAmaxOfBlock(quant.amax, amax, scratch);
  }
}

// `aligned`: every input starts at a multiple of 16 bytes.
template <typename A, typename Op>
absl::Status Pointwise(const Exec& exec,
                       const char* name,
                       const Op& op,
                       bool aligned,
                       const TensorView& out,
                       const QuantView& quant,
                       int64_t rows,
                       int64_t cols) {
  if (rows == 0 || cols == 0) {
    return absl::OkStatus();
  }
  const bool columns = quant.columns != nullptr;
  const bool vectors = aligned && cols % 8 == 0 && Aligned16(op.bias) && Aligned16(out.data) &&
                       Aligned16(quant.rows) &&
                       (!columns || (rows % 16 == 0 && cols % 16 == 0 && Aligned16(quant.columns)));
  const auto launch = [&](auto kernel, int64_t blocks) {
    kernel<<<static_cast<unsigned>(blocks), kPointwiseThreads, 0, StreamOf(exec)>>>(
        op, out.as<A>(), quant, rows, cols);
    return HEARTH_CUDA_LAUNCHED(name);
  };
  if (!vectors) {
    return launch(PointwiseAnyKernel<A, Op>, CeilDiv(rows * cols, kPointwiseThreads));
  }
  if (columns) {
    using Tile = PointwiseTile<true>;
    return launch(PointwiseKernel<A, Op, true>,
                  CeilDiv(rows, Tile::kRows) * CeilDiv(cols, Tile::kCols));
  }
  using Tile = PointwiseTile<false>;
  return launch(PointwiseKernel<A, Op, false>,
                CeilDiv(rows, Tile::kRows) * CeilDiv(cols, Tile::kCols));
}

}  // namespace hearth::kernels::cuda
