// cuBLASLt, loaded at run time, and the plans of the products that have been asked for.
//
// A plan is cuBLASLt's descriptors and the fastest of its algorithms for one key: extents, dtypes,
// transpositions, leading dimensions, bias, accumulation, alignment of the operands. Row-major
// c = op(a) op(b) is handed over as column-major cT = op(b)T op(a)T: cuBLASLt's A is b, its B is a.
// Scales are one float a tensor (SCALAR_32F), or with block_scales_a and _b of GemmArgs one E4M3
// byte for 16 elements (VEC16_UE4M3) or one UE8M0 byte for 32 (VEC32_UE8M0), as their layout says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/exec.h"
#include "kernels/cuda/context.h"
#include "kernels/gemm/gemm.h"

namespace hearth::kernels {

struct CublasLt;     // cublaslt_library.h
class ProductCheck;  // product_check.h

// Which products with block-scaled operands go to cuBLASLt as they are: where ChooseBlockGemms
// (gemm_probe.h) has seen the library compute them right.
struct NativeBlocks {
  std::array<bool, kBlockLayoutCount> layouts = {};  // by BlockLayout
  // FP8 with one scale a tensor as MXFP8 whose block scales are all 1 (UnitScales), the tensors'
  // scales in alpha: the same bits, twice the rate on sm_120.
  bool unit_scale_fp8 = false;
};

// Used by one thread at a time.
class GemmPlans {
 public:
  // Loads cuBLASLt and the plans known (plan_table.h). kUnavailable: no cuBLASLt 13.
  static absl::StatusOr<std::unique_ptr<GemmPlans>> New(const GpuProperties& gpu,
                                                        const CudaOptions& options);
  ~GemmPlans();

  // Runs `args` (checked by CanImplement) on the stream. The first call with a key of which no plan
  // is known times the candidates on the operands given: it waits for the stream and writes c
  // several times, or, where it accumulates into c, memory of its own. While the stream is being
  // captured nothing is timed: such a key gets cuBLASLt's own first choice, which is not recorded.
  // A deterministic context without a plan file never times: its bits are those of
  // cuBLASLt's first choices. After CudaOptions::tuning_seconds of timing the keys that come get
  // the first choice too. A deterministic context records it, so that later runs have its bits;
  // others leave the key to the next run. HEARTH_GEMM_LOG=1: a line a plan to stderr.
  absl::Status Run(const Exec& exec, const GemmArgs& args);
  // The same with cuBLASLt's first choice, or a plan that is known. Nothing is timed or kept: for
  // products that no step has.
  absl::Status RunOnce(const Exec& exec, const GemmArgs& args);
  // Keys that got cuBLASLt's first choice because the time for tuning was over.
  int untuned() const;
  // Keys that got a plan that was shipped with the program.
  int shipped() const;
  // Writes the plan file if plans are new.
  absl::Status Save();
  // The plans as text: the plan file's header and lines; keys that were never timed are not in it.
  std::string Export() const;
  // Takes over the plans of such a text, in the place of this context's own: true if a product that
  // was run here has another choice now. All that were run are then prepared again: record graphs
  // after it. Plans of products that were not run are kept for when they are. Text of another GPU
  // model, cuBLASLt or driver: false. kInvalidArgument: no such text.
  absl::StatusOr<bool> Import(const std::string& text);
  NativeBlocks& native_blocks();
  // What compares products on block-scaled units (CudaContext::CheckProducts); null: nothing does.
  ProductCheck*& product_check();
  // At least `bytes` bytes of the UE8M0 code of 1 in device memory of this object's own: one buffer
  // for all products, as large as the largest needed (4 MiB for 131,072 x 1,024, 16 MiB for 262,144
  // x 2,048). It grows outside of captures only: null where it is too small while the stream is
  // being captured. Earlier buffers stay, because graphs may read them.
  absl::StatusOr<const uint8_t*> UnitScales(const Exec& exec, size_t bytes);
  // "13.1.0"
  std::string version() const;

  // The library and its handle (cublasLtHandle_t), for products without a plan.
  const CublasLt& library() const;
  void* handle() const;

 private:
  struct Impl;
  explicit GemmPlans(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hearth::kernels
