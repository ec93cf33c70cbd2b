// Where the documents of a batch lie, as cuDNN wants to know it: each is a sequence of its own in a
// slot, and the batch one row of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention/attention.h"

namespace hearth::kernels::cuda {

// The kernel keeps a row for each in shared memory.
inline constexpr int64_t kMostDocumentSlots = 8192;

// [slots] rows of each, and [slots + 1] the element of qkv, out and lse at which each begins. All
// on the GPU, 256-byte aligned.
struct DocumentSlots {
  int32_t* lengths = nullptr;
  int32_t* qkv = nullptr;
  int32_t* out = nullptr;
  int32_t* lse = nullptr;
};

size_t DocumentSlotsBytes(int64_t slots);
// Parts of DocumentSlotsBytes() of memory, which is 256-byte aligned.
DocumentSlots DocumentSlotsIn(void* memory, int64_t slots);

// Asynchronous on exec's stream. The batch's documents in their order, one a slot; slots beyond the
// last document have length 0 and lie behind all rows. Documents beyond the last slot have none.
//   starts : [B*T] as in AttentionArgs
// slots <= kMostDocumentSlots; elements are counted in 32 bits.
absl::Status FindDocuments(const Exec& exec,
                           const AttentionDims& dims,
                           const int32_t* starts,
                           int64_t slots,
                           const DocumentSlots& to);

}  // namespace hearth::kernels::cuda
