// Sums and gathers of large tensors by the GPUs' copy engines, beside another transport.
//
//   all-reduce of a tensor in W pieces, piece r owned by rank r; `|` = all ranks signal and wait
//     ready | pull my piece from every peer, add | pull the others' pieces from their owners | free
//
// NCCL's kernels hold multiprocessors, and a matrix product that fills the GPU then takes two
// rounds instead of one; copy engines hold none. Signals are words in host memory that all ranks
// share, written and waited for by the streams themselves: no kernel spins, no host thread takes
// part, and all of it is recorded into graphs.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/exec.h"
#include "worker/trainer/comm/collective.h"

namespace hearth::trainer {

// Wraps a connected collective of GPU ranks, `cuda` this rank's; both outlive nothing but the
// object. Until Share() everything goes through `base`, and what is not within the shared memory,
// or smaller than kLeastCopiedBytes, still does. Sums are rounded once, in the order of the ranks:
// the same bits on every rank. Tensor operations of one stream only, one after the other.
inline constexpr size_t kLeastCopiedBytes = size_t{1} << 20;
std::unique_ptr<Collective> NewCopyCollective(std::unique_ptr<Collective> base,
                                              kernels::CudaContext& cuda);

}  // namespace hearth::trainer
