// Keys and values of the tokens that a text already has, for passes that read only what is new.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/attention/attention.h"
#include "kernels/core/exec.h"
#include "kernels/qk_norm_rope/qk_norm_rope.h"

namespace hearth::trainer {

// What attention does in such passes (ModelContext::cache).
class KeyValueCache {
 public:
  virtual ~KeyValueCache() = default;

  // What a pass without a cache calls one after the other: `rope`, of what the projection made, and
  // attention of the layer's tokens to one another, of what rope wrote. args.out is written; what
  // is in rope.out after it is undefined.
  virtual absl::Status Attend(const kernels::Exec& exec,
                              int layer,
                              const kernels::QkNormRopeForwardArgs& rope,
                              const kernels::AttentionForwardArgs& args) = 0;
  virtual size_t WorkspaceBytes(const kernels::Exec& exec,
                                const kernels::QkNormRopeForwardArgs& rope,
                                const kernels::AttentionForwardArgs& args) const = 0;
};

}  // namespace hearth::trainer
