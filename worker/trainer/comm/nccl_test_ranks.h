// One GPU and rank a thread, for tests of the transports between GPUs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/context.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/comm/nccl_version.h"

namespace hearth::trainer {

using kernels::DType;
using kernels::TensorView;
// What a rank has in the body of a test. Its memory ends with it.
class Rank {
 public:
  explicit Rank(int gpu) {
    kernels::CudaOptions options;
    options.ordinal = gpu;
    auto opened = kernels::CudaContext::Open(options);
    if (!opened.ok()) {
      status = opened.status();
      return;
    }
    cuda = *std::move(opened);
    exec.device = kernels::Device::kCuda;
    exec.cuda = cuda.get();
    auto stream = kernels::NewStream(*cuda);
    status = stream.status();
    exec.stream = stream.ok() ? *stream : nullptr;
  }
  ~Rank() {
    comm.reset();
    for (void* data : memory_) kernels::FreeDevice(data);
    if (exec.stream != nullptr) kernels::DeleteStream(exec.stream);
  }

  // A tensor of `count` zeros.
  TensorView New(DType dtype, int64_t count) {
    const size_t bytes = kernels::DTypeBytes(dtype, count);
    const auto data = kernels::AllocateDevice(*cuda, bytes);
    EXPECT_TRUE(data.ok()) << data.status();
    memory_.push_back(*data);
    EXPECT_TRUE(kernels::Zero(exec, *data, bytes).ok());
    return TensorView(*data, dtype, {count});
  }
  template <typename T>
  void Set(const TensorView& to, const std::vector<T>& values) {
    ASSERT_EQ(values.size() * sizeof(T), to.bytes());
    ASSERT_TRUE(kernels::Copy(exec, to.data, values.data(), to.bytes()).ok());
    ASSERT_TRUE(kernels::Synchronize(exec).ok());
  }
  template <typename T>
  std::vector<T> Get(const TensorView& from) {
    std::vector<T> values(from.bytes() / sizeof(T));
    EXPECT_TRUE(kernels::Copy(exec, values.data(), from.data, from.bytes()).ok());
    const absl::Status done = kernels::Synchronize(exec);
    EXPECT_TRUE(done.ok()) << done;
    return values;
  }

  absl::Status status;
  std::unique_ptr<kernels::CudaContext> cuda;
  kernels::Exec exec;
  std::unique_ptr<Collective> comm;

 private:
  std::vector<void*> memory_;
};

inline int WorldSize() {
  return std::min(kernels::GpuCount(), 8);
}

inline uint16_t Bf16(float value) {  // of values that bf16 holds
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}
inline float FromBf16(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (WorldSize() < 2) GTEST_SKIP() << "this machine shows " << WorldSize() << " GPUs";
    const auto version = NcclVersion();
    ASSERT_TRUE(version.ok()) << version.status();
  }

  static absl::StatusOr<std::unique_ptr<Collective>> Connect(
      Rank& rank, int number, int world_size, KeyValueStore& store, absl::Duration timeout) {
    NcclOptions options;
    options.rank = number;
    options.world_size = world_size;
    options.cuda = rank.cuda.get();
    options.rendezvous_timeout = timeout;
    options.operation_timeout = absl::Seconds(20);
    return NewNcclCollective(options, store);
  }

  // `body` on a thread and GPU for each rank, connected.
  static void OnEveryGpu(const std::function<void(Rank&)>& body) {
    LocalKeyValueStore store;
    std::vector<std::thread> threads;
    for (int r = 0; r < WorldSize(); ++r) {
      threads.emplace_back([&store, &body, r] {
        Rank rank(r);
        ASSERT_TRUE(rank.status.ok()) << rank.status;
        auto comm = Connect(rank, r, WorldSize(), store, absl::Seconds(60));
        ASSERT_TRUE(comm.ok()) << comm.status();
        rank.comm = *std::move(comm);
        body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

inline float SumOfRanks(int world_size) {
  return static_cast<float>(world_size * (world_size + 1) / 2);
}

}  // namespace hearth::trainer
