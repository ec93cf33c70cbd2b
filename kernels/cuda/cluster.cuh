// Clusters of blocks, on GPUs that have them; elsewhere a cluster is one block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

// All threads of the cluster: what they wrote before is seen after, global memory included, though
// not past an older copy in L1. Before compute capability 9.0 a cluster is one block.
__device__ __forceinline__ void MeetCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#else
  __syncthreads();
#endif
}

// A value to where `own`, in this block's shared memory, lies in that of block `rank` of the
// cluster. It is seen there once the cluster has met, which it also has to before the first.
__device__ __forceinline__ void StoreInCluster(float2* own, uint32_t rank, float2 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(own));
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.v2.f32 [remote], {%2, %3};\n"
      "}" ::"r"(at),
      "r"(rank), "f"(value.x), "f"(value.y)
      : "memory");
#else
  *own = value;
#endif
}

// The launch of clusters of `ranks` blocks; one block is no cluster. `attribute` outlives it.
inline cudaLaunchConfig_t ClusterLaunch(
    const Exec& exec, int64_t ranks, int threads, size_t shared, cudaLaunchAttribute& attribute) {
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(ranks);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(ranks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = StreamOf(exec);
  config.attrs = &attribute;
  config.numAttrs = ranks > 1 ? 1 : 0;
  return config;
}

// How many clusters run at once, at least 1.
template <typename Kernel>
absl::StatusOr<int64_t> ClustersAtOnce(const Exec& exec,
                                       Kernel kernel,
                                       const cudaLaunchConfig_t& config,
                                       int64_t ranks) {
  int fit = 0;
  if (ranks > 1) {
    HEARTH_CUDA_RETURN_IF_ERROR(cudaOccupancyMaxActiveClusters(&fit, kernel, &config));
    return std::max(fit, 1);
  }
  HEARTH_CUDA_RETURN_IF_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &fit, kernel, static_cast<int>(config.blockDim.x), config.dynamicSmemBytes));
  return std::max<int64_t>(int64_t{fit} * exec.cuda->gpu().multiprocessors, 1);
}

}  // namespace hearth::kernels::cuda
