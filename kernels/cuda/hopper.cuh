// Hopper's asynchronous copies of tiles (TMA) and its products of warpgroups (wgmma). Products are
// for sm_90a alone: the body of a kernel that uses them stands between #if HEARTH_HOPPER_CODE and
// #endif. The copies are for sm_90 and later: HEARTH_CLUSTER_CODE.
//
// Tiles in shared memory have rows of 128 bytes, swizzled: the 16-byte part p of row r lies at p ^
// (r % 8). They start at multiples of 1,024 bytes.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/shared_address.cuh"

namespace hearth::kernels::cuda {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HEARTH_HOPPER_CODE 1
#else
#define HEARTH_HOPPER_CODE 0
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define HEARTH_CLUSTER_CODE 1
#else
#define HEARTH_CLUSTER_CODE 0
#endif

// A barrier in shared memory that counts arrivals, and bytes that TMA has still to write. It orders
// what TMA and wgmma do; ordinary memory access of other blocks it does not: that would take fences
// of the cluster's scope, which cost more than a stage of a product.
struct TmaBarrier {
  uint64_t word;

  __device__ __forceinline__ void Init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(this)),
                 "r"(arrivals));
  }
  __device__ __forceinline__ void Arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(this)) : "memory");
  }
  // At the same barrier of block `rank` of the cluster.
  __device__ __forceinline__ void ArriveAt(uint32_t rank) {
    // mapa turns the address of this block's barrier into that of the same place in block `rank`.
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(SharedAddress(this)),
        "r"(rank)
        : "memory");
  }
  __device__ __forceinline__ void ArriveAndExpect(uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(this)),
        "r"(bytes)
        : "memory");
  }
  // Until the phase of this parity is over. A barrier's first phase has parity 0; the one before it
  // counts as over.
  __device__ __forceinline__ void Wait(uint32_t parity) {
    // try_wait may come back before the phase is over: it suspends the thread for a time that the
    // hardware chooses. The labels are local to the braces, so that each inlined copy has its own.
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n"
        "}\n" ::"r"(SharedAddress(this)),
        "r"(parity)
        : "memory");
  }
};

// Barriers that were initialised are seen by the other blocks of the cluster and by TMA.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// What this thread wrote to shared memory is seen by TMA.
__device__ __forceinline__ void FenceForTma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void ClusterSync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
// A barrier of `threads` threads of the block; ids from 1 on (0 is __syncthreads').
__device__ __forceinline__ void NamedBarrier(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The box of `map` at (x, y), x along rows, to shared memory; `barrier` counts its bytes.
__device__ __forceinline__ void LoadTile(
    void* to, const CUtensorMap& map, int32_t x, int32_t y, TmaBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(&barrier)), "r"(x), "r"(y)
      : "memory");
}
// Fetches the description itself, which the first LoadTile would wait for.
__device__ __forceinline__ void PrefetchMap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// The same to the blocks of the cluster in `mask`, each at the same place, with its own barrier.
__device__ __forceinline__ void LoadTileToCluster(
    void* to, const CUtensorMap& map, int32_t x, int32_t y, TmaBarrier& barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(&barrier)), "r"(x), "r"(y), "h"(mask)
      : "memory");
}
// The same of a tensor of five dimensions.
__device__ __forceinline__ void LoadBoxToCluster(
    void* to, const CUtensorMap& map, const int32_t (&at)[5], TmaBarrier& barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(SharedAddress(&barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
      "r"(at[4]), "h"(mask)
      : "memory");
}
// From shared memory; what lies outside of the tensor is left out. Stores of a thread since its
// last CommitStores are a group.
__device__ __forceinline__ void StoreTile(const CUtensorMap& map,
                                          int32_t x,
                                          int32_t y,
                                          const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(SharedAddress(from)), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void CommitStores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but the last kGroups of this thread's groups have read their shared memory.
template <int kGroups>
__device__ __forceinline__ void WaitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
__device__ __forceinline__ void WaitStores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Registers of each thread of this warpgroup from here on.
template <int kCount>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// An operand of wgmma in shared memory. Along k: rows of the tile are rows (or columns) of the
// operand, 128 bytes of k each. Across k: rows of the tile are of one k, with 64 bf16 of the
// operand's other extent; more of it lies `next` bytes further, a tile of its own.
__device__ __forceinline__ uint64_t OperandAlongK(uint32_t address) {
  // wgmma's matrix descriptor: bits 0 to 13 the address, 16 to 29 the leading offset, 32 to 45 the
  // stride offset, all in units of 16 bytes; bits 62 and 63 the swizzle, 1 for 128 bytes. The
  // stride is from eight rows to the next eight; the leading offset is not read with this swizzle
  // along k.
  return (address & 0x3FFFF) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
__device__ __forceinline__ uint64_t OperandAcrossK(uint32_t address, uint32_t next) {
  return (address & 0x3FFFF) >> 4 | uint64_t{next >> 4} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kGroups>
__device__ __forceinline__ void WaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// sums[64, 256] = (add ? sums : 0) + a[64, 16] b[16, 256], bf16. A thread's sums[4 j + 2 h + i]
// is row 16 warp + lane / 4 + 8 h, column 8 j + 2 (lane % 4) + i.
#define HEARTH_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define HEARTH_16(i) HEARTH_4(i), HEARTH_4((i) + 4), HEARTH_4((i) + 8), HEARTH_4((i) + 12)
#define HEARTH_64(i) HEARTH_16(i), HEARTH_16((i) + 16), HEARTH_16((i) + 32), HEARTH_16((i) + 48)
template <bool kAcrossK>
__device__ __forceinline__ void MultiplyBf16(float (&d)[128], uint64_t a, uint64_t b, bool add) {
  // Behind the predicate: a and b are not negated (1, 1), a lies along k (0), and b as kAcrossK
  // says.
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127}, "
      "%128, %129, add, 1, 1, 0, %131;\n"
      "}\n"
      : HEARTH_64(0), HEARTH_64(64)
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)), "n"(kAcrossK ? 1 : 0));
}
// sums[64, N] += a[64, 16] b[16, N], bf16, both along k, N as the sums have it; a in shared memory,
// or in registers as mma has it: a warp's 16 rows, and a[i] holds those of lane / 4 + 8 (i % 2),
// columns 2 (lane % 4) + 8 (i / 2) and the next. Nobody writes such registers before WaitProducts.
#define HEARTH_8(i) HEARTH_4(i), HEARTH_4((i) + 4)
#define HEARTH_32(i) HEARTH_16(i), HEARTH_16((i) + 16)
#define HEARTH_TO_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define HEARTH_TO_20 HEARTH_TO_16 ", %16, %17, %18, %19"
#define HEARTH_TO_32 HEARTH_TO_20 ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HEARTH_TO_40 HEARTH_TO_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define HEARTH_ADD_PRODUCT(columns, count, at0, at1, at2, at3, at4, ...)                     \
  __device__ __forceinline__ void AddProductBf16(float(&d)[count], uint64_t a, uint64_t b) { \
    asm volatile(                                                                            \
        "{\n"                                                                                \
        ".reg .pred add;\n"                                                                  \
        "setp.eq.u32 add, 0, 0;\n"                                                           \
        "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" HEARTH_TO_##count \
        "}, " at0 ", " at1                                                                   \
        ", add, 1, 1, 0, 0;\n"                                                               \
        "}\n"                                                                                \
        : __VA_ARGS__                                                                        \
        : "l"(a), "l"(b));                                                                   \
  }                                                                                          \
  __device__ __forceinline__ void AddProductBf16(float(&d)[count], const uint32_t(&a)[4],    \
                                                 uint64_t b) {                               \
    asm volatile(                                                                            \
        "{\n"                                                                                \
        ".reg .pred add;\n"                                                                  \
        "setp.eq.u32 add, 0, 0;\n"                                                           \
        "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" HEARTH_TO_##count \
        "}, {" at0 ", " at1 ", " at2 ", " at3 "}, " at4                                      \
        ", add, 1, 1, 0;\n"                                                                  \
        "}\n"                                                                                \
        : __VA_ARGS__                                                                        \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                               \
  }
HEARTH_ADD_PRODUCT(32, 16, "%16", "%17", "%18", "%19", "%20", HEARTH_16(0))
HEARTH_ADD_PRODUCT(40, 20, "%20", "%21", "%22", "%23", "%24", HEARTH_16(0), HEARTH_4(16))
HEARTH_ADD_PRODUCT(64, 32, "%32", "%33", "%34", "%35", "%36", HEARTH_32(0))
HEARTH_ADD_PRODUCT(80, 40, "%40", "%41", "%42", "%43", "%44", HEARTH_32(0), HEARTH_8(32))
#undef HEARTH_ADD_PRODUCT
#undef HEARTH_TO_40
#undef HEARTH_TO_32
#undef HEARTH_TO_20
#undef HEARTH_TO_16
#undef HEARTH_32
#undef HEARTH_8

// As MultiplyBf16 with 128 columns: sums[64, 128] = (add ? sums : 0) + a[64, 32] b[32, 128] in FP8,
// both along k. The tensor core's sums are shorter than fp32 here (GemmArgs::fast_accumulation).
#define HEARTH_MULTIPLY_FP8(Name, formats)                                                  \
  __device__ __forceinline__ void Name(float(&d)[64], uint64_t a, uint64_t b, bool add) {   \
    asm volatile(                                                                           \
        "{\n"                                                                               \
        ".reg .pred add;\n"                                                                 \
        "setp.ne.b32 add, %66, 0;\n"                                                        \
        "wgmma.mma_async.sync.aligned.m64n128k32.f32." formats                              \
        " {"                                                                                \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
        "%64, %65, add, 1, 1;\n"                                                            \
        "}\n"                                                                               \
        : HEARTH_64(0)                                                                      \
        : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)));                                  \
  }
HEARTH_MULTIPLY_FP8(MultiplyE4m3, "e4m3.e4m3")
HEARTH_MULTIPLY_FP8(MultiplyE5m2, "e5m2.e4m3")
#undef HEARTH_MULTIPLY_FP8
#undef HEARTH_64
#undef HEARTH_16
#undef HEARTH_4

}  // namespace hearth::kernels::cuda
