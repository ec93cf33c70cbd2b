// Plans of cuDNN for causal attention, also within documents, built through its backend API. Used
// by AttentionPlans.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"

namespace hearth::kernels {

// What a plan depends on; pointers and the scale are given when it runs.
struct SdpaProblem {
  AttentionDims dims;
  bool backward = false;
  bool keep_lse = true;    // forward: lse is written
  bool documents = false;  // a query sees keys from its starts on alone
  // > 0: the batch is so many sequences of their own ("slots"), packed one behind another in its
  // rows; dims.sequence is the longest. Where each begins and how long it is is given when the plan
  // runs. Causal; without `documents`.
  int64_t slots = 0;
  // Only engines that promise the same bits in every run. Backward then stores dS, bf16 [batch,
  // heads, sequence, sequence], in its workspace, where it otherwise sums dQ with atomics; that is
  // known to be of fixed order on Hopper (NVIDIA's cudnn-frontend takes this graph there).
  bool deterministic = false;
};

// Operands as attention.h describes them, all bf16 but lse and starts. Backward's fields are unused
// forward.
struct SdpaPointers {
  void* qkv = nullptr;
  void* out = nullptr;
  void* lse = nullptr;
  void* starts = nullptr;  // 16-byte aligned; unused without SdpaProblem::documents
  // Unused without SdpaProblem::slots, i32, 16-byte aligned: [slots] rows of each, and [slots + 1]
  // the element of qkv, out and lse at which each begins.
  void* lengths = nullptr;
  void* qkv_offsets = nullptr;
  void* out_offsets = nullptr;
  void* lse_offsets = nullptr;
  void* d_out = nullptr;
  void* d_qkv = nullptr;
  float scale = 1.0F;
};

class SdpaPlan;

// cuDNN's library with a handle on the current GPU. Used by one thread at a time.
class Cudnn {
 public:
  // HEARTH_CUDNN (a file, or a folder with libcudnn.so.9) if it is set, else what Library::Open
  // finds. Only one is opened: cuDNN's parts find each other by name, so that two versions in one
  // process would mix. kUnavailable, with the reason.
  static absl::StatusOr<std::unique_ptr<Cudnn>> Load();
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  // 91900 = 9.19.0.
  int64_t version() const;
  const std::string& path() const;

  // The plan for the current GPU, compiled (up to seconds). kUnimplemented: cuDNN has no engine for
  // the problem, or none can be compiled.
  absl::StatusOr<std::unique_ptr<SdpaPlan>> Build(const SdpaProblem& problem);
  // Numbers of the engines that would take the problem, the best first, on a GPU of these
  // properties (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), which need not be there.
  absl::StatusOr<std::vector<int64_t>> Engines(const SdpaProblem& problem,
                                               const std::string& device_json);
  // Asynchronous on `stream` (cudaStream_t). `workspace`: plan.workspace_bytes(), 256-byte aligned.
  absl::Status Run(const SdpaPlan& plan,
                   const SdpaPointers& pointers,
                   void* stream,
                   void* workspace);

 private:
  struct Impl;
  explicit Cudnn(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class SdpaPlan {
 public:
  ~SdpaPlan();
  SdpaPlan(const SdpaPlan&) = delete;
  SdpaPlan& operator=(const SdpaPlan&) = delete;

  size_t workspace_bytes() const;
  // cuDNN's number of the engine.
  int64_t engine() const;

 private:
  friend class Cudnn;
  struct Impl;
  explicit SdpaPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::kernels
