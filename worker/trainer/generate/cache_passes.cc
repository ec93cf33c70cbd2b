#include "worker/trainer/generate/cache_passes.h"

#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::TensorView;

namespace {

// The part of a cache that `count` texts of a layer have, from `first` on.
TensorView PartOf(const TensorView& cache,
                  const kernels::CacheDims& all,
                  int layer,
                  int64_t first,
                  int64_t count) {
  const int64_t text = all.kv_heads * all.capacity * all.head_dim;
  const int64_t begin = (layer * all.batch + first) * text;
  return {static_cast<void*>(cache.as<uint8_t>() + kernels::DTypeBytes(cache.dtype, begin)),
          cache.dtype,
          {count, all.kv_heads, all.capacity, all.head_dim}};
}

}  // namespace

absl::Status PrefillCache::Attend(const kernels::Exec& exec,
                                  int layer,
                                  const kernels::QkNormRopeForwardArgs& rope,
                                  const kernels::AttentionForwardArgs& args) {
  HEARTH_RETURN_IF_ERROR(kernels::QkNormRopeForward(exec, rope));
  HEARTH_RETURN_IF_ERROR(kernels::AttentionForward(exec, args));
  kernels::FillCacheArgs fill;
  // The last pass may have sequences behind the last text; their lengths are 0.
  fill.dims = memory_.dims;
  fill.dims.batch = std::min(args.dims.batch, memory_.dims.batch - first_);
  fill.sequence = args.dims.sequence;
  fill.qkv = args.qkv;
  fill.qkv.shape[0] = fill.dims.batch * fill.sequence;
  fill.lengths = lengths_;
  fill.lengths.shape[0] = fill.dims.batch;
  fill.keys = PartOf(memory_.keys, memory_.dims, layer, first_, fill.dims.batch);
  fill.values = PartOf(memory_.values, memory_.dims, layer, first_, fill.dims.batch);
  return kernels::FillCache(exec, fill);
}

size_t PrefillCache::WorkspaceBytes(const kernels::Exec& exec,
                                    const kernels::QkNormRopeForwardArgs&,
                                    const kernels::AttentionForwardArgs& args) const {
  return kernels::AttentionForwardWorkspaceBytes(exec, args);
}

kernels::CachedAttentionArgs DecodeCache::ArgsOf(int layer,
                                                 const kernels::QkNormRopeForwardArgs& rope,
                                                 const kernels::AttentionForwardArgs& args) const {
  kernels::CachedAttentionArgs cached;
  cached.dims = memory_.dims;
  if (kernels::CachedAttentionRotates(rope)) {
    cached.qkv = rope.qkv;
    cached.rope = rope.rope;
  } else {
    cached.qkv = args.qkv;
  }
  cached.positions = positions_;
  cached.keys = PartOf(memory_.keys, memory_.dims, layer, 0, memory_.dims.batch);
  cached.values = PartOf(memory_.values, memory_.dims, layer, 0, memory_.dims.batch);
  cached.out = args.out;
  cached.arrivals = memory_.arrivals;
  cached.scale = args.scale;
  cached.round = args.round;
  return cached;
}

absl::Status DecodeCache::Attend(const kernels::Exec& exec,
                                 int layer,
                                 const kernels::QkNormRopeForwardArgs& rope,
                                 const kernels::AttentionForwardArgs& args) {
  if (!kernels::CachedAttentionRotates(rope)) {
    HEARTH_RETURN_IF_ERROR(kernels::QkNormRopeForward(exec, rope));
  }
  return kernels::CachedAttention(exec, ArgsOf(layer, rope, args));
}

size_t DecodeCache::WorkspaceBytes(const kernels::Exec& exec,
                                   const kernels::QkNormRopeForwardArgs& rope,
                                   const kernels::AttentionForwardArgs& args) const {
  return kernels::CachedAttentionWorkspaceBytes(exec, ArgsOf(0, rope, args));
}

}  // namespace hearth::trainer
