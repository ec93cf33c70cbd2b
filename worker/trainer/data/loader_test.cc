#include "worker/trainer/data/loader.h"

#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "common/dataset/dataset_writer.h"
#include "common/spec/plan/batch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::trainer {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kT = 8;

class LoaderTest : public ::testing::Test {
 protected:
  // A dataset whose token i is base + i, in shards of 50.
  std::string Make(const std::string& name, int32_t tokens, int32_t base) {
    dataset::DatasetWriter::Options options;
    options.info.vocab = 100000;
    options.shard_tokens = 50;
    auto writer = dataset::DatasetWriter::Create(dir_ + "/" + name, options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    std::vector<int32_t> all(static_cast<size_t>(tokens));
    for (int32_t i = 0; i < tokens; ++i) {
      all[static_cast<size_t>(i)] = base + i;
    }
    EXPECT_TRUE((*writer)->AddDocument(all).ok());
    EXPECT_TRUE((*writer)->Finish().ok());
    return dir_ + "/" + name;
  }

  // One with the documents {10, 11, 99}, {20, 21, 22, 23, 99}, {30, 99}, ... of these lengths,
  // whose end token is 99.
  std::string MakeDocuments(const std::string& name, const std::vector<int32_t>& lengths) {
    dataset::DatasetWriter::Options options;
    options.info.vocab = 100;
    options.info.eos = 99;
    options.shard_tokens = 7;
    auto writer = dataset::DatasetWriter::Create(dir_ + "/" + name, options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (size_t d = 0; d < lengths.size(); ++d) {
      std::vector<int32_t> tokens(static_cast<size_t>(lengths[d] - 1));
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = static_cast<int32_t>((10 * (d + 1) + i) % 99);
      }
      EXPECT_TRUE((*writer)->AddDocument(tokens).ok());
    }
    EXPECT_TRUE((*writer)->Finish().ok());
    return dir_ + "/" + name;
  }

  static LoaderOptions Options(std::vector<LoaderOptions::Source> sources) {
    LoaderOptions options;
    options.sources = std::move(sources);
    options.sequence_length = kT;
    options.vocab = 100000;
    options.seed = 7;
    return options;
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
};

struct Batch {
  explicit Batch(int64_t samples)
      : tokens(samples * kT),
        targets(samples * kT),
        position(samples * kT),
        start(samples * kT),
        source(samples),
        loss_weight(samples * kT) {}
  BatchBuffers buffers() {
    return {tokens.data(),   targets.data(), loss_weight.data(),
            position.data(), start.data(),   source.data()};
  }
  std::vector<int32_t> tokens, targets, position, start, source;
  std::vector<float> loss_weight;
};

// The micro-batches of step 5 of all ranks, 24 samples together.
void ForEachBatch(const Loader& loader,
                  int micro,
                  int world,
                  const std::function<void(const Batch&)>& take) {
  const auto plan = spec::MakeBatchPlan(int64_t{24} * kT, micro, kT, world);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int rank = 0; rank < world; ++rank) {
    for (int64_t m = rank; m < plan->micro_batches; m += world) {
      Batch batch(micro);
      ASSERT_TRUE(loader.Fill(plan->FirstSample(5, m), micro, batch.buffers()).ok());
      take(batch);
    }
  }
}

TEST_F(LoaderTest, Fill_NoShuffle_ReadsFrontToBackAndAgain) {
  LoaderOptions options = Options({{Make("a", 81, 100), 1}});
  options.shuffle = false;
  const auto loader = Loader::Open(options);
  ASSERT_TRUE(loader.ok()) << loader.status();
  Batch batch(25);
  ASSERT_TRUE((*loader)->Fill(0, 25, batch.buffers()).ok());
  for (int s = 0; s < 25; ++s) {
    for (int t = 0; t < kT; ++t) {
      const int i = s * kT + t;
      EXPECT_EQ(batch.tokens[i], 100 + s % 10 * kT + t);
      EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
      EXPECT_EQ(batch.position[i], t);
      EXPECT_EQ(batch.start[i], 0);
      EXPECT_EQ(batch.loss_weight[i], 1.0f);
    }
  }
  EXPECT_EQ((*loader)->PassesBegun(0), 0);
  EXPECT_EQ((*loader)->PassesBegun(1), 1);
  EXPECT_EQ((*loader)->PassesBegun(10), 1);
  EXPECT_EQ((*loader)->PassesBegun(11), 2);
}

TEST_F(LoaderTest, Locate_Shuffled_EachPassHasEachWindowOnceInAnotherOrder) {
  const auto loader = Loader::Open(Options({{Make("a", 1000, 0), 1}}));
  ASSERT_TRUE(loader.ok()) << loader.status();
  const int64_t windows = 999 / kT;
  std::vector<std::vector<int64_t>> orders;
  for (int64_t pass = 0; pass < 3; ++pass) {
    std::set<int64_t> seen;
    orders.emplace_back();
    for (int64_t i = 0; i < windows; ++i) {
      const Loader::Location at = (*loader)->Locate(pass * windows + i);
      EXPECT_EQ(at.pass, pass);
      seen.insert(at.window);
      orders.back().push_back(at.window);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), windows);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST_F(LoaderTest, Locate_OtherSeed_OtherOrder) {
  LoaderOptions options = Options({{Make("a", 1000, 0), 1}});
  const auto one = Loader::Open(options);
  options.seed = 8;
  const auto two = Loader::Open(options);
  int same = 0;
  for (int64_t i = 0; i < 100; ++i) {
    same += (*one)->Locate(i).window == (*two)->Locate(i).window;
  }
  EXPECT_LT(same, 10);
}

TEST_F(LoaderTest, Locate_Mixture_KeepsSharesInEveryWindow) {
  const auto loader = Loader::Open(Options(
      {{Make("a", 500, 0), 0.7}, {Make("b", 300, 1000), 0.25}, {Make("c", 90, 2000), 0.05}}));
  ASSERT_TRUE(loader.ok()) << loader.status();
  const double weights[] = {0.7, 0.25, 0.05};
  std::map<int, int64_t> counts;
  for (int64_t n = 0; n < 140000; ++n) {
    ++counts[(*loader)->Locate(n).source];
    if ((n + 1) % 1000 == 0) {
      for (int i = 0; i < 3; ++i) {
        EXPECT_NEAR(static_cast<double>(counts[i]), weights[i] * static_cast<double>(n + 1), 4.0)
            << n;
      }
    }
  }
}

TEST_F(LoaderTest, Locate_Mixture_EachSourceGoesThroughItsPassesWithoutGaps) {
  const auto loader = Loader::Open(Options({{Make("a", 500, 0), 3}, {Make("b", 300, 1000), 1}}));
  ASSERT_TRUE(loader.ok()) << loader.status();
  std::map<std::pair<int, int64_t>, std::set<int64_t>> seen;
  std::map<int, int64_t> count;
  const int64_t windows[] = {499 / kT, 299 / kT};
  for (int64_t n = 0; n < 70000; ++n) {
    const Loader::Location at = (*loader)->Locate(n);
    EXPECT_EQ(at.pass, count[at.source]++ / windows[at.source]);
    EXPECT_TRUE(seen[std::make_pair(at.source, at.pass)].insert(at.window).second);
  }
  EXPECT_EQ((*loader)->PassesBegun(70000), (count[0] + windows[0] - 1) / windows[0]);
  for (const int source : {0, 1}) {
    EXPECT_DOUBLE_EQ((*loader)->PassesOf(source, 70000),
                     static_cast<double>(count[source]) / static_cast<double>(windows[source]));
  }
  EXPECT_EQ((*loader)->PassesOf(1, 0), 0.0);
}

TEST_F(LoaderTest, Fill_Mixture_SaysWhereEachSampleIsFrom) {
  const auto loader = Loader::Open(Options({{Make("a", 500, 0), 3}, {Make("b", 300, 1000), 1}}));
  ASSERT_TRUE(loader.ok()) << loader.status();
  Batch batch(40);
  ASSERT_TRUE((*loader)->Fill(100, 40, batch.buffers()).ok());
  int from_b = 0;
  for (size_t s = 0; s < 40; ++s) {
    EXPECT_EQ(batch.source[s], (*loader)->Locate(100 + static_cast<int64_t>(s)).source);
    EXPECT_EQ(batch.source[s], batch.tokens[s * kT] >= 1000 ? 1 : 0);
    from_b += batch.source[s];
  }
  EXPECT_NEAR(from_b, 10, 1);
  BatchBuffers without = batch.buffers();
  without.source = nullptr;
  EXPECT_TRUE((*loader)->Fill(0, 40, without).ok()) << "nobody asks";
}

TEST_F(LoaderTest, Fill_AnyWorldSizeAndMicroBatch_SameGlobalBatch) {
  const auto loader = Loader::Open(Options({{Make("a", 500, 0), 3}, {Make("b", 300, 1000), 1}}));
  ASSERT_TRUE(loader.ok()) << loader.status();
  std::set<std::multiset<int32_t>> batches;
  for (const auto& [micro, world] : {std::pair{24, 1}, {12, 2}, {4, 3}, {2, 5}, {1, 1}}) {
    std::multiset<int32_t> all;
    ForEachBatch(**loader, micro, world,
                 [&](const Batch& batch) { all.insert(batch.tokens.begin(), batch.tokens.end()); });
    EXPECT_EQ(all.size(), 24u * kT);
    batches.insert(all);
  }
  EXPECT_EQ(batches.size(), 1u);
}

using Ints = std::vector<int32_t>;
using Floats = std::vector<float>;

TEST_F(LoaderTest, Fill_Documents_PositionsBeginAgainAndNoTargetIsOfAnother) {
  LoaderOptions options = Options({{MakeDocuments("a", {3, 5, 2, 4, 3}), 1}});
  options.shuffle = false;
  options.documents = true;
  const auto loader = Loader::Open(options);
  ASSERT_TRUE(loader.ok()) << loader.status();
  Batch batch(2);
  ASSERT_TRUE((*loader)->Fill(0, 2, batch.buffers()).ok());
  EXPECT_EQ(batch.tokens, (Ints{10, 11, 99, 20, 21, 22, 23, 99,  //
                                30, 99, 40, 41, 42, 99, 50, 51}));
  EXPECT_EQ(batch.targets, (Ints{11, 99, 20, 21, 22, 23, 99, 30,  //
                                 99, 40, 41, 42, 99, 50, 51, 99}));
  EXPECT_EQ(batch.loss_weight, (Floats{1, 1, 0, 1, 1, 1, 1, 0,  //
                                       1, 0, 1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(batch.start, (Ints{0, 0, 0, 3, 3, 3, 3, 3,  //
                               0, 0, 2, 2, 2, 2, 6, 6}));
  EXPECT_EQ(batch.position, (Ints{0, 1, 2, 0, 1, 2, 3, 4,  //
                                  0, 1, 0, 1, 2, 3, 0, 1}));
  const auto seen = (*loader)->SeenShare();
  ASSERT_TRUE(seen.ok());
  // 6 + 15 of 36 pairs in one window, 3 + 10 + 3 in the other.
  EXPECT_DOUBLE_EQ(*seen, (21.0 + 16.0) / 72.0);
}

TEST_F(LoaderTest, Fill_BestFit_WholeDocumentsThenPadding) {
  LoaderOptions options = Options({{MakeDocuments("a", {3, 5, 2, 9, 3}), 1}});
  options.shuffle = false;
  options.packing = Packing::kBestFit;
  for (const bool documents : {false, true}) {
    SCOPED_TRACE(documents);
    options.documents = documents;
    const auto loader = Loader::Open(options);
    ASSERT_TRUE(loader.ok()) << loader.status();
    EXPECT_EQ((*loader)->samples_of_pass(), 3);
    Batch batch(3);
    ASSERT_TRUE((*loader)->Fill(0, 3, batch.buffers()).ok());
    EXPECT_EQ(batch.tokens, (Ints{10, 11, 99, 20, 21, 22, 23, 99,  //
                                  40, 41, 42, 43, 44, 45, 46, 47,  //
                                  30, 99, 50, 51, 99, 99, 99, 99}));
    EXPECT_EQ(batch.targets, (Ints{11, 99, 99, 21, 22, 23, 99, 99,  //
                                   41, 42, 43, 44, 45, 46, 47, 99,  //
                                   99, 99, 51, 99, 99, 99, 99, 99}));
    EXPECT_EQ(batch.loss_weight, (Floats{1, 1, 0, 1, 1, 1, 1, 0,  //
                                         1, 1, 1, 1, 1, 1, 1, 1,  //
                                         1, 0, 1, 1, 0, 0, 0, 0}));
    const Ints starts = {0, 0, 0, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 5, 5, 5};
    for (int i = 0; i < 24; ++i) {
      EXPECT_EQ(batch.start[i], documents ? starts[i] : 0) << i;
      EXPECT_EQ(batch.position[i], i % kT - batch.start[i]) << i;
    }
    EXPECT_EQ((*loader)->PassesBegun(3), 1);
    EXPECT_EQ((*loader)->PassesBegun(4), 2);
  }
}

// What a step trains on is a function of its number, whatever the ranks: so a resume needs the
// number alone.
TEST_F(LoaderTest, Fill_BestFitAnyWorldSizeAndMicroBatch_SameGlobalBatch) {
  Ints lengths;
  for (int i = 0; i < 200; ++i) {
    lengths.push_back(2 + i * 7 % 11);
  }
  LoaderOptions options = Options({{MakeDocuments("a", lengths), 1}});
  options.packing = Packing::kBestFit;
  options.documents = true;
  std::set<std::multiset<Ints>> batches;
  for (const auto& [micro, world] : {std::pair{24, 1}, {12, 2}, {4, 3}, {2, 5}, {1, 1}}) {
    const auto loader = Loader::Open(options);
    ASSERT_TRUE(loader.ok()) << loader.status();
    std::multiset<Ints> all;
    ForEachBatch(**loader, micro, world, [&](const Batch& batch) {
      for (size_t s = 0; s < batch.tokens.size(); s += kT) {
        const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(s);
        all.insert(Ints(begin, begin + kT));
      }
    });
    batches.insert(all);
  }
  EXPECT_EQ(batches.size(), 1u);
}

TEST_F(LoaderTest, Open_DocumentsWithoutEndToken_AreRefused) {
  LoaderOptions options = Options({{Make("a", 80, 0), 1}});
  options.documents = true;
  EXPECT_THAT(std::string(Loader::Open(options).status().message()),
              HasSubstr("/a: records no end token"));
  options.documents = false;
  options.packing = Packing::kBestFit;
  EXPECT_TRUE(absl::IsInvalidArgument(Loader::Open(options).status()));
}

TEST_F(LoaderTest, Open_BadInput_SaysWhat) {
  const std::string a = Make("a", 8, 0);
  EXPECT_THAT(std::string(Loader::Open(Options({{a, 1}})).status().message()),
              HasSubstr("8 tokens are fewer than data.sequence_length + 1 = 9"));
  const std::string b = Make("b", 80, 0);
  LoaderOptions options = Options({{b, 1}});
  options.vocab = 50;
  EXPECT_THAT(std::string(Loader::Open(options).status().message()),
              HasSubstr("vocabulary 100000 is larger than model.vocab 50"));
  EXPECT_TRUE(absl::IsInvalidArgument(Loader::Open(Options({})).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Loader::Open(Options({{b, 0}})).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Loader::Open(Options({{b, std::nan("")}})).status()));
  EXPECT_TRUE(absl::IsNotFound(Loader::Open(Options({{dir_ + "/none", 1}})).status()));
}

TEST_F(LoaderTest, Fill_TokenOutOfRange_NamesFileAndOffset) {
  std::string bytes;
  for (uint16_t i = 0; i < 40; ++i) {
    bytes.append(reinterpret_cast<const char*>(&i), 2);
  }
  ASSERT_TRUE(Env::Real().WriteFileAtomically(dir_ + "/r.bin", bytes).ok());
  LoaderOptions options = Options({{dir_ + "/r.bin", 1}});
  options.vocab = 30;
  options.shuffle = false;
  const auto loader = Loader::Open(options);
  ASSERT_TRUE(loader.ok()) << loader.status();
  Batch batch(4);
  EXPECT_TRUE((*loader)->Fill(0, 3, batch.buffers()).ok());
  const absl::Status bad = (*loader)->Fill(0, 4, batch.buffers());
  EXPECT_TRUE(absl::IsDataLoss(bad));
  EXPECT_THAT(std::string(bad.message()), HasSubstr("r.bin: token 30 at byte offset 60"));
}

// Tokens 1, 2, 3 ... in documents of these masks.
std::string MakeMasked(const std::string& path, const std::vector<std::string>& masks) {
  dataset::DatasetWriter::Options options;
  options.info.vocab = 100;
  options.info.loss_tokens = 0;
  options.shard_tokens = 5;
  auto writer = dataset::DatasetWriter::Create(path, options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  int32_t token = 0;
  for (const std::string& counts : masks) {
    std::string packed;
    std::string mask;
    for (const char c : counts) {
      dataset::AppendToken((*writer)->width(), ++token, &packed);
      mask.push_back(c == 'x' ? '\1' : '\0');
    }
    mask.back() = static_cast<char>(mask.back() | dataset::kMaskEnds);
    EXPECT_TRUE(
        (*writer)->AddPackedDocument(packed, static_cast<int64_t>(counts.size()), mask).ok());
  }
  EXPECT_TRUE((*writer)->Finish().ok());
  return path;
}

TEST_F(LoaderTest, Fill_Masked_CountsWhatTheMaskNames) {
  // The third document has nothing that counts, and the first token of the fourth is no target.
  LoaderOptions options =
      Options({{MakeMasked(dir_ + "/m", {"..x.x", "..xx", "...", "x...", "....x.......x"}), 1}});
  options.shuffle = false;
  options.documents = true;
  options.packing = Packing::kBestFit;
  options.loss_tokens = LossTokens::kMasked;
  const auto loader = Loader::Open(options);
  ASSERT_TRUE(loader.ok()) << loader.status();
  const int64_t windows = (*loader)->samples_of_pass();
  std::multiset<int32_t> counted;
  std::set<int32_t> read;
  Batch batch(windows);
  ASSERT_TRUE((*loader)->Fill(0, windows, batch.buffers()).ok());
  for (int64_t s = 0; s < windows; ++s) {
    float weight = 0;
    for (int64_t i = s * kT; i < (s + 1) * kT; ++i) {
      const auto k = static_cast<size_t>(i);
      weight += batch.loss_weight[k];
      read.insert(batch.tokens[k]);
      if (batch.loss_weight[k] > 0) {
        counted.insert(batch.targets[k]);
        EXPECT_EQ(batch.targets[k], batch.tokens[k] + 1);
      }
    }
    EXPECT_GT(weight, 0) << "sample " << s;
  }
  EXPECT_EQ(counted, (std::multiset<int32_t>{3, 5, 8, 9, 21, 29}));
  EXPECT_EQ(read.count(11) + read.count(14), 0u);
}

TEST_F(LoaderTest, Fill_MaskedWhereKnown_AsPlainTextOrByTheMask) {
  LoaderOptions options = Options({{MakeMasked(dir_ + "/m", {"..x.x", "x.xx", "....."}), 1}});
  options.shuffle = false;
  options.documents = true;
  for (const auto& [tokens, wanted] :
       {std::pair{LossTokens::kAll, std::vector<float>{1, 1, 1, 1, 0, 1, 1, 1}},
        {LossTokens::kMaskedWhereKnown, std::vector<float>{0, 1, 0, 1, 0, 0, 1, 1}}}) {
    options.loss_tokens = tokens;
    const auto loader = Loader::Open(options);
    ASSERT_TRUE(loader.ok()) << loader.status();
    Batch batch(1);
    ASSERT_TRUE((*loader)->Fill(0, 1, batch.buffers()).ok());
    EXPECT_EQ(batch.loss_weight, wanted);
    EXPECT_EQ(batch.start[6], 5);
  }
  options.sources[0].path = Make("plain", 40, 0);
  options.documents = false;
  EXPECT_TRUE(Loader::Open(options).ok());
  options.loss_tokens = LossTokens::kMasked;
  EXPECT_THAT(Loader::Open(options).status().ToString(), HasSubstr("plain: has no loss mask"));
}

TEST_F(LoaderTest, Fill_TextAmongMasked_AllOfTheTextCounts) {
  LoaderOptions options =
      Options({{MakeMasked(dir_ + "/m", {"..x.x", "x.xx", "....."}), 1}, {Make("text", 40, 0), 1}});
  options.shuffle = false;
  options.loss_tokens = LossTokens::kMasked;
  const auto loader = Loader::Open(options);
  ASSERT_TRUE(loader.ok()) << loader.status();
  Batch batch(2);
  ASSERT_TRUE((*loader)->Fill(0, 2, batch.buffers()).ok());
  // One sample of each, whichever comes first.
  const auto sum_of = [&](int64_t sample) {
    const auto first = batch.loss_weight.begin() + sample * kT;
    return std::accumulate(first, first + kT, 0.0F);
  };
  const int text = (*loader)->Locate(0).source == 1 ? 0 : 1;
  EXPECT_EQ((*loader)->Locate(text).source, 1);
  EXPECT_EQ(sum_of(text), kT);
  EXPECT_LT(sum_of(1 - text), kT);
}

}  // namespace
}  // namespace hearth::trainer
