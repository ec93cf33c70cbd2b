#include "kernels/cuda/context.h"

#include <cuda_runtime.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "kernels/attention/cudnn.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/gemm/cublaslt.h"

namespace hearth::kernels {
namespace {

std::string Uuid(const cudaUUID_t& uuid) {
  std::string out = "GPU-";
  for (int i = 0; i < 16; ++i) {
    absl::StrAppend(&out, i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                    absl::StrFormat("%02x", static_cast<unsigned char>(uuid.bytes[i])));
  }
  return out;
}

absl::StatusOr<GpuProperties> Properties(int ordinal) {
  cudaDeviceProp device;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&device, ordinal));
  GpuProperties gpu;
  gpu.ordinal = ordinal;
  gpu.name = device.name;
  gpu.uuid = Uuid(device.uuid);
  gpu.pci_bus_id =
      absl::StrFormat("%08x:%02x:%02x.0", device.pciDomainID, device.pciBusID, device.pciDeviceID);
  gpu.major = device.major;
  gpu.minor = device.minor;
  gpu.multiprocessors = device.multiProcessorCount;
  gpu.memory_bytes = static_cast<int64_t>(device.totalGlobalMem);
  gpu.l2_bytes = device.l2CacheSize;
  gpu.shared_memory_bytes = static_cast<int64_t>(device.sharedMemPerBlockOptin);
  HEARTH_CUDA_RETURN_IF_ERROR(cudaDriverGetVersion(&gpu.driver_version));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaRuntimeGetVersion(&gpu.runtime_version));
  return gpu;
}

}  // namespace

CudaContext::CudaContext() = default;
CudaContext::~CudaContext() = default;

int GpuCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Open(const CudaOptions& options) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA device can be used: ", cudaGetErrorString(error),
                     "; is the NVIDIA driver (580 or later) installed?"));
  }
  if (options.ordinal < 0 || options.ordinal >= count) {
    return absl::UnavailableError(
        absl::StrCat("no GPU ", options.ordinal, ": the driver shows ", count));
  }
  HEARTH_CUDA_RETURN_IF_ERROR(cudaSetDevice(options.ordinal));
  std::unique_ptr<CudaContext> context(new CudaContext());
  context->options_ = options;
  HEARTH_ASSIGN_OR_RETURN(context->gpu_, Properties(options.ordinal));
  if (context->gpu_.major < 8) {
    return absl::UnavailableError(absl::StrCat(context->gpu_.name, " has compute capability ",
                                               context->gpu_.major, ".", context->gpu_.minor,
                                               "; Hearth needs 8.0 or later"));
  }
  HEARTH_ASSIGN_OR_RETURN(context->gemm_, GemmPlans::New(context->gpu_, options));
  HEARTH_ASSIGN_OR_RETURN(context->attention_, AttentionPlans::New(context->gpu_, options));
  return context;
}

std::string CudaContext::gemm_version() const {
  return gemm_->version();
}

std::string CudaContext::attention_version() const {
  const std::string version = attention_->version();
  return version.empty() ? "own" : absl::StrCat("cuDNN ", version);
}

std::string CudaContext::ExportPlans() const {
  return gemm_->Export();
}

absl::StatusOr<bool> CudaContext::ImportPlans(const std::string& text) {
  return gemm_->Import(text);
}

int CudaContext::untuned_products() const {
  return gemm_->untuned();
}

void CudaContext::CheckProducts(ProductCheck* check) {
  gemm_->product_check() = check;
}

int CudaContext::shipped_products() const {
  return gemm_->shipped();
}

absl::Status CudaContext::SavePlans() {
  return gemm_->Save();
}

}  // namespace hearth::kernels
