// The two ways in which attention uses the keys and values of texts (model/key_value_cache.h).
#pragma once

#include <algorithm>

#include "kernels/cached_attention/cached_attention.h"
#include "worker/trainer/model/key_value_cache.h"

namespace hearth::trainer {

// Where they lie, on the tensors' device.
struct CacheMemory {
  kernels::CacheDims dims;       // of all texts
  kernels::TensorView keys;      // [layers * B, Hkv, L, D]
  kernels::TensorView values;    // the same
  kernels::TensorView arrivals;  // [B, Hkv] i32
};

// The beginnings of texts [first, first + M) of M = the pass's sequences, M <= B.
class PrefillCache : public KeyValueCache {
 public:
  // lengths: [M] i32, tokens of each; 0 for sequences that stand for no text.
  PrefillCache(const CacheMemory& memory, const kernels::TensorView& lengths)
      : memory_(memory), lengths_(lengths) {}

  // The texts of the next pass.
  void Read(int64_t first) { first_ = first; }
  absl::Status Attend(const kernels::Exec& exec,
                      int layer,
                      const kernels::QkNormRopeForwardArgs& rope,
                      const kernels::AttentionForwardArgs& args) override;
  size_t WorkspaceBytes(const kernels::Exec& exec,
                        const kernels::QkNormRopeForwardArgs& rope,
                        const kernels::AttentionForwardArgs& args) const override;

 private:
  CacheMemory memory_;
  kernels::TensorView lengths_;
  int64_t first_ = 0;
};

// The next token of every text. Attention rotates it by itself where it can: one kernel less.
class DecodeCache : public KeyValueCache {
 public:
  // positions: [B] i32, of the tokens that the pass reads.
  DecodeCache(const CacheMemory& memory, const kernels::TensorView& positions)
      : memory_(memory), positions_(positions) {}

  absl::Status Attend(const kernels::Exec& exec,
                      int layer,
                      const kernels::QkNormRopeForwardArgs& rope,
                      const kernels::AttentionForwardArgs& args) override;
  size_t WorkspaceBytes(const kernels::Exec& exec,
                        const kernels::QkNormRopeForwardArgs& rope,
                        const kernels::AttentionForwardArgs& args) const override;

 private:
  kernels::CachedAttentionArgs ArgsOf(int layer,
                                      const kernels::QkNormRopeForwardArgs& rope,
                                      const kernels::AttentionForwardArgs& args) const;

  CacheMemory memory_;
  kernels::TensorView positions_;
};

}  // namespace hearth::trainer
