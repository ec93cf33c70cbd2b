#include "worker/trainer/data/best_fit.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/dataset/dataset_writer.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::trainer {
namespace {

constexpr int32_t kEnd = 9;

class BestFitTest : public ::testing::Test {
 protected:
  // Documents of these lengths, end token included.
  std::unique_ptr<dataset::Dataset> Make(const std::vector<int64_t>& lengths) {
    dataset::DatasetWriter::Options options;
    options.info.vocab = 10;
    options.info.eos = kEnd;
    options.shard_tokens = 1000003;
    const std::string path = absl::StrCat(dir_, "/", made_++);
    auto writer = dataset::DatasetWriter::Create(path, options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    std::vector<int32_t> tokens;
    for (const int64_t length : lengths) {
      tokens.assign(static_cast<size_t>(length - 1), static_cast<int32_t>(length % 9));
      EXPECT_TRUE((*writer)->AddDocument(tokens).ok());
    }
    EXPECT_TRUE((*writer)->Finish().ok());
    return *dataset::Dataset::Open(path);
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  int made_ = 0;
};

// The lengths of web texts are near a log-normal distribution: most are short, a few are long.
std::vector<int64_t> RealisticLengths(int64_t documents, double median, double sigma) {
  std::mt19937_64 random(20261123);
  std::normal_distribution<double> normal(std::log(median), sigma);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < documents; ++i) {
    lengths.push_back(2 + std::llround(std::exp(normal(random))));
  }
  return lengths;
}

double LostShare(const BestFit& packed, int64_t room) {
  return 1.0 -
         static_cast<double>(packed.placed_tokens()) / static_cast<double>(packed.windows() * room);
}

TEST_F(BestFitTest, Pack_EachTargetIsInOneWindow) {
  constexpr int64_t kRoom = 17;
  std::vector<int64_t> lengths = RealisticLengths(3000, 12, 1.2);
  lengths.insert(lengths.end(), {1, 16, 17, 18, 19, 33, 34, 35, 1, 1, 170});
  const auto data = Make(lengths);
  const auto packed = BestFit::Pack(*data, kRoom, false);
  ASSERT_TRUE(packed.ok()) << packed.status();
  std::vector<int> targets(static_cast<size_t>(data->tokens()), 0);
  int64_t placed = 0;
  for (int64_t w = 0; w < packed->windows(); ++w) {
    int64_t used = 0;
    for (const Piece& piece : packed->Window(w)) {
      used += static_cast<int64_t>(piece.tokens);
      for (uint64_t i = 1; i < piece.tokens; ++i) {
        ++targets[static_cast<size_t>(piece.first + i)];
      }
    }
    EXPECT_GE(used, 2);
    EXPECT_LE(used, kRoom);
    placed += used;
  }
  EXPECT_EQ(placed, packed->placed_tokens());
  size_t at = 0;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i, ++at) {
      EXPECT_EQ(targets[at], i == 0 ? 0 : 1) << at;
    }
  }
}

TEST_F(BestFitTest, Pack_DocumentsThatFit_AreWhole) {
  const auto packed = BestFit::Pack(*Make({5, 7, 3, 10, 2, 4, 9}), 10, false);
  ASSERT_TRUE(packed.ok()) << packed.status();
  std::vector<std::vector<int64_t>> windows;
  for (int64_t w = 0; w < packed->windows(); ++w) {
    windows.emplace_back();
    for (const Piece& piece : packed->Window(w)) {
      windows.back().push_back(static_cast<int64_t>(piece.tokens));
    }
  }
  EXPECT_EQ(windows, (std::vector<std::vector<int64_t>>{{5, 4}, {7, 3}, {10}, {2}, {9}}))
      << "in the order of the longest document of each";
}

TEST_F(BestFitTest, Pack_RealisticLengths_LosesLessThanOnePercent) {
  const auto web = Make(RealisticLengths(6000, 380, 1.05));
  for (const int64_t room : {513, 1025, 2049, 4097}) {
    const auto packed = BestFit::Pack(*web, room, false);
    ASSERT_TRUE(packed.ok()) << packed.status();
    std::printf("room %ld: %ld windows, %.3f %% lost\n", static_cast<long>(room),
                static_cast<long>(packed->windows()), 100 * LostShare(*packed, room));
    EXPECT_LT(LostShare(*packed, room), 0.01) << room;
    EXPECT_GE(LostShare(*packed, room), 0.0) << room;
  }
}

TEST_F(BestFitTest, Pack_Twice_GivesTheSame) {
  const auto data = Make(RealisticLengths(2000, 40, 1.0));
  const auto one = BestFit::Pack(*data, 65, false);
  const auto two = BestFit::Pack(*data, 65, false);
  ASSERT_EQ(one->windows(), two->windows());
  for (int64_t w = 0; w < one->windows(); ++w) {
    ASSERT_EQ(one->Window(w).size(), two->Window(w).size());
    for (size_t i = 0; i < one->Window(w).size(); ++i) {
      EXPECT_EQ(one->Window(w)[i].first, two->Window(w)[i].first);
      EXPECT_EQ(one->Window(w)[i].tokens, two->Window(w)[i].tokens);
    }
  }
}

TEST_F(BestFitTest, Pack_NothingToPredict_IsAnError) {
  EXPECT_EQ(BestFit::Pack(*Make({1, 1, 1}), 9, false).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hearth::trainer
