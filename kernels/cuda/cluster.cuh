// Thread block clusters: blocks that run at the same time and reach each other's shared memory.
// Before compute capability 9.0 a cluster is one block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/util.cuh"

namespace hearth::kernels::cuda {

inline constexpr int64_t kMostClusterBlocks = 8;  // that every GPU with clusters takes

// The two halves of MeetCluster; each thread calls one after the other.
__device__ __forceinline__ void ArriveInCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void WaitForCluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

// All threads of the cluster: what they wrote before is seen after, global memory included, though
// not past an older copy in L1.
__device__ __forceinline__ void MeetCluster() {
  ArriveInCluster();
  WaitForCluster();
}

// What lies at `own` in this block's shared memory, in that of block `rank` of the cluster. It may
// be used once that block has begun, as long as it has not ended.
template <typename T>
__device__ __forceinline__ T* InBlock(T* own, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(own), "r"(rank));
  return there;
#else
  return own;
#endif
}

// Blocks of a cluster that `kernel` can have: `wanted`, or 1.
template <typename Kernel>
absl::StatusOr<int64_t> ClusterBlocks(Kernel kernel, int64_t wanted) {
  HEARTH_ASSIGN_OR_RETURN(const bool clusters, MadeForHopper(kernel));
  return clusters ? wanted : 1;
}

// `ranks` blocks along x in each cluster.
inline cudaLaunchAttribute ClusterAttribute(int64_t ranks) {
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(ranks);
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  return cluster;
}

// The launch of one cluster of `ranks` blocks; one block is no cluster. `cluster`: outlives it.
inline cudaLaunchConfig_t ClusterLaunch(
    const Exec& exec, int64_t ranks, int threads, size_t shared, cudaLaunchAttribute& cluster) {
  cluster = ClusterAttribute(ranks);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(ranks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = StreamOf(exec);
  config.attrs = &cluster;
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
