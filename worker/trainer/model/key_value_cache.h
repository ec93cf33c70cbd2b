// Keys and values of the tokens that a text already has, for passes that read only what is new.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/attention/attention.h"
#include "kernels/core/exec.h"

namespace hearth::trainer {

// What attention does in such passes (ModelContext::cache).
class KeyValueCache {
 public:
  virtual ~KeyValueCache() = default;

  // `args`: attention of the layer's tokens to one another, as a pass without a cache calls it. Its
  // qkv [N, (Hq + 2 Hkv) D] has the positions applied; out is written.
  virtual absl::Status Attend(const kernels::Exec& exec,
                              int layer,
                              const kernels::AttentionForwardArgs& args) = 0;
  virtual size_t WorkspaceBytes(const kernels::Exec& exec,
                                const kernels::AttentionForwardArgs& args) const = 0;
};

}  // namespace hearth::trainer
