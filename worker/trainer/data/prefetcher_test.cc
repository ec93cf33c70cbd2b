#include "worker/trainer/data/prefetcher.h"

#include <filesystem>

#include "gtest/gtest.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kT = 4;

class PrefetcherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "/prefetcher_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".bin";
    std::string bytes;
    for (uint16_t i = 0; i < 401; ++i) {
      bytes.append(reinterpret_cast<const char*>(&i), 2);
    }
    ASSERT_TRUE(Env::Real().WriteFileAtomically(path_, bytes).ok());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<Loader> Open(int32_t vocab) {
    LoaderOptions options;
    options.sources = {{path_, 1}};
    options.sequence_length = kT;
    options.vocab = vocab;
    options.shuffle = false;
    auto loader = Loader::Open(options);
    EXPECT_TRUE(loader.ok()) << loader.status();
    return *std::move(loader);
  }

  std::string path_;
};

struct Buffers {
  std::vector<int32_t> words = std::vector<int32_t>(size_t{8} * kT);
  std::vector<float> weights = std::vector<float>(2 * kT);
  BatchBuffers view() {
    int32_t* w = words.data();
    return {w, w + 2 * kT, weights.data(), w + 4 * kT, w + 6 * kT};
  }
};

// A prefetched micro-batch and its place.
struct Fetched {
  Buffers data;
  int64_t step = 0;
  int64_t m = -1;
  absl::Status Next(Prefetcher& prefetcher) { return prefetcher.Next(data.view(), &step, &m); }
};

TEST_F(PrefetcherTest, Next_TwoRanks_TakeTheirMicroBatchesInOrder) {
  const auto loader = Open(401);
  const spec::BatchPlan plan = {2, kT, 5, 2};
  for (int64_t rank = 0; rank < 2; ++rank) {
    Prefetcher prefetcher(*loader, plan, rank, /*first_step=*/3);
    Fetched got;
    Buffers want;
    for (int64_t step = 3; step < 9; ++step) {
      for (int64_t m = rank; m < 5; m += 2) {
        ASSERT_TRUE(got.Next(prefetcher).ok());
        EXPECT_EQ(got.step, step);
        EXPECT_EQ(got.m, m);
        ASSERT_TRUE(loader->Fill(plan.FirstSample(step, m), 2, want.view()).ok());
        EXPECT_EQ(got.data.words, want.words);
        EXPECT_EQ(got.data.weights, want.weights);
      }
    }
    EXPECT_GE(prefetcher.TakeWaitSeconds(), 0.0);
    EXPECT_EQ(prefetcher.TakeWaitSeconds(), 0.0);
  }
}

TEST_F(PrefetcherTest, Next_BadToken_ReturnsTheErrorEachTime) {
  const auto loader = Open(12);
  Prefetcher prefetcher(*loader, {1, kT, 1, 1}, 0, 1);
  Fetched got;
  ASSERT_TRUE(got.Next(prefetcher).ok());
  ASSERT_TRUE(got.Next(prefetcher).ok());
  EXPECT_TRUE(absl::IsDataLoss(got.Next(prefetcher)));
  EXPECT_TRUE(absl::IsDataLoss(got.Next(prefetcher)));
}

TEST_F(PrefetcherTest, Rewind_AnyPlace_GivesTheStepAgain) {
  const auto loader = Open(401);
  const spec::BatchPlan plan = {2, kT, 5, 2};
  Prefetcher prefetcher(*loader, plan, 1, 1);
  Fetched got;
  Buffers want;
  for (int taken = 0; taken < 6; ++taken) {
    for (int i = 0; i < taken; ++i) {
      ASSERT_TRUE(got.Next(prefetcher).ok());
    }
    prefetcher.Rewind(2);
    for (const int64_t want_m : {1, 3}) {
      ASSERT_TRUE(got.Next(prefetcher).ok());
      EXPECT_EQ(got.step, 2);
      EXPECT_EQ(got.m, want_m);
      ASSERT_TRUE(loader->Fill(plan.FirstSample(2, got.m), 2, want.view()).ok());
      EXPECT_EQ(got.data.words, want.words);
    }
  }
}

TEST_F(PrefetcherTest, Next_RankWithoutWork_Refused) {
  const auto loader = Open(401);
  Prefetcher prefetcher(*loader, {1, kT, 1, 2}, 1, 1);
  Fetched got;
  EXPECT_TRUE(absl::IsFailedPrecondition(got.Next(prefetcher)));
}

}  // namespace
}  // namespace hearth::trainer
