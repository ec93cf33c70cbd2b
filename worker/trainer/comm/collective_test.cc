#include "worker/trainer/comm/collective.h"

#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;

using RankBody = std::function<void(Collective&)>;

std::vector<std::unique_ptr<Collective>> ConnectGloo(
    int world_size, absl::Duration operation_timeout = absl::Seconds(20)) {
  LocalKeyValueStore store;
  std::vector<std::unique_ptr<Collective>> ranks(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int r = 0; r < world_size; ++r) {
    threads.emplace_back([&, r] {
      GlooOptions options;
      options.rank = r;
      options.world_size = world_size;
      options.rendezvous_timeout = absl::Seconds(20);
      options.operation_timeout = operation_timeout;
      auto comm = NewGlooCollective(options, store);
      ASSERT_TRUE(comm.ok()) << comm.status();
      ranks[static_cast<size_t>(r)] = *std::move(comm);
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  return ranks;
}

void OnEveryRank(std::vector<std::unique_ptr<Collective>>& ranks, const RankBody& body) {
  std::vector<std::thread> threads;
  for (auto& comm : ranks) {
    threads.emplace_back([&body, &comm] {
      ASSERT_NE(comm, nullptr);
      body(*comm);
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
}

std::vector<float> RandomFloats(int seed, size_t n) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) {
    v = normal(random);
  }
  return values;
}

class CollectiveTest : public ::testing::TestWithParam<std::pair<const char*, int>> {
 protected:
  static std::vector<std::unique_ptr<Collective>> Connect() {
    const auto [transport, size] = GetParam();
    return std::strcmp(transport, "gloo") == 0 ? ConnectGloo(size) : NewThreadCollectives(size);
  }
};

TEST_P(CollectiveTest, AllOperations_GiveTheResultOnEveryRank) {
  auto ranks = Connect();
  const int W = GetParam().second;
  OnEveryRank(ranks, [W](Collective& comm) {
    const int r = comm.rank();
    EXPECT_EQ(comm.world_size(), W);
    EXPECT_EQ(comm.transport(), GetParam().first);
    std::vector<float> floats = {1.0f * static_cast<float>(r), 2.0f};
    ASSERT_TRUE(comm.AllReduceSum(absl::MakeSpan(floats)).ok());
    const int ranks_sum = W * (W - 1) / 2;
    EXPECT_EQ(floats[0], static_cast<float>(ranks_sum));
    EXPECT_EQ(floats[1], 2.0f * static_cast<float>(W));
    std::vector<double> doubles(3, 0.25);
    ASSERT_TRUE(comm.AllReduceSum(absl::MakeSpan(doubles)).ok());
    EXPECT_EQ(doubles[2], 0.25 * W);
    std::vector<int32_t> ints = {-r, r};
    ASSERT_TRUE(comm.AllReduceMax(absl::MakeSpan(ints)).ok());
    EXPECT_EQ(ints, (std::vector<int32_t>{0, W - 1}));
    std::vector<uint64_t> words = {static_cast<uint64_t>(r) << 40};
    ASSERT_TRUE(comm.AllReduceMax(absl::MakeSpan(words)).ok());
    EXPECT_EQ(words[0], static_cast<uint64_t>(W - 1) << 40);
    ASSERT_TRUE(comm.Barrier().ok());
    for (int root = 0; root < W; ++root) {
      const auto text = BroadcastString(comm, "from " + std::to_string(r), root);
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, "from " + std::to_string(root));
    }
    EXPECT_EQ(*BroadcastString(comm, "", 0), "");
    EXPECT_TRUE(comm.AllReduceSum(absl::Span<float>()).ok());
  });
}

TEST_P(CollectiveTest, Tensors_SumsPiecesAndGroups) {
  auto ranks = Connect();
  const int W = GetParam().second;
  OnEveryRank(ranks, [W](Collective& comm) {
    const kernels::Exec exec;
    const int r = comm.rank();
    const auto own = static_cast<float>(r + 1);
    const int owns = W * (W + 1) / 2;
    const auto sum = static_cast<float>(owns);
    const int64_t piece = 1001;
    std::vector<float> f32(static_cast<size_t>(W * piece), own);
    ASSERT_TRUE(comm.AllReduceSum(exec, kernels::View(f32.data(), {W, piece})).ok());
    EXPECT_EQ(f32, std::vector<float>(f32.size(), sum));

    std::vector<float> scattered(f32.size(), own);
    const kernels::TensorView view = kernels::View(scattered.data(), {W * piece});
    ASSERT_TRUE(comm.ReduceScatterSum(exec, view).ok());
    for (int64_t i = r * piece; i < (r + 1) * piece; ++i) {
      ASSERT_EQ(scattered[static_cast<size_t>(i)], sum);
      scattered[static_cast<size_t>(i)] = own;
    }
    ASSERT_TRUE(comm.AllGather(exec, view).ok());
    for (int64_t i = 0; i < W * piece; ++i) {
      const int64_t from = i / piece;
      ASSERT_EQ(scattered[static_cast<size_t>(i)], static_cast<float>(from + 1));
    }
    std::vector<uint8_t> bytes(static_cast<size_t>(W), 0xFF);
    bytes[static_cast<size_t>(r)] = static_cast<uint8_t>(r);
    ASSERT_TRUE(comm.AllGather(exec, kernels::View(bytes.data(), {W})).ok());
    for (int i = 0; i < W; ++i) {
      EXPECT_EQ(bytes[static_cast<size_t>(i)], i);
    }

    // Piece p of rank r, 7 bytes of 16 r + p, goes to rank p.
    const int64_t length = 7;
    std::vector<uint8_t> sent(static_cast<size_t>(W * length));
    std::vector<uint8_t> received(sent.size(), 0xFF);
    for (int64_t i = 0; i < W * length; ++i) {
      sent[static_cast<size_t>(i)] = static_cast<uint8_t>(int64_t{16} * r + i / length);
    }
    const std::vector<uint8_t> before = sent;
    ASSERT_TRUE(comm.AllToAll(exec, kernels::View(sent.data(), {W, length}),
                              kernels::View(received.data(), {W, length}))
                    .ok());
    for (int64_t i = 0; i < W * length; ++i) {
      ASSERT_EQ(received[static_cast<size_t>(i)], 16 * (i / length) + r);
    }
    EXPECT_EQ(sent, before);

    std::vector<double> sums = {0.5, static_cast<double>(r)};
    std::vector<int32_t> control = {0, r, -r, 0};
    ASSERT_TRUE(comm.GroupBegin().ok());
    ASSERT_TRUE(comm.AllReduceSum(exec, kernels::View(sums.data(), {2})).ok());
    ASSERT_TRUE(comm.AllReduceMax(exec, kernels::View(control.data(), {4})).ok());
    ASSERT_TRUE(comm.GroupEnd().ok());
    EXPECT_EQ(sums, (std::vector<double>{0.5 * W, W * (W - 1) / 2.0}));
    EXPECT_EQ(control, (std::vector<int32_t>{0, W - 1, 0, 0}));
  });
}

TEST_P(CollectiveTest, WrongTensors_AreRefusedAndHarmNothing) {
  auto ranks = Connect();
  const int W = GetParam().second;
  OnEveryRank(ranks, [W](Collective& comm) {
    const kernels::Exec exec;
    std::vector<float> data(static_cast<size_t>(W + 1));
    const kernels::TensorView uneven = kernels::View(data.data(), {W + 1});
    EXPECT_TRUE(absl::IsInvalidArgument(comm.ReduceScatterSum(exec, uneven)));
    EXPECT_TRUE(absl::IsInvalidArgument(comm.AllGather(exec, uneven)));
    std::vector<float> other(static_cast<size_t>(2 * W));
    const kernels::TensorView even = kernels::View(data.data(), {W});
    EXPECT_TRUE(absl::IsInvalidArgument(comm.AllToAll(exec, uneven, uneven)));
    EXPECT_TRUE(absl::IsInvalidArgument(
        comm.AllToAll(exec, even, kernels::View(other.data(), {int64_t{2} * W}))));
    EXPECT_TRUE(absl::IsInvalidArgument(comm.AllReduceMax(exec, uneven)));
    const kernels::TensorView bf16(data.data(), kernels::DType::kBF16, {W});
    EXPECT_TRUE(absl::IsInvalidArgument(comm.AllReduceSum(exec, bf16)));
    const kernels::TensorView absent(static_cast<void*>(nullptr), kernels::DType::kF32, {W});
    EXPECT_TRUE(absl::IsInvalidArgument(comm.AllReduceSum(exec, absent)));
    EXPECT_TRUE(comm.AllReduceSum(exec, kernels::View(data.data(), {0})).ok());
    EXPECT_TRUE(comm.Barrier().ok());
  });
}

TEST_P(CollectiveTest, AllReduceSum_Repeated_SameBitsOnAllRanks) {
  const int W = GetParam().second;
  const size_t n = 700001;  // several segments, not a multiple of anything
  std::vector<float> first;
  for (int repetition = 0; repetition < 3; ++repetition) {
    auto ranks = Connect();
    std::vector<std::vector<float>> sums(static_cast<size_t>(W));
    OnEveryRank(ranks, [&](Collective& comm) {
      std::vector<float> data = RandomFloats(comm.rank(), n);
      ASSERT_TRUE(comm.AllReduceSum(absl::MakeSpan(data)).ok());
      sums[static_cast<size_t>(comm.rank())] = std::move(data);
    });
    if (repetition == 0) {
      first = sums[0];
    }
    for (const auto& sum : sums) {
      ASSERT_EQ(sum.size(), n);
      // Bit for bit, as two zeros of different signs would not be.
      // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
      EXPECT_EQ(std::memcmp(sum.data(), first.data(), n * sizeof(float)), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         CollectiveTest,
                         ::testing::Values(std::pair("gloo", 2),
                                           std::pair("gloo", 3),
                                           std::pair("gloo", 4),
                                           std::pair("threads", 2),
                                           std::pair("threads", 3)),
                         [](const auto& tested) {
                           return std::string(tested.param.first) +
                                  std::to_string(tested.param.second);
                         });

TEST(SoloCollective, Operations_AreTheIdentity) {
  const auto comm = NewSoloCollective();
  std::vector<float> data = {3.0f};
  EXPECT_TRUE(comm->AllReduceSum(absl::MakeSpan(data)).ok());
  EXPECT_EQ(data[0], 3.0f);
  EXPECT_EQ(*BroadcastString(*comm, "x", 0), "x");
  const kernels::TensorView view = kernels::View(data.data(), {1});
  EXPECT_TRUE(comm->ReduceScatterSum(kernels::Exec(), view).ok());
  EXPECT_TRUE(comm->AllGather(kernels::Exec(), view).ok());
  EXPECT_EQ(data[0], 3.0f);
  EXPECT_TRUE(absl::IsInvalidArgument(comm->AllReduceMax(kernels::Exec(), view)));
  float received = 0;
  EXPECT_TRUE(comm->AllToAll(kernels::Exec(), view, kernels::View(&received, {1})).ok());
  EXPECT_EQ(received, 3.0f);
}

TEST(GlooCollective, PeerMissing_DeadlineNamesIt) {
  LocalKeyValueStore store;
  GlooOptions options;
  options.rank = 0;
  options.world_size = 2;
  options.gather_timeout = absl::Milliseconds(50);
  const auto comm = NewGlooCollective(options, store);
  EXPECT_TRUE(absl::IsDeadlineExceeded(comm.status())) << comm.status();
  EXPECT_THAT(std::string(comm.status().message()), HasSubstr("rank 0 of 2"));
  EXPECT_THAT(std::string(comm.status().message()), HasSubstr("rank 1 did not come"));
}

TEST(GlooCollective, ForeignAddress_Refused) {
  LocalKeyValueStore store;
  GlooOptions options;
  options.world_size = 2;
  options.advertise_host = "203.0.113.7";
  EXPECT_TRUE(absl::IsInvalidArgument(NewGlooCollective(options, store).status()));
}

TEST(GlooCollective, RanksThatCallDifferentOperations_AreToldSo) {
  auto ranks = ConnectGloo(2);
  OnEveryRank(ranks, [](Collective& comm) {
    std::vector<float> data(comm.rank() == 0 ? 1000 : 2000);
    const absl::Status status = comm.AllReduceSum(absl::MakeSpan(data));
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the ranks call different operations"));
  });
}

TEST(GlooCollective, PeerThatTakesNoPart_IsNamedAtTheDeadline) {
  auto ranks = ConnectGloo(3, absl::Milliseconds(50));
  std::vector<float> data(1000);
  const absl::Status status = ranks[0]->AllReduceSum(absl::MakeSpan(data));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (127.0.0.1:"));
}

TEST(GlooCollective, PeerGone_IsAnErrorNamingThisRank) {
  auto ranks = ConnectGloo(2);
  ranks[1].reset();
  std::vector<float> data(1000);
  const absl::Status status = ranks[0]->AllReduceSum(absl::MakeSpan(data));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 of 2 on "));
}

}  // namespace
}  // namespace hearth::trainer
