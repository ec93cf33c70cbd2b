// What the CUDA ops share on one GPU: properties, cuBLASLt and cuDNN with their plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth::kernels {

class GemmPlans;       // gemm/cublaslt.h
class AttentionPlans;  // attention/cudnn.h
class ProductCheck;    // gemm/product_check.h

struct GpuProperties {
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-6f3c...", as NVML prints it
  std::string pci_bus_id;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t shared_memory_bytes = 0;  // a block may opt in to
  int driver_version = 0;           // CUDA version the driver supports: 13000 = 13.0
  int runtime_version = 0;
};

struct CudaOptions {
  int ordinal = 0;
  // File in which tuned plans are kept from run to run; empty = none.
  std::string plan_cache;
  // Folder of plans that come with the program, for products that plan_cache does not know; empty =
  // none.
  std::string shipped_plans;
  // For so long, in all, the candidates of matrix products are timed. Products that come later run
  // cuBLASLt's first choice; untuned_products() counts them.
  double tuning_seconds = 5.0;
  // Only algorithms that give the same bits in every run.
  bool deterministic = false;
};

// The one context of a process and GPU; makes the GPU current on the calling thread. Used by one
// thread at a time; outlives every Exec that names it. Destroy graphs first.
class CudaContext {
 public:
  // kUnavailable: no driver, no such GPU, or cuBLASLt is not there (the text says which and what to
  // do); kUnimplemented: a build without CUDA.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Open(const CudaOptions& options);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const GpuProperties& gpu() const { return gpu_; }
  const CudaOptions& options() const { return options_; }
  GemmPlans& gemm() { return *gemm_; }
  AttentionPlans& attention() { return *attention_; }
  // Library versions: "13.1.0", "cuDNN 9.19.0" or "own".
  std::string gemm_version() const;
  std::string attention_version() const;
  // The choices made so far for matrix products, for another rank's ImportPlans (attention's plans
  // are the library's own choice: equal versions choose alike).
  std::string ExportPlans() const;
  // Takes over such choices. True if a product that was run here before gets another one: record
  // graphs after it. False for choices of another GPU model or version. kInvalidArgument: not such
  // a text.
  absl::StatusOr<bool> ImportPlans(const std::string& text);
  // Products that run cuBLASLt's first choice because options().tuning_seconds were over.
  int untuned_products() const;
  // Products that run a plan of options().shipped_plans which this user did not have yet.
  int shipped_products() const;
  // Until it is called with null, `check` compares the products that run on block-scaled units; it
  // outlives that time, and no stream is captured meanwhile.
  void CheckProducts(ProductCheck* check);
  // Writes tuned plans to options().plan_cache, if any are new; never fails a run: kUnavailable is
  // for a log.
  absl::Status SavePlans();

 private:
  CudaContext();

  CudaOptions options_;
  GpuProperties gpu_;
  std::unique_ptr<GemmPlans> gemm_;
  std::unique_ptr<AttentionPlans> attention_;
};

// GPUs that the CUDA runtime shows to this process; 0 without a driver or in a build without CUDA.
int GpuCount();

}  // namespace hearth::kernels
