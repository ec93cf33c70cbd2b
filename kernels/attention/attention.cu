// Which attention runs on a GPU: cuDNN's where it has a plan and skipping would save little, else
// the kernels of our own.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/system.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cudnn.h"
#include "kernels/attention/own.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {
namespace {

constexpr char kOp[] = "attention";

// HEARTH_ATTENTION: "own" or "cudnn" take only that one; anything else, or nothing: the best.
enum class Choice { kBest, kOwn, kCudnn };

Choice ChoiceOfEnvironment() {
  const char* given = GetEnv("HEARTH_ATTENTION");
  const std::string name = given == nullptr ? "" : given;
  return name == "own" ? Choice::kOwn : name == "cudnn" ? Choice::kCudnn : Choice::kBest;
}

// Whether cuDNN is asked for a plan at all. Attention within documents of any number is faster with
// our own kernels, which skip tiles of keys that nobody sees, than with a second comparison in
// cuDNN's: in sequences of 2,048 (B = 18, 12/3 heads of 64, an H200) they take 0.45 and 1.65 ms
// with one document a sequence and 0.11 and 0.34 ms with documents of 128 tokens, cuDNN's with the
// comparison 0.67 and 1.61 ms whatever the documents. `ops perf` of the cases perf_documents_* with
// HEARTH_ATTENTION=own and =cudnn says so. Where each sequence is one document, cuDNN's causal
// attention takes 0.31 and 0.96 ms; few documents are sequences of their own for it (perf_slots_*),
// of 2,048 tokens in 0.36 and 1.12 ms.
bool TriesCudnn(const AttentionArgs& args) {
  const Choice choice = ChoiceOfEnvironment();
  const bool faster = args.starts.rank == 0 || args.documents > 0;
  return choice == Choice::kCudnn || (choice == Choice::kBest && faster);
}

// AttentionArgs::documents for each sequence. With one, attention is causal. Four slots serve
// documents of some hundred tokens and longer; batches of more documents run our own kernels, which
// short ones suit.
constexpr int64_t kDocumentsPerSequence[] = {1, 4};

float ScaleOf(double scale, const AttentionDims& dims) {
  return static_cast<float>(scale != 0.0 ? scale
                                         : 1.0 / std::sqrt(static_cast<double>(dims.head_dim)));
}

bool Aligned16(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

bool ShapeForTensorCores(const AttentionDims& dims, DType dtype, float scale) {
  // Lengths and heads are ints in the kernels; grid.y counts tiles of 128.
  return dtype == DType::kBF16 && dims.head_dim % 8 == 0 && dims.head_dim <= 128 && scale > 0.0F &&
         dims.sequence < (int64_t{1} << 22);
}

absl::Status OwnForward(const Exec& exec, const AttentionForwardArgs& args) {
  const float scale = ScaleOf(args.scale, args.dims);
  const bool tensor_cores = ShapeForTensorCores(args.dims, args.qkv.dtype, scale) &&
                            Aligned16(args.qkv) && Aligned16(args.out);
  return tensor_cores ? FlashForward(exec, args, scale) : PlainForward(exec, args, scale);
}

size_t DeltaBytes(const AttentionDims& dims) {
  return static_cast<size_t>(dims.batch * dims.heads * dims.sequence) * sizeof(float);
}

absl::Status OwnBackward(const Exec& exec, const AttentionBackwardArgs& args) {
  if (const absl::Status status = RequireWorkspace(exec, DeltaBytes(args.dims), kOp);
      !status.ok()) {
    return status;
  }
  float* delta = static_cast<float*>(exec.workspace.data);
  const float scale = ScaleOf(args.scale, args.dims);
  const bool tensor_cores = ShapeForTensorCores(args.dims, args.qkv.dtype, scale) &&
                            Aligned16(args.qkv) && Aligned16(args.d_out) && Aligned16(args.d_qkv);
  return tensor_cores ? FlashBackward(exec, args, scale, delta)
                      : PlainBackward(exec, args, scale, delta);
}

}  // namespace

absl::Status AttentionForward(const Exec& exec, const AttentionForwardArgs& args) {
  if (TriesCudnn(args)) {
    const absl::Status status = exec.cuda->attention().Forward(exec, args);
    if (ChoiceOfEnvironment() == Choice::kCudnn ||
        status.code() != absl::StatusCode::kUnimplemented) {
      return status;
    }
  }
  return OwnForward(exec, args);
}

absl::Status AttentionBackward(const Exec& exec, const AttentionBackwardArgs& args) {
  if (TriesCudnn(args)) {
    const absl::Status status = exec.cuda->attention().Backward(exec, args);
    if (ChoiceOfEnvironment() == Choice::kCudnn ||
        status.code() != absl::StatusCode::kUnimplemented) {
      return status;
    }
  }
  return OwnBackward(exec, args);
}

bool RunsCudnn(const Exec& exec, const AttentionForwardArgs& args) {
  return TriesCudnn(args) && exec.cuda->attention().Takes(args);
}

bool RunsCudnn(const Exec& exec, const AttentionBackwardArgs& args) {
  return TriesCudnn(args) && exec.cuda->attention().Takes(args);
}

size_t AttentionForwardWorkspaceBytes(const Exec& exec, const AttentionForwardArgs& args) {
  return TriesCudnn(args) ? exec.cuda->attention().ForwardWorkspaceBytes(args) : 0;
}

size_t AttentionBackwardWorkspaceBytes(const Exec& exec, const AttentionBackwardArgs& args) {
  const size_t cudnn = TriesCudnn(args) ? exec.cuda->attention().BackwardWorkspaceBytes(args) : 0;
  return std::max(cudnn, DeltaBytes(args.dims));
}

std::vector<int64_t> AttentionDocumentBounds(const Exec& exec, const AttentionForwardArgs& args) {
  std::vector<int64_t> bounds;
  AttentionForwardArgs bounded = args;
  for (const int64_t each : kDocumentsPerSequence) {
    bounded.documents = each * args.dims.batch;
    if (args.starts.rank > 0 && RunsCudnn(exec, bounded)) {
      bounds.push_back(bounded.documents);
    }
  }
  return bounds;
}

}  // namespace hearth::kernels::cuda
