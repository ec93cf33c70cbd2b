// Large tensors by copy engines, among threads, one a GPU. Needs two GPUs.
#include "worker/trainer/comm/copy_collective.h"

#include <cmath>

#include "worker/trainer/comm/nccl_test_ranks.h"

namespace hearth::trainer {
namespace {

// Tensors one behind the other in one shared piece of memory.
class SharedRank {
 public:
  static constexpr size_t kBytes = size_t{96} << 20;
  static constexpr size_t kScratch = size_t{32} << 20;

  explicit SharedRank(Rank& rank) : rank_(rank) {
    memory_ = rank.New(DType::kF32, kBytes / 4);
    SharedMemory shared;
    shared.base = memory_.data;
    shared.bytes = kBytes;
    shared.scratch = memory_.as<uint8_t>() + (kBytes - kScratch);
    shared.scratch_bytes = kScratch;
    const absl::Status status = rank.comm->Share(shared);
    EXPECT_TRUE(status.ok()) << status;
  }
  TensorView New(DType dtype, int64_t count) {
    const TensorView made(static_cast<void*>(memory_.as<uint8_t>() + used_), dtype, {count});
    used_ += (made.bytes() + 255) / 256 * 256;
    EXPECT_LE(used_, kBytes - kScratch);
    return made;
  }

 private:
  Rank& rank_;
  TensorView memory_;
  size_t used_ = 0;
};

// Element i of rank r: small whole numbers, so that every sum is exact.
float Value(int rank, int64_t i, int round) {
  return static_cast<float>((i * 7 + rank * 3 + round) % 16);
}
float Sum(int world_size, int64_t i, int round) {
  float sum = 0;
  for (int r = 0; r < world_size; ++r) {
    sum += Value(r, i, round);
  }
  return sum;
}
std::vector<float> Values(int rank, int64_t count, int round) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = Value(rank, i, round);
  }
  return values;
}
std::vector<uint16_t> AsBf16(const std::vector<float>& values) {
  std::vector<uint16_t> out;
  for (const float value : values) {
    out.push_back(Bf16(value));
  }
  return out;
}

using CopyTest = NcclTest;

TEST_F(CopyTest, LargeTensors_SumScatterAndGather) {
  OnEveryGpu([](Rank& rank) {
    SharedRank shared(rank);
    Collective& comm = *rank.comm;
    ASSERT_EQ(comm.transport(), "nccl+copy");
    const int W = comm.world_size();
    const int64_t odd = 1000003;
    const TensorView f32 = shared.New(DType::kF32, odd);
    const TensorView bf16 = shared.New(DType::kBF16, W * 512 * 1024);
    const TensorView small = shared.New(DType::kF32, 1000);
    for (int round = 0; round < 3; ++round) {  // words are used again and again
      rank.Set(f32, Values(comm.rank(), odd, round));
      ASSERT_TRUE(comm.AllReduceSum(rank.exec, f32).ok());
      const std::vector<float> sums = rank.Get<float>(f32);
      for (int64_t i = 0; i < odd; ++i) {
        ASSERT_EQ(sums[static_cast<size_t>(i)], Sum(W, i, round)) << "element " << i;
      }
      const int64_t n = bf16.numel();
      rank.Set(bf16, AsBf16(Values(comm.rank(), n, round)));
      ASSERT_TRUE(comm.ReduceScatterSum(rank.exec, bf16).ok());
      const std::vector<uint16_t> part = rank.Get<uint16_t>(bf16);
      for (int64_t i = comm.rank() * (n / W); i < (comm.rank() + 1) * (n / W); ++i) {
        ASSERT_EQ(FromBf16(part[static_cast<size_t>(i)]), Sum(W, i, round)) << "element " << i;
      }
      ASSERT_TRUE(comm.AllGather(rank.exec, bf16).ok());
      const std::vector<uint16_t> all = rank.Get<uint16_t>(bf16);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(FromBf16(all[static_cast<size_t>(i)]), Sum(W, i, round)) << "element " << i;
      }
      rank.Set(small, Values(comm.rank(), 1000, round));
      ASSERT_TRUE(comm.AllReduceSum(rank.exec, small).ok());
      EXPECT_EQ(rank.Get<float>(small)[999], Sum(W, 999, round));
    }
  });
}

// BF16 sums are rounded once, whoever adds them: the same bits on every rank.
TEST_F(CopyTest, RoundedSums_AreTheSameBitsOnEveryRank) {
  OnEveryGpu([](Rank& rank) {
    SharedRank shared(rank);
    Collective& comm = *rank.comm;
    const int64_t n = 1 << 20;
    const TensorView bf16 = shared.New(DType::kBF16, n);
    std::vector<uint16_t> values;
    for (int64_t i = 0; i < n; ++i) {
      values.push_back(Bf16(std::sin(static_cast<float>(i * (comm.rank() + 1)))));
    }
    rank.Set(bf16, values);
    ASSERT_TRUE(comm.AllReduceSum(rank.exec, bf16).ok());
    uint64_t hash = 1469598103934665603U;
    for (const uint16_t value : rank.Get<uint16_t>(bf16)) {
      hash = (hash ^ value) * 1099511628211U;
    }
    std::vector<uint64_t> extremes = {hash, ~hash};
    ASSERT_TRUE(comm.AllReduceMax(absl::MakeSpan(extremes)).ok());
    EXPECT_EQ(extremes[0], ~extremes[1]);
  });
}

TEST_F(CopyTest, RecordedBesideWork_ReplaysFiveTimes) {
  OnEveryGpu([](Rank& rank) {
    SharedRank shared(rank);
    Collective& comm = *rank.comm;
    const int W = comm.world_size();
    const int64_t n = W * 512 * 1024;
    const TensorView reduced = shared.New(DType::kBF16, n);
    const TensorView gathered = shared.New(DType::kBF16, n);
    const auto step = [&](const kernels::Exec& exec) {
      absl::Status status = comm.AllReduceSum(exec, reduced);
      status.Update(comm.ReduceScatterSum(exec, gathered));
      status.Update(comm.AllGather(exec, gathered));
      return status;
    };
    kernels::Exec beside = rank.exec;
    auto stream = kernels::NewStream(*rank.cuda, kernels::StreamPriority::kHigh);
    ASSERT_TRUE(stream.ok()) << stream.status();
    beside.stream = *stream;
    auto forked = kernels::Event::New(rank.exec, kernels::Event::Use::kOrder);
    auto joined = kernels::Event::New(rank.exec, kernels::Event::Use::kOrder);
    ASSERT_TRUE(forked.ok() && joined.ok());
    ASSERT_TRUE(step(beside).ok());
    ASSERT_TRUE(kernels::Synchronize(beside).ok());
    ASSERT_TRUE(kernels::Graph::Begin(rank.exec).ok());
    absl::Status recorded = (*forked)->Record(rank.exec);
    recorded.Update(kernels::StreamWait(beside, **forked));
    recorded.Update(step(beside));
    recorded.Update((*joined)->Record(beside));
    recorded.Update(kernels::StreamWait(rank.exec, **joined));
    auto graph = kernels::Graph::End(rank.exec, "copies");
    ASSERT_TRUE(recorded.ok()) << recorded;
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (int replay = 0; replay < 5; ++replay) {
      rank.Set(reduced, AsBf16(Values(comm.rank(), n, replay)));
      rank.Set(gathered, AsBf16(Values(comm.rank(), n, replay + 1)));
      ASSERT_TRUE((*graph)->Launch(rank.exec).ok());
      const std::vector<uint16_t> a = rank.Get<uint16_t>(reduced);
      const std::vector<uint16_t> b = rank.Get<uint16_t>(gathered);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(FromBf16(a[static_cast<size_t>(i)]), Sum(W, i, replay)) << "element " << i;
        ASSERT_EQ(FromBf16(b[static_cast<size_t>(i)]), Sum(W, i, replay + 1)) << "element " << i;
      }
    }
    graph->reset();
    kernels::DeleteStream(beside.stream);
  });
}

}  // namespace
}  // namespace hearth::trainer
