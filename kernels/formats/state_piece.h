// Pieces of masters and optimizer states on the CPU, in the arithmetic's type T: a piece is widened
// on the stack where it is stored in BF16 or in blocks. One thread has a piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/formats/state_blocks.h"
#include "kernels/core/cpu.h"
#include "kernels/core/formats.h"
#include "kernels/core/raise_amax.h"
#include "kernels/core/rng.h"
#include "kernels/core/state_scales.h"
#include "kernels/core/tensor.h"
#include "kernels/core/weight_update.h"
#include "kernels/formats/span.h"

namespace hearth::kernels {

inline constexpr int64_t kStatePiece = 1024;  // the most elements of a piece
static_assert(kStatePiece % formats::kStateBlockUnit == 0);

// The buffer itself, or a widened copy that Store narrows again.
template <typename T>
class PlainPiece {
 public:
  PlainPiece(const TensorView& view, int64_t begin, int64_t count)
      : count_(count), packed_(view.dtype == DType::kBF16) {
    if (packed_) {
      codes_ = view.as<uint16_t>() + begin;
      DecodeSpan(codes_, count, DType::kBF16, wide_);
    }
    data_ = packed_ ? wide_ : view.as<T>() + begin;
  }
  T* data() { return data_; }
  // Nearest even; leaves the stored values in data().
  void Store() {
    if (packed_) {
      EncodeSpan(data_, count_, DType::kBF16, codes_);
      DecodeSpan(codes_, count_, DType::kBF16, data_);
    }
  }
  // Up with the probability of the part cut off. `wide`: values that are not packed are rounded
  // alike.
  void StoreStochastic(const RngKey& key, uint64_t first_element, bool wide) {
    for (int64_t i = 0; (packed_ || wide) && i < count_; ++i) {
      const uint32_t word = RngWord(key, first_element + static_cast<uint64_t>(i));
      const uint16_t code = EncodeBf16Stochastic(static_cast<float>(data_[i]), word);
      if (packed_) {
        codes_[i] = code;
      }
      data_[i] = static_cast<T>(DecodeBf16(code));
    }
  }

 private:
  int64_t count_;
  bool packed_;
  uint16_t* codes_ = nullptr;
  T wide_[kStatePiece];
  T* data_ = nullptr;
};

// As above, or decoded from blocks, which Store encodes again. `begin` is a multiple of the block.
template <typename T>
class StatePiece {
 public:
  StatePiece(const TensorView& view, const StateBlocks& blocks, int64_t begin, int64_t count)
      : codec_(blocks.codec), count_(count) {
    if (codec_ == formats::StateCodec::kNone) {
      plain_.emplace(view, begin, count);
      return;
    }
    const formats::StateCodecRow& row = formats::RowOf(codec_);
    codes_ = view.as<uint8_t>() + begin * row.bits / 8;
    scales_ = blocks.scales + begin / row.block;
    float decoded[kStatePiece];
    formats::DecodeStateBlocks(codec_, codes_, scales_, count, decoded);
    std::copy_n(decoded, count, wide_);
  }
  T* data() { return plain_.has_value() ? plain_->data() : wide_; }
  void Store() {
    if (plain_.has_value()) {
      plain_->Store();
      return;
    }
    float values[kStatePiece];
    std::transform(wide_, wide_ + count_, values, [](T x) { return static_cast<float>(x); });
    formats::EncodeStateBlocks(codec_, values, count_, codes_, scales_);
  }

 private:
  formats::StateCodec codec_;
  int64_t count_;
  std::optional<PlainPiece<T>> plain_;
  uint8_t* codes_ = nullptr;
  float* scales_ = nullptr;
  T wide_[kStatePiece];
};

// visit(begin, end) of pieces of `count` elements, over the threads, kGrain elements at a time.
template <int64_t kGrain, typename Visit>
void ForEachStatePiece(const Exec& exec, int64_t count, const Visit& visit) {
  static_assert(kGrain % kStatePiece == 0);
  ParallelFor(exec, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kStatePiece) {
      visit(at, std::min(end, at + kStatePiece));
    }
  });
}

// Stores the new weights of a piece that begins at `begin`, then writes the working copy, if there
// is one, and raises its amax. `step`: of the randomness.
template <typename T>
void StoreWeights(const UpdateArgs& args,
                  const UpdatedWeight& tensor,
                  uint32_t step,
                  int64_t begin,
                  int64_t count,
                  PlainPiece<T>& master) {
  if (args.stochastic_rounding) {
    const RngKey key = {args.seed, RngPurpose::kStochasticRounding, step, 0, tensor.index};
    // The CPU holds BF16 weights without masters in T.
    const bool wide =
        args.round_working == DType::kBF16 && tensor.working.data == tensor.master.data;
    master.StoreStochastic(key, tensor.first_element + static_cast<uint64_t>(begin), wide);
  } else {
    master.Store();
  }
  if (tensor.working.empty()) {
    return;
  }
  T* working = tensor.working.as<T>() + begin;
  if (working != master.data()) {
    std::copy_n(master.data(), count, working);
  }
  RoundSpan(working, count, args.round_working);
  if (tensor.amax != nullptr) {
    RaiseAmax(working, count, tensor.amax);
  }
}

}  // namespace hearth::kernels
