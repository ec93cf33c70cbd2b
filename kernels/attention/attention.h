// Causal self-attention with grouped queries on the fused projection.
//   The fused row is [q: Hq*D | k: Hkv*D | v: Hkv*D]; query head h reads key/value head
//   h / (Hq / Hkv). Row r of the views is position r % T of sequence r / T.
//   With starts, several documents share a sequence and a query sees only keys of its own: query i
//   sees keys starts[i] .. i. Whole tiles of unseen keys are skipped.
//   Blocked over query rows: no buffer of B * Hq * T * T exists, except in cuDNN's backward in a
//   fixed order.
//   "A" below is the storage type (exec.h), the same for all floating views of a call but lse.
//   Bits do not depend on exec.threads.
//   On a GPU: cuDNN's engines for bf16, where there are any (cudnn.h) and starts are not given or
//   name few documents, else kernels of our own, on tensor cores for bf16 with head_dim a multiple
//   of 8 up to 128, slow ones for the rest up to head_dim 256. HEARTH_ATTENTION=own or =cudnn
//   allows only one of them. Every call gives the same bits in every run but cuDNN's backward,
//   which CudaOptions::deterministic builds in a fixed order (on Hopper, where each sequence
//   is one document; elsewhere our own kernel runs).
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "kernels/core/door.h"

namespace hearth::kernels {

struct AttentionDims {
  int64_t batch = 0;     // B
  int64_t sequence = 0;  // T
  int64_t heads = 0;     // Hq, a multiple of kv_heads
  int64_t kv_heads = 0;  // Hkv
  int64_t head_dim = 0;  // D
};

// What both directions take.
//   qkv      : [B*T, (Hq + 2 Hkv) D] A        out : [B*T, Hq D] A
//   starts   : [B*T] i32, optional: position in its sequence at which the row's document begins;
//              0 <= starts[i] <= i, the same for all rows of a document
//   lse      : [B, Hq, T] A, kF32 if A is kBF16: the log of the sum of exponentials of the
//              scaled scores
//   documents: with starts, the most documents that they name in all sequences together; 0: any
//              number. With a bound cuDNN takes each as a sequence of its own. The CPU counts them;
//              on a GPU rows of documents beyond that number are not written
//   scale    : 0 means 1 / sqrt(D)
// Errors: kInvalidArgument (shape, dtype, workspace); kUnimplemented (rounding, head_dim);
// kOutOfRange (starts and documents, CPU).
struct AttentionArgs {
  AttentionDims dims;
  TensorView qkv;
  TensorView starts;
  int64_t documents = 0;
  TensorView out;
  TensorView lse;
  double scale = 0.0;
  DType round = DType::kF32;
};

// out = softmax(scale * q kT, causal, same document) v; out aliases nothing.
//   lse   : kept for backward; optional (evaluation)
//   round : probabilities (before the product with v) and out are rounded to it; on a GPU
//           probabilities are rounded to A
struct AttentionForwardArgs : AttentionArgs {};

// On a GPU the first call for a shape builds cuDNN's plan (up to seconds, may allocate): never
// while a graph is recorded. Views may lack their data; their rank says whether they are there.
size_t AttentionForwardWorkspaceBytes(const Exec& exec, const AttentionForwardArgs& args);
HEARTH_DECLARE_OP(AttentionForward, AttentionForwardArgs);

// d_qkv from d_out; probabilities are computed again from qkv and lse. What forward took and made
// is as it was.
//   d_out : [B*T, Hq D] A      d_qkv : [B*T, (Hq + 2 Hkv) D] A, overwritten; no aliasing
//   round : probabilities, score gradients and d_qkv are rounded to it
struct AttentionBackwardArgs : AttentionArgs {
  TensorView d_out;
  TensorView d_qkv;
};

size_t AttentionBackwardWorkspaceBytes(const Exec& exec, const AttentionBackwardArgs& args);
HEARTH_DECLARE_OP(AttentionBackward, AttentionBackwardArgs);

// Values of `documents` that are worth telling apart where these run, ascending: those with which
// something faster runs than without. None on the CPU. Asking builds plans, as above.
std::vector<int64_t> AttentionDocumentBounds(const Exec& exec, const AttentionForwardArgs& args);

namespace cpu {
// Each of Exec::threads has its own block of scores.
size_t AttentionForwardWorkspaceBytes(const AttentionForwardArgs& args, int threads);
size_t AttentionBackwardWorkspaceBytes(const AttentionBackwardArgs& args, int threads);
}  // namespace cpu
namespace cuda {
size_t AttentionForwardWorkspaceBytes(const Exec& exec, const AttentionForwardArgs& args);
size_t AttentionBackwardWorkspaceBytes(const Exec& exec, const AttentionBackwardArgs& args);
std::vector<int64_t> AttentionDocumentBounds(const Exec& exec, const AttentionForwardArgs& args);
}  // namespace cuda

}  // namespace hearth::kernels
