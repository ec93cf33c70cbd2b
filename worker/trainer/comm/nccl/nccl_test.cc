// NCCL among threads, one a GPU. Needs two GPUs; uses as many as there are, up to eight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/time/clock.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device.h"
#include "kernels/step_gate/step_gate.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/comm/nccl/nccl_version.h"

namespace hearth::trainer {
namespace {

using kernels::DType;
using kernels::TensorView;
using ::testing::HasSubstr;

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
    for (void* data : memory_) {
      kernels::FreeDevice(data);
    }
    if (exec.stream != nullptr) {
      kernels::DeleteStream(exec.stream);
    }
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

int WorldSize() {
  return std::min(kernels::GpuCount(), 8);
}

uint16_t Bf16(float value) {  // of values that bf16 holds
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}
float FromBf16(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (WorldSize() < 2) {
      GTEST_SKIP() << "this machine shows " << WorldSize() << " GPUs";
    }
    const auto version = NcclVersion();
    ASSERT_TRUE(version.ok()) << version.status();
  }

  static absl::StatusOr<std::unique_ptr<Collective>> Connect(
      Rank& rank, int number, int world_size, KeyValueStore& store, absl::Duration timeout) {
    NcclOptions options;
    options.rank = number;
    options.world_size = world_size;
    options.cuda = rank.cuda.get();
    options.gather_timeout = timeout;
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
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
};

float SumOfRanks(int world_size) {
  const int sum = world_size * (world_size + 1) / 2;
  return static_cast<float>(sum);
}

TEST_F(NcclTest, Spans_GiveTheResultOnEveryRank) {
  OnEveryGpu([](Rank& rank) {
    Collective& comm = *rank.comm;
    const int W = comm.world_size();
    EXPECT_EQ(comm.transport(), "nccl");
    // Longer than the device buffer.
    std::vector<float> floats(700001, static_cast<float>(comm.rank() + 1));
    ASSERT_TRUE(comm.AllReduceSum(absl::MakeSpan(floats)).ok());
    EXPECT_EQ(floats.front(), SumOfRanks(W));
    EXPECT_EQ(floats.back(), SumOfRanks(W));
    std::vector<double> doubles(3, 0.25);
    ASSERT_TRUE(comm.AllReduceSum(absl::MakeSpan(doubles)).ok());
    EXPECT_EQ(doubles[2], 0.25 * W);
    std::vector<int32_t> ints = {-comm.rank(), comm.rank()};
    ASSERT_TRUE(comm.AllReduceMax(absl::MakeSpan(ints)).ok());
    EXPECT_EQ(ints, (std::vector<int32_t>{0, W - 1}));
    std::vector<uint64_t> words = {static_cast<uint64_t>(comm.rank()) << 40};
    ASSERT_TRUE(comm.AllReduceMax(absl::MakeSpan(words)).ok());
    EXPECT_EQ(words[0], static_cast<uint64_t>(W - 1) << 40);
    ASSERT_TRUE(comm.Barrier().ok());
    for (int root = 0; root < W; ++root) {
      const std::string long_text(3000000 + root, static_cast<char>('a' + comm.rank()));
      const auto text = BroadcastString(comm, long_text, root);
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, std::string(3000000 + root, static_cast<char>('a' + root)));
    }
  });
}

TEST_F(NcclTest, Tensors_ReduceScatterAndGather) {
  OnEveryGpu([](Rank& rank) {
    Collective& comm = *rank.comm;
    const int W = comm.world_size();
    const int64_t piece = 4099;  // no multiple of anything
    const auto own = static_cast<float>(comm.rank() + 1);
    const size_t count = static_cast<size_t>(W * piece);

    const TensorView f32 = rank.New(DType::kF32, W * piece);
    rank.Set(f32, std::vector<float>(count, own));
    ASSERT_TRUE(comm.AllReduceSum(rank.exec, f32).ok());
    EXPECT_EQ(rank.Get<float>(f32), std::vector<float>(count, SumOfRanks(W)));

    const TensorView f64 = rank.New(DType::kF64, 2);
    rank.Set(f64, std::vector<double>{0.5, 1e-300});
    ASSERT_TRUE(comm.AllReduceSum(rank.exec, f64).ok());
    EXPECT_EQ(rank.Get<double>(f64)[0], 0.5 * W);

    const TensorView i32 = rank.New(DType::kI32, 4);
    rank.Set(i32, std::vector<int32_t>{comm.rank(), -comm.rank(), 7, 0});
    ASSERT_TRUE(comm.AllReduceMax(rank.exec, i32).ok());
    EXPECT_EQ(rank.Get<int32_t>(i32), (std::vector<int32_t>{W - 1, 0, 7, 0}));

    const TensorView bf16 = rank.New(DType::kBF16, W * piece);
    rank.Set(bf16, std::vector<uint16_t>(count, Bf16(own)));
    ASSERT_TRUE(comm.ReduceScatterSum(rank.exec, bf16).ok());
    const std::vector<uint16_t> scattered = rank.Get<uint16_t>(bf16);
    for (int64_t i = 0; i < piece; ++i) {
      ASSERT_EQ(FromBf16(scattered[static_cast<size_t>(comm.rank() * piece + i)]), SumOfRanks(W));
    }
    ASSERT_TRUE(comm.AllGather(rank.exec, bf16).ok());
    EXPECT_EQ(rank.Get<uint16_t>(bf16), std::vector<uint16_t>(count, Bf16(SumOfRanks(W))));

    const TensorView bytes = rank.New(DType::kE4M3, int64_t{W} * 5);
    rank.Set(bytes, std::vector<uint8_t>(static_cast<size_t>(W) * 5, uint8_t(comm.rank() + 1)));
    ASSERT_TRUE(comm.AllGather(rank.exec, bytes).ok());
    const std::vector<uint8_t> gathered = rank.Get<uint8_t>(bytes);
    for (size_t i = 0; i < gathered.size(); ++i) {
      EXPECT_EQ(gathered[i], i / 5 + 1);
    }

    // Piece p of rank r, 5 bytes of 16 r + p, goes to rank p.
    std::vector<uint8_t> pieces(static_cast<size_t>(W) * 5);
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i] = static_cast<uint8_t>(16 * static_cast<size_t>(comm.rank()) + i / 5);
    }
    const TensorView received = rank.New(DType::kE4M3, int64_t{W} * 5);
    rank.Set(bytes, pieces);
    ASSERT_TRUE(comm.AllToAll(rank.exec, bytes, received).ok());
    const std::vector<uint8_t> exchanged = rank.Get<uint8_t>(received);
    for (size_t i = 0; i < exchanged.size(); ++i) {
      EXPECT_EQ(exchanged[i], 16 * (i / 5) + static_cast<size_t>(comm.rank()));
    }
  });
}

TEST_F(NcclTest, Group_IsDoneAfterItsEnd) {
  OnEveryGpu([](Rank& rank) {
    Collective& comm = *rank.comm;
    const int W = comm.world_size();
    const TensorView sums = rank.New(DType::kF64, 2);
    const TensorView control = rank.New(DType::kI32, 4);
    rank.Set(sums, std::vector<double>{1, 2});
    rank.Set(control, std::vector<int32_t>{0, comm.rank() == W - 1 ? 1 : 0, 0, 0});
    ASSERT_TRUE(comm.GroupBegin().ok());
    EXPECT_EQ(comm.GroupBegin().code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_TRUE(comm.AllReduceSum(rank.exec, sums).ok());
    ASSERT_TRUE(comm.AllReduceMax(rank.exec, control).ok());
    ASSERT_TRUE(comm.GroupEnd().ok());
    EXPECT_EQ(comm.GroupEnd().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(rank.Get<double>(sums), (std::vector<double>{1.0 * W, 2.0 * W}));
    EXPECT_EQ(rank.Get<int32_t>(control), (std::vector<int32_t>{0, 1, 0, 0}));
  });
}

// The tensors of a step recorded twice: as they are, and on a second stream that is forked from and
// joined to the recorded one.
struct Step {
  TensorView f32, bf16, gathered, sent, received, sums, control;
};

Step NewStep(Rank& rank, int ranks, int64_t n) {
  Step step;
  step.f32 = rank.New(DType::kF32, n);
  step.bf16 = rank.New(DType::kBF16, n * ranks);
  step.gathered = rank.New(DType::kF32, ranks);
  step.sent = rank.New(DType::kF32, ranks);
  step.received = rank.New(DType::kF32, ranks);
  step.sums = rank.New(DType::kF64, 2);
  step.control = rank.New(DType::kI32, 4);
  return step;
}

absl::Status LaunchStep(Collective& comm, const kernels::Exec& exec, const Step& step) {
  absl::Status status = comm.AllReduceSum(exec, step.f32);
  status.Update(comm.ReduceScatterSum(exec, step.bf16));
  status.Update(comm.AllGather(exec, step.gathered));
  status.Update(comm.GroupBegin());
  status.Update(comm.AllToAll(exec, step.sent, step.received));
  status.Update(comm.AllReduceSum(exec, step.sums));
  status.Update(comm.AllReduceMax(exec, step.control));
  status.Update(comm.GroupEnd());
  return status;
}

TEST_F(NcclTest, RecordedOnASecondStream_ReplaysThreeTimes) {
  OnEveryGpu([](Rank& rank) {
    Collective& comm = *rank.comm;
    const int W = comm.world_size();
    const int64_t n = 1 << 20;
    const auto count = static_cast<size_t>(n);
    const Step step = NewStep(rank, W, n);
    const TensorView stamps = rank.New(DType::kI64, 2);
    kernels::Exec beside = rank.exec;
    auto stream = kernels::NewStream(*rank.cuda, kernels::StreamPriority::kHigh);
    ASSERT_TRUE(stream.ok()) << stream.status();
    beside.stream = *stream;
    auto forked = kernels::Event::New(rank.exec, kernels::Event::Use::kOrder);
    auto joined = kernels::Event::New(rank.exec, kernels::Event::Use::kOrder);
    ASSERT_TRUE(forked.ok() && joined.ok());
    ASSERT_TRUE(LaunchStep(comm, beside, step).ok());
    ASSERT_TRUE(kernels::Synchronize(beside).ok());

    ASSERT_TRUE(kernels::Graph::Begin(rank.exec).ok());
    absl::Status recorded = kernels::StampTime(rank.exec, stamps.as<uint64_t>());
    recorded.Update((*forked)->Record(rank.exec));
    recorded.Update(kernels::StreamWait(beside, **forked));
    recorded.Update(LaunchStep(comm, beside, step));
    recorded.Update((*joined)->Record(beside));
    recorded.Update(kernels::StreamWait(rank.exec, **joined));
    recorded.Update(kernels::StampTime(rank.exec, stamps.as<uint64_t>() + 1));
    auto graph = kernels::Graph::End(rank.exec, "a step's collectives");
    ASSERT_TRUE(recorded.ok()) << recorded;
    ASSERT_TRUE(graph.ok()) << graph.status();

    for (int replay = 1; replay <= 3; ++replay) {
      const auto own = static_cast<float>((comm.rank() + 1) * replay);
      rank.Set(step.f32, std::vector<float>(count, own));
      rank.Set(step.bf16, std::vector<uint16_t>(count * static_cast<size_t>(W), Bf16(own)));
      std::vector<float> pieces(static_cast<size_t>(W), -1.0F);
      pieces[static_cast<size_t>(comm.rank())] = own;
      rank.Set(step.gathered, pieces);
      rank.Set(step.sent, std::vector<float>(static_cast<size_t>(W), own));
      rank.Set(step.sums, std::vector<double>{own, 1.0});
      rank.Set(step.control, std::vector<int32_t>{comm.rank() * replay, 0, 0, 0});
      ASSERT_TRUE((*graph)->Launch(rank.exec).ok());
      const float sum = SumOfRanks(W) * static_cast<float>(replay);
      EXPECT_EQ(rank.Get<float>(step.f32), std::vector<float>(count, sum));
      const std::vector<uint16_t> scattered = rank.Get<uint16_t>(step.bf16);
      const size_t begin = count * static_cast<size_t>(comm.rank());
      EXPECT_EQ(FromBf16(scattered[begin]), sum);
      EXPECT_EQ(FromBf16(scattered[begin + count - 1]), sum);
      const std::vector<float> gathered = rank.Get<float>(step.gathered);
      for (int r = 0; r < W; ++r) {
        EXPECT_EQ(gathered[static_cast<size_t>(r)], static_cast<float>((r + 1) * replay));
      }
      EXPECT_EQ(rank.Get<float>(step.received), gathered) << "each rank sent its number to all";
      EXPECT_EQ(rank.Get<double>(step.sums), (std::vector<double>{sum, 1.0 * W}));
      EXPECT_EQ(rank.Get<int32_t>(step.control)[0], (W - 1) * replay);
      const std::vector<uint64_t> times = rank.Get<uint64_t>(stamps);
      EXPECT_GT(times[0], 0U);
      EXPECT_GE(times[1], times[0]);
    }
    // A span between replays: recorded and plain operations on one communicator.
    std::vector<float> span = {1.0F};
    ASSERT_TRUE(comm.AllReduceSum(absl::MakeSpan(span)).ok());
    EXPECT_EQ(span[0], static_cast<float>(W));
    graph->reset();
    kernels::DeleteStream(beside.stream);
  });
}

// To whoever waits, all is well: only time tells.
TEST_F(NcclTest, PeersThatAreLate_LeaveTheEventOpenAndTheTransportWell) {
  absl::Notification looked;
  OnEveryGpu([&looked](Rank& rank) {
    Collective& comm = *rank.comm;
    const TensorView data = rank.New(DType::kF32, 1024);
    auto event = kernels::Event::New(rank.exec, kernels::Event::Use::kOrder);
    ASSERT_TRUE(event.ok()) << event.status();
    EXPECT_TRUE((*event)->Done().value_or(false)) << "nothing was recorded";
    EXPECT_TRUE(comm.AllReduceSum(rank.exec, data).ok());
    EXPECT_TRUE(kernels::Synchronize(rank.exec).ok());
    EXPECT_TRUE(comm.Barrier().ok());
    if (comm.rank() > 0) {
      looked.WaitForNotification();
    }
    EXPECT_TRUE(comm.AllReduceSum(rank.exec, data).ok());
    EXPECT_TRUE((*event)->Record(rank.exec).ok());
    if (comm.rank() == 0) {
      EXPECT_FALSE((*event)->Done().value_or(true));
      EXPECT_TRUE(comm.Health().ok()) << comm.Health();
      looked.Notify();
    }
    EXPECT_TRUE((*event)->Wait().ok());
    EXPECT_TRUE((*event)->Done().value_or(false));
    EXPECT_TRUE(comm.Health().ok()) << comm.Health();
  });
}

TEST_F(NcclTest, WrongTensors_AreRefusedAndHarmNothing) {
  OnEveryGpu([](Rank& rank) {
    Collective& comm = *rank.comm;
    const TensorView ints = rank.New(DType::kI32, 3);
    EXPECT_TRUE(absl::IsInvalidArgument(comm.AllReduceSum(rank.exec, ints)));
    EXPECT_TRUE(absl::IsInvalidArgument(
        comm.AllGather(rank.exec, rank.New(DType::kF32, comm.world_size() + 1))));
    EXPECT_FALSE(comm.AllReduceSum(kernels::Exec(), rank.New(DType::kF32, 4)).ok());
    EXPECT_TRUE(comm.AllReduceSum(rank.exec, TensorView(ints.data, DType::kF32, {0})).ok());
    EXPECT_TRUE(comm.Barrier().ok());
  });
}

TEST_F(NcclTest, RankNeverComes_DeadlineNamesIt) {
  LocalKeyValueStore store;
  Rank rank(0);
  ASSERT_TRUE(rank.status.ok()) << rank.status;
  const absl::Duration begin = Clock::Real().Monotonic();
  const auto comm = Connect(rank, 0, 2, store, absl::Seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(comm.status())) << comm.status();
  EXPECT_THAT(std::string(comm.status().message()), HasSubstr("rank 0 of 2 on "));
  EXPECT_THAT(std::string(comm.status().message()), HasSubstr("rank 1 did not come"));
  EXPECT_THAT(std::string(comm.status().message()),
              HasSubstr("(GPU " + rank.cuda->gpu().pci_bus_id + ")"));
  EXPECT_LT(Clock::Real().Monotonic() - begin, absl::Seconds(3));
}

// The peer says that it is there and dies: NCCL itself waits.
TEST_F(NcclTest, PeerGoneBeforeNccl_DeadlineAndAbort) {
  LocalKeyValueStore store;
  ASSERT_TRUE(store.Put("nccl/rank/1", "elsewhere").ok());
  Rank rank(0);
  ASSERT_TRUE(rank.status.ok()) << rank.status;
  const absl::Duration begin = Clock::Real().Monotonic();
  const auto comm = Connect(rank, 0, 2, store, absl::Seconds(2));
  EXPECT_TRUE(absl::IsDeadlineExceeded(comm.status())) << comm.status();
  EXPECT_THAT(std::string(comm.status().message()), HasSubstr("rank 0 of 2 on "));
  // 2 s until the deadline, at most 5 s until an abort is left to itself.
  EXPECT_LT(Clock::Real().Monotonic() - begin, absl::Seconds(9));
}

TEST_F(NcclTest, IdOfAnotherSize_IsRefused) {
  LocalKeyValueStore store;
  ASSERT_TRUE(store.Put("nccl/rank/0", "elsewhere").ok());
  ASSERT_TRUE(store.Put("nccl/id", "too short").ok());
  Rank rank(1);
  ASSERT_TRUE(rank.status.ok()) << rank.status;
  const auto comm = Connect(rank, 1, 2, store, absl::Seconds(3));
  EXPECT_TRUE(absl::IsInvalidArgument(comm.status())) << comm.status();
  EXPECT_THAT(std::string(comm.status().message()), HasSubstr("9 bytes"));
}

}  // namespace
}  // namespace hearth::trainer
