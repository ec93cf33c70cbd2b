// An optimizer state in blocks, as its kernels get it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/formats/state_blocks.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

// Beside the view of a state's codes; without a codec that view has the values themselves.
struct StateBlocks {
  formats::StateCodec codec = formats::StateCodec::kNone;
  float* scales = nullptr;  // on the tensors' device; one for each RowOf(codec).block elements
};

// `view` and `blocks` hold a state of `count` elements: floating values, kBF16 included, or codes
// (kU8, ceil(count * bits / 8) bytes) with scales. Errors: kInvalidArgument; `op` and `name` are in
// the text.
inline absl::Status RequireState(const TensorView& view,
                                 const StateBlocks& blocks,
                                 int64_t count,
                                 const char* op,
                                 const char* name) {
  if (blocks.codec == formats::StateCodec::kNone) {
    HEARTH_RETURN_IF_ERROR(RequireFloating(view, op, name));
    return RequireCount(view, view.dtype, count, op, name);
  }
  if (blocks.scales == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": codes of ", name, " without scales"));
  }
  return RequireCount(view, DType::kU8, (count * formats::RowOf(blocks.codec).bits + 7) / 8, op,
                      name);
}

}  // namespace hearth::kernels
