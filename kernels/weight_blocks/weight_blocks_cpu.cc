#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/core/cpu.h"
#include "kernels/core/raise_amax.h"
#include "kernels/core/rng.h"
#include "kernels/formats/span.h"
#include "kernels/weight_blocks/weight_blocks.h"

namespace hearth::kernels {
namespace {

using formats::WeightCode;
using formats::WeightCodec;
using formats::WeightRange;

constexpr int64_t kGrain = 8192;
constexpr int kMostInBlock = 64;

template <WeightCodec kCodec, typename T>
void DecodeBlock(const uint8_t* block, T* y) {
  constexpr formats::WeightCodecRow kRow = formats::RowOf(kCodec);
  for (int g = 0; g < kRow.block / kRow.group; ++g) {
    const float d = WeightCode<kCodec>::Scale(block, g);
    for (int i = g * kRow.group; i < (g + 1) * kRow.group; ++i) {
      y[i] = static_cast<T>(WeightCode<kCodec>::Value(formats::CodeOf<kCodec>(block, i), d));
    }
  }
}

template <WeightCodec kCodec, typename T>
void DecodeAll(const Exec& exec, const DecodeWeightsArgs& args) {
  constexpr formats::WeightCodecRow kRow = formats::RowOf(kCodec);
  ParallelFor(exec, args.y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    T* const y = args.y.as<T>();
    for (int64_t at = begin; at < end; at += kRow.block) {
      DecodeBlock<kCodec>(args.blocks.as<uint8_t>() + kRow.Bytes(at), y + at);
    }
    RoundSpan(y + begin, end - begin, args.to);
  });
}

// The new values of the block are in `values` then.
template <WeightCodec kCodec>
void EncodeBlock(const EncodeWeightsArgs& args,
                 const RngKey& key,
                 uint64_t first,
                 uint8_t* block,
                 float* values) {
  constexpr formats::WeightCodecRow kRow = formats::RowOf(kCodec);
  using Code = WeightCode<kCodec>;
  uint32_t codes[kMostInBlock];
  for (int g = 0; g < kRow.block / kRow.group; ++g) {
    float* const x = values + int64_t{g} * kRow.group;
    WeightRange range = {x[0], x[0]};
    for (int i = 1; i < kRow.group; ++i) {
      range = formats::Join(range, {x[i], x[i]});
    }
    const float d = Code::NextScale(args.keep ? Code::Scale(block, g) : 0.0F, range);
    for (int i = 0; i < kRow.group; ++i) {
      const uint64_t element = first + static_cast<uint64_t>(g * kRow.group + i);
      const uint32_t code =
          args.keep ? Code::Stochastic(x[i], d, RngWord(key, element)) : Code::Nearest(x[i], d);
      codes[g * kRow.group + i] = code;
      x[i] = Code::Value(code, d);
    }
    Code::PutScale(block, g, d);
  }
  for (int i = 0; i < kRow.block; ++i) {
    uint8_t& byte = block[formats::CodeByte<kCodec>(i)];
    const int shift = formats::CodeShift<kCodec>(i);
    const uint32_t below = shift == 0 ? 0U : byte & 0xFU;
    byte = static_cast<uint8_t>(below | codes[i] << shift);
  }
}

template <WeightCodec kCodec, typename T>
void EncodeAll(const Exec& exec, const EncodeWeightsArgs& args) {
  constexpr formats::WeightCodecRow kRow = formats::RowOf(kCodec);
  const int64_t step = args.inputs != nullptr ? args.inputs->step : args.step;
  const RngKey key = {args.seed, RngPurpose::kStochasticRounding, static_cast<uint32_t>(step), 0,
                      args.index};
  ParallelFor(exec, args.x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    float values[kMostInBlock] = {};
    for (int64_t at = begin; at < end; at += kRow.block) {
      std::transform(args.x.as<T>() + at, args.x.as<T>() + at + kRow.block, values,
                     [](T x) { return static_cast<float>(x); });
      EncodeBlock<kCodec>(args, key, args.first_element + static_cast<uint64_t>(at),
                          args.blocks.as<uint8_t>() + kRow.Bytes(at), values);
      if (args.amax != nullptr) {
        RoundSpan(values, kRow.block, args.to);
        RaiseAmax(values, kRow.block, args.amax);
      }
    }
  });
}

}  // namespace

namespace cpu {

absl::Status DecodeWeights(const Exec& exec, const DecodeWeightsArgs& args) {
  if (args.y.dtype == DType::kBF16) {
    return absl::UnimplementedError("weight_blocks: packed values on the CPU");
  }
  return DispatchFloating(args.y.dtype, [&]<typename T>() {
    formats::DispatchWeightCodec(args.codec,
                                 [&]<WeightCodec kCodec>(formats::WeightCodecTag<kCodec>) {
                                   DecodeAll<kCodec, T>(exec, args);
                                 });
    return absl::OkStatus();
  });
}

absl::Status EncodeWeights(const Exec& exec, const EncodeWeightsArgs& args) {
  if (args.skip != nullptr && *args.skip != 0) {
    return absl::OkStatus();
  }
  return DispatchFloating(args.x.dtype, [&]<typename T>() {
    formats::DispatchWeightCodec(args.codec,
                                 [&]<WeightCodec kCodec>(formats::WeightCodecTag<kCodec>) {
                                   EncodeAll<kCodec, T>(exec, args);
                                 });
    return absl::OkStatus();
  });
}

}  // namespace cpu

}  // namespace hearth::kernels
