#include "common/spec/plan/gradient_buckets.h"

#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "common/spec/model/model_shape.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/resolve/resolve.h"
#include "gtest/gtest.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {
namespace {

v1::ModelSpec RandomModel(std::mt19937_64& random) {
  const auto pick = [&](int lo, int hi) {
    return std::uniform_int_distribution<int>(lo, hi)(random);
  };
  v1::ModelSpec model;
  const int heads = pick(1, 4);
  const int head_dim = 2 * pick(4, 12);
  model.set_layers(pick(1, 5));
  model.set_hidden(heads * head_dim);
  model.set_heads(heads);
  model.set_kv_heads(heads);
  model.set_head_dim(head_dim);
  model.set_ffn_hidden(pick(8, 200));
  model.set_vocab(pick(2, 900));
  model.set_norm(pick(0, 1) == 0 ? "rmsnorm" : "layernorm");
  model.set_norm_eps(1e-5);
  model.set_qk_norm(pick(0, 1) == 0);
  model.set_position(pick(0, 1) == 0 ? "rope" : "learned");
  model.set_rope_theta(10000);
  model.set_max_position(16);
  model.set_activation(pick(0, 1) == 0 ? "swiglu" : "gelu");
  model.set_attention_bias(pick(0, 1) == 0 ? "none" : "all");
  model.set_tied(pick(0, 1) == 0);
  model.set_init_std(0.02);
  return model;
}

std::vector<Parameter> TableOf(const v1::ModelSpec& model) {
  return BuildParameterTable(*ResolveModelShape(model, 16));
}

// All of the buffers, in order from the end, aligned where they are cut.
void CheckBuckets(const std::vector<GradientBucket>& buckets, int64_t length, int shards) {
  int64_t end = length;
  int32_t ready = -1;
  for (const GradientBucket& bucket : buckets) {
    EXPECT_EQ(bucket.end, end);
    EXPECT_GT(bucket.elements(), 0);
    EXPECT_EQ(bucket.elements() % (shards * kTensorAlignElements), 0);
    EXPECT_GT(bucket.ready, ready);
    end = bucket.begin;
    ready = bucket.ready;
  }
  EXPECT_EQ(end, 0);
}

// Every element of every tensor belongs to one rank, at one place of that rank's buffers, which a
// reduce-scatter of the bucket fills.
void CheckPieces(const std::vector<Parameter>& table,
                 const std::vector<int64_t>& offsets,
                 const std::vector<GradientBucket>& buckets,
                 int shards) {
  std::vector<int> owners(static_cast<size_t>(offsets.back()), 0);
  for (int rank = 0; rank < shards; ++rank) {
    int previous = -1;
    std::vector<int> used(static_cast<size_t>(offsets.back() / shards), 0);
    for (const ShardPiece& piece : ShardPieces(table, offsets, buckets, rank, shards)) {
      ASSERT_GT(piece.elements, 0);
      EXPECT_GT(piece.parameter, previous);
      previous = piece.parameter;
      EXPECT_EQ(piece.first_element % kTensorAlignElements, 0);
      EXPECT_EQ(piece.offset, offsets[static_cast<size_t>(piece.parameter)] + piece.first_element);
      for (int64_t e = 0; e < piece.elements; ++e) {
        ++owners[static_cast<size_t>(piece.offset + e)];
        ++used.at(static_cast<size_t>(piece.local_offset + e));
      }
      for (const GradientBucket& bucket : buckets) {
        if (piece.offset < bucket.begin || piece.offset >= bucket.end) {
          continue;
        }
        const int64_t part = bucket.elements() / shards;
        EXPECT_EQ(piece.local_offset - bucket.begin / shards,
                  piece.offset - bucket.begin - rank * part);
        EXPECT_LE(piece.offset + piece.elements, bucket.begin + (rank + 1) * part);
      }
    }
    for (const int count : used) {
      ASSERT_LE(count, 1);
    }
  }
  int64_t elements = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    elements += table[i].elements();
    for (int64_t e = 0; e < table[i].elements(); ++e) {
      ASSERT_EQ(owners[static_cast<size_t>(offsets[i] + e)], 1) << table[i].name << "[" << e << "]";
    }
  }
  EXPECT_EQ(std::accumulate(owners.begin(), owners.end(), int64_t{0}), elements)
      << "nobody owns gaps";
}

// No two buckets that backward writes at the same time share a slot, and each has room in its own.
void CheckSlots(std::vector<GradientBucket> buckets, size_t wanted_free) {
  AssignSlots(buckets, wanted_free);
  const std::vector<GradientSlot> slots = SlotsOf(buckets);
  for (const GradientBucket& a : buckets) {
    EXPECT_LE(a.begins, a.ready);
    ASSERT_GE(a.slot, 0);
    const GradientSlot& slot = slots[static_cast<size_t>(a.slot)];
    EXPECT_GE(slot.elements, a.elements());
    EXPECT_LE(slot.begins, a.begins);
    EXPECT_EQ(slot.format, a.format);
    for (const GradientBucket& b : buckets) {
      const bool apart = a.ready < b.begins || b.ready < a.begins;
      EXPECT_TRUE(&a == &b || a.slot != b.slot || apart) << a.begins << " and " << b.begins;
    }
  }
}

TEST(GradientBucketsTest, RandomModels_BucketsCoverTheBuffers_PiecesEveryElementOnce) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    const v1::ModelSpec model = RandomModel(random);
    SCOPED_TRACE(model.ShortDebugString());
    const std::vector<Parameter> table = TableOf(model);
    const int shards = std::uniform_int_distribution<int>(1, 9)(random);
    const int64_t size = std::uniform_int_distribution<int64_t>(0, 60000)(random);
    SCOPED_TRACE("shards " + std::to_string(shards) + " bucket " + std::to_string(size));
    const std::vector<int64_t> offsets = TensorOffsets(table, shards);
    const auto buckets = GradientBuckets(table, offsets, StepTimeline{2 + 2 * model.layers()},
                                         round == 0 ? 0 : size);
    CheckBuckets(buckets, offsets.back(), shards);
    CheckPieces(table, offsets, buckets, shards);
    CheckSlots(buckets, 1);
    CheckSlots(buckets, 2);
  }
}

class SmallModel : public testing::Test {
 protected:
  SmallModel() {
    std::mt19937_64 random(1);
    v1::ModelSpec model = RandomModel(random);
    model.set_layers(3);
    model.set_tied(false);
    table_ = TableOf(model);
  }
  std::vector<Parameter> table_;
  StepTimeline time_{8};  // embedding, three layers of two blocks, head
};

TEST_F(SmallModel, Slots_TakeTurns_SoThatOneIsReducedWhileAnotherIsWritten) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied);
    std::mt19937_64 random(1);
    v1::ModelSpec model = RandomModel(random);
    model.set_layers(3);
    model.set_tied(tied);
    const std::vector<Parameter> table = TableOf(model);
    std::vector<GradientBucket> buckets = GradientBuckets(table, TensorOffsets(table, 2), time_, 1);
    ASSERT_EQ(buckets.size(), 8U);
    AssignSlots(buckets);
    // A tied embedding has a slot of its own from the head to the end.
    EXPECT_EQ(SlotsOf(buckets).size(), tied ? 3U : 2U);
    EXPECT_EQ(buckets.back().begins, tied ? time_.Head() : time_.EmbeddingBackward());
    for (size_t b = 1; b + 1 < buckets.size(); ++b) {
      EXPECT_NE(buckets[b].slot, buckets[b - 1].slot) << b;
      EXPECT_EQ(buckets[b].begins, buckets[b].ready);
    }
    for (size_t b = 0; tied && b + 1 < buckets.size(); ++b) {
      EXPECT_NE(buckets[b].slot, buckets.back().slot);
    }
  }
  EXPECT_TRUE(SlotsOf(GradientBuckets(table_, TensorOffsets(table_, 2), time_, 1)).empty())
      << "whole gradients";
}

TEST(GradientBucketsTest, Slots_NobodyReduces_BlocksShareOne) {
  std::vector<GradientBucket> buckets = {{3000, 4000, 3, DType::kBF16, 3},
                                         {2900, 3000, 4, DType::kBF16, 4},
                                         {2800, 2900, 5, DType::kBF16, 5},
                                         {1900, 2800, 6, DType::kBF16, 3}};
  AssignSlots(buckets, 1);
  EXPECT_EQ(buckets[0].slot, 0);
  EXPECT_EQ(buckets[1].slot, 0);
  EXPECT_EQ(buckets[2].slot, 0);
  EXPECT_EQ(buckets[3].slot, 1) << "a tied embedding is written from the head on";
}

TEST(GradientBucketsTest, Slots_TheLastBucket_TakesTheOneThatGrowsLeast) {
  // An output projection, two blocks and an embedding: the large ones share a slot.
  std::vector<GradientBucket> buckets = {{3000, 4000, 3, DType::kBF16, 3},
                                         {2900, 3000, 4, DType::kBF16, 4},
                                         {2800, 2900, 5, DType::kBF16, 5},
                                         {1900, 2800, 6, DType::kBF16, 6}};
  AssignSlots(buckets);
  EXPECT_EQ(buckets[0].slot, 0);
  EXPECT_EQ(buckets[1].slot, 1);
  EXPECT_EQ(buckets[2].slot, 0);
  EXPECT_EQ(buckets[3].slot, 0);
  const std::vector<GradientSlot> slots = SlotsOf(buckets);
  ASSERT_EQ(slots.size(), 2U);
  EXPECT_EQ(slots[0].elements, 1000);
  EXPECT_EQ(slots[1].elements, 100);
}

// Weights in blocks lie behind all others, in buckets of their own. The bucket of the rest of a
// layer, made at the same time, takes no slot from those.
TEST_F(SmallModel, WeightsInBlocks_HaveBucketsOfTheirOwn_AndTheLargeSlots) {
  std::vector<GradientBucket> plain = GradientBuckets(table_, TensorOffsets(table_, 2), time_, 1);
  AssignSlots(plain);
  for (Parameter& p : table_) {
    p.store = p.group == ParameterGroup::kMatrix ? formats::WeightCodec::kQ80
                                                 : formats::WeightCodec::kNone;
  }
  for (const int shards : {1, 2, 3}) {
    for (const int64_t size : {0, 1, 20000}) {
      SCOPED_TRACE(testing::Message() << shards << " shards, " << size);
      const std::vector<int64_t> offsets = TensorOffsets(table_, shards);
      const int64_t border = PlainElements(table_, offsets);
      EXPECT_EQ(border % (shards * kTensorAlignElements), 0);
      for (size_t i = 0; i < table_.size(); ++i) {
        EXPECT_EQ(offsets[i] >= border, table_[i].stored()) << table_[i].name;
      }
      std::vector<GradientBucket> buckets = GradientBuckets(table_, offsets, time_, size);
      int64_t elements = 0;
      for (const GradientBucket& bucket : buckets) {
        EXPECT_EQ(bucket.elements() % (shards * kTensorAlignElements), 0);
        EXPECT_EQ(bucket.begin >= border, bucket.stored);
        EXPECT_EQ(bucket.end > border, bucket.stored);
        elements += bucket.elements();
      }
      EXPECT_EQ(elements, offsets.back());
      CheckPieces(table_, offsets, buckets, shards);
      CheckSlots(buckets, 1);
      CheckSlots(buckets, 2);
    }
  }
  std::vector<GradientBucket> buckets = GradientBuckets(table_, TensorOffsets(table_, 2), time_, 1);
  AssignSlots(buckets);
  int64_t before = 0;
  int64_t after = 0;
  for (const GradientSlot& slot : SlotsOf(plain)) {
    before += slot.elements;
  }
  for (const GradientSlot& slot : SlotsOf(buckets)) {
    after += slot.elements;
  }
  int64_t rest = 0;  // of the largest layer, padded
  for (const GradientBucket& bucket : buckets) {
    const bool outer = bucket.ready == time_.Head() || bucket.ready == time_.EmbeddingBackward();
    rest = std::max(rest, bucket.stored || outer ? 0 : bucket.elements());
  }
  EXPECT_LE(after, before + 2 * rest);
}

TEST_F(SmallModel, ATinyBucket_HoldsOneUnit_ReadyWhenItsGradientsAre) {
  const auto buckets = GradientBuckets(table_, TensorOffsets(table_), time_, 1);
  std::vector<int32_t> ready;
  for (const GradientBucket& bucket : buckets) {
    ready.push_back(bucket.ready);
  }
  EXPECT_EQ(ready, (std::vector<int32_t>{7, 8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(time_.Head(), 7);
  EXPECT_EQ(time_.EmbeddingBackward(), 14);
}

TEST_F(SmallModel, AnEndlessBucket_StillEndsBeforeTheEmbeddings) {
  const std::vector<int64_t> offsets = TensorOffsets(table_, 2);
  const auto buckets = GradientBuckets(table_, offsets, time_, int64_t{1} << 60);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].ready, time_.LayersBackwardEnd());
  EXPECT_EQ(buckets[0].begin,
            offsets[static_cast<size_t>(FindParameter(table_, Slot::kAttnNorm, 0))]);
  EXPECT_EQ(GradientBuckets(table_, offsets, time_, 0).size(), 1U);
}

TEST_F(SmallModel, Unsharded_PiecesAreTheTensors) {
  const std::vector<int64_t> offsets = TensorOffsets(table_);
  const auto buckets = GradientBuckets(table_, offsets, time_, 5000);
  const std::vector<ShardPiece> pieces = ShardPieces(table_, offsets, buckets, 0, 1);
  ASSERT_EQ(pieces.size(), table_.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].parameter, static_cast<int>(i));
    EXPECT_EQ(pieces[i].first_element, 0);
    EXPECT_EQ(pieces[i].elements, table_[i].elements());
    EXPECT_EQ(pieces[i].offset, offsets[i]);
    EXPECT_EQ(pieces[i].local_offset, offsets[i]);
  }
}

TEST_F(SmallModel, TensorOffsets_EachUnit_StartsAtAWholePartOfEveryShard) {
  const std::vector<int64_t> offsets = TensorOffsets(table_, 3);
  for (size_t i = 0; i < table_.size(); ++i) {
    const bool first = i == 0 || table_[i].block != table_[i - 1].block;
    EXPECT_EQ(offsets[i] % ((first ? 3 : 1) * kTensorAlignElements), 0) << table_[i].name;
  }
  EXPECT_EQ(offsets.back() % (3 * kTensorAlignElements), 0);
}

// A state of matrices alone takes no room for other tensors, on any rank; one that all have lies as
// masters do.
TEST_F(SmallModel, PlaceStates_OfSomeParameters_AreAlignedAndDoNotOverlap) {
  constexpr int kShards = 3;
  const OptimizerRow row = {
      "mixed", "", "", {{"all"}, {"matrices", DType::kF32, [](const Parameter& p) {
                                    return p.group == ParameterGroup::kMatrix;
                                  }}}};
  for (Parameter& p : table_) {
    p.states = StatesOf(row, p);
  }
  const std::vector<int64_t> offsets = TensorOffsets(table_, kShards);
  const auto buckets = GradientBuckets(table_, offsets, time_, 5000);
  const int64_t owned = offsets.back() / kShards;
  for (int rank = 0; rank < kShards; ++rank) {
    const std::vector<ShardPiece> pieces = ShardPieces(table_, offsets, buckets, rank, kShards);
    const std::vector<StateBuffer> states = PlaceStates(table_, pieces, owned);
    ASSERT_EQ(states.size(), 2U);
    EXPECT_EQ(states[0].elements, owned);
    EXPECT_LT(states[1].elements, owned);
    int64_t end = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(states[0].offsets[i], pieces[i].local_offset);
      const Parameter& parameter = table_[static_cast<size_t>(pieces[i].parameter)];
      if (parameter.group != ParameterGroup::kMatrix) {
        EXPECT_EQ(states[1].offsets[i], -1) << parameter.name;
        continue;
      }
      EXPECT_GE(states[1].offsets[i], end) << parameter.name;
      EXPECT_EQ(states[1].offsets[i] % kTensorAlignElements, 0) << parameter.name;
      end = states[1].offsets[i] + pieces[i].elements;
    }
    EXPECT_LE(end, states[1].elements);
  }
}

// Tensors of whole parameters have the elements that their matrices need, and places of their own,
// whatever number of the parameter's elements has one of theirs.
TEST(GradientBucketsTest, PlaceStates_OfWholeMatrices_HaveRoomAndDoNotOverlap) {
  constexpr int kRank = formats::RowOf(StateCodec::kLeadingSigned4).rank;
  for (const char* const preset : {"hearth-112m", "hearth-tiny", "qwen2.5-0.5b"}) {
    v1::JobSpec job;
    job.mutable_model()->set_preset(preset);
    job.mutable_model()->set_vocab(512);
    job.mutable_data()->set_sequence_length(16);
    std::vector<FieldViolation> violations;
    Resolve(job, violations);
    const std::vector<Parameter> table = BuildParameterTable(
        *ResolveModelShape(job.model(), 16), {}, FindOptimizer("muon"), FindStateFormat("int4"));
    const std::vector<int64_t> offsets = TensorOffsets(table);
    const std::vector<ShardPiece> pieces =
        ShardPieces(table, offsets,
                    GradientBuckets(table, offsets, StepTimeline{table.back().block + 1}, 0), 0, 1);
    std::set<std::string> parts;
    for (const StateBuffer& buffer : PlaceStates(table, pieces, offsets.back())) {
      int64_t end = 0;
      for (size_t i = 0; buffer.state.needs_whole() && i < pieces.size(); ++i) {
        if (buffer.offsets[i] < 0) {
          continue;
        }
        const Parameter& parameter = table[i];
        SCOPED_TRACE(parameter.name + " " + buffer.state.TensorName());
        EXPECT_GE(buffer.offsets[i], end);
        EXPECT_EQ(buffer.offsets[i] % kTensorAlignElements, 0);
        const int64_t count = buffer.state.Count(parameter.elements());
        end = buffer.offsets[i] + count;
        int64_t cols = 0;
        for (const LogicalMatrix& matrix : parameter.matrices) {
          cols += matrix.cols;
        }
        const auto matrices = static_cast<int64_t>(parameter.matrices.size());
        const std::map<std::string_view, int64_t> needed = {{"", parameter.elements() / 2},
                                                            {"scale", parameter.elements() / 16},
                                                            {"left", parameter.shape[0] * kRank},
                                                            {"right", cols * kRank},
                                                            {"unit", matrices}};
        const int64_t least = needed.at(buffer.state.part);
        EXPECT_GE(count, least);
        EXPECT_LE(count, least + least / 8 + 1);
        parts.insert(std::string(buffer.state.part));
      }
      EXPECT_LE(end, buffer.elements);
    }
    EXPECT_EQ(parts.size(), 5U) << preset;
  }
}

// Matrices are their own masters, norms have wide ones, the rest BF16 ones: each format has a
// buffer of its own, and no room is planned for the matrices.
TEST_F(SmallModel, PlaceMasters_OfSeveralFormats_LieApart) {
  constexpr int kShards = 3;
  for (Parameter& p : table_) {
    p.storage = DType::kF16;
    p.master = p.group == ParameterGroup::kMatrix ? DType::kF16
               : p.group == ParameterGroup::kNorm ? DType::kF32
                                                  : DType::kBF16;
  }
  const std::vector<int64_t> offsets = TensorOffsets(table_, kShards);
  const auto buckets = GradientBuckets(table_, offsets, time_, 5000);
  int placed = 0;
  for (int rank = 0; rank < kShards; ++rank) {
    const std::vector<ShardPiece> pieces = ShardPieces(table_, offsets, buckets, rank, kShards);
    const auto masters = PlaceMasters(table_, pieces, offsets.back() / kShards);
    ASSERT_EQ(masters.size(), 2U);
    for (const MasterBuffer& buffer : masters) {
      int64_t end = 0;
      for (size_t i = 0; i < pieces.size(); ++i) {
        const Parameter& parameter = table_[static_cast<size_t>(pieces[i].parameter)];
        const bool has = parameter.has_master() && parameter.master == buffer.format;
        ASSERT_EQ(buffer.offsets[i] >= 0, has) << parameter.name;
        if (has) {
          EXPECT_GE(buffer.offsets[i], end) << parameter.name;
          end = buffer.offsets[i] + pieces[i].elements;
          ++placed;
        }
      }
      EXPECT_LE(end, buffer.elements);
    }
  }
  EXPECT_GT(placed, 0);
  for (Parameter& p : table_) {
    p.master = DType::kF32;
  }
  const std::vector<ShardPiece> pieces = ShardPieces(table_, offsets, buckets, 1, kShards);
  const auto same = PlaceMasters(table_, pieces, offsets.back() / kShards);
  ASSERT_EQ(same.size(), 1U);
  EXPECT_EQ(same[0].elements, offsets.back() / kShards);
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(same[0].offsets[i], pieces[i].local_offset);
  }
}

// Pieces whose gradient has the state's format, and no others, have a place in it, each its own.
template <typename Pieces, typename State>
void ExpectApart(const std::vector<Parameter>& table, const Pieces& pieces, const State& state) {
  std::map<int64_t, int64_t> taken;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Parameter& parameter = table[static_cast<size_t>(pieces[i].parameter)];
    const bool has = parameter.gradient == state.state.dtype;
    EXPECT_EQ(state.offsets[i] >= 0, has) << parameter.name;
    if (has) {
      taken[state.offsets[i]] = pieces[i].elements;
    }
  }
  int64_t end = 0;
  for (const auto& [begin, elements] : taken) {
    EXPECT_GE(begin, end);
    end = begin + elements;
  }
  EXPECT_LE(end, state.elements);
}

// Gradients of matrices in another format: each format has a run of the flat buffers, and buckets
// of its own, which ranks share as they do those of one format.
TEST_F(SmallModel, TwoGradientFormats_LieApartAndAreSharedWhole) {
  for (Parameter& p : table_) {
    p.gradient = p.group == ParameterGroup::kMatrix ? DType::kBF16 : DType::kF32;
    p.states = {{"exp_avg", p.gradient}};
  }
  EXPECT_EQ(GradientFormats(table_), (std::vector<DType>{DType::kF32, DType::kBF16}));
  for (const int shards : {1, 3}) {
    for (const int64_t bucket_elements : {int64_t{0}, int64_t{5000}}) {
      const std::vector<int64_t> offsets = TensorOffsets(table_, shards);
      const std::vector<GradientGroup> groups = GradientGroups(table_, offsets);
      ASSERT_EQ(groups.size(), 2U);
      EXPECT_EQ(groups[0].begin, 0);
      EXPECT_EQ(groups[0].end, groups[1].begin);
      EXPECT_EQ(groups[1].end, offsets.back());
      for (size_t i = 0; i < table_.size(); ++i) {
        const GradientGroup& group = groups[table_[i].gradient == DType::kBF16 ? 1 : 0];
        EXPECT_TRUE(group.begin <= offsets[i] && offsets[i] + table_[i].elements() <= group.end)
            << table_[i].name;
      }
      const auto buckets = GradientBuckets(table_, offsets, time_, bucket_elements);
      int64_t covered = 0;
      for (size_t b = 0; b < buckets.size(); ++b) {
        const GradientGroup& group = groups[buckets[b].format == DType::kBF16 ? 1 : 0];
        EXPECT_TRUE(group.begin <= buckets[b].begin && buckets[b].end <= group.end);
        EXPECT_EQ(buckets[b].elements() % (shards * kTensorAlignElements), 0);
        EXPECT_TRUE(b == 0 || buckets[b].ready >= buckets[b - 1].ready);
        covered += buckets[b].elements();
      }
      EXPECT_EQ(covered, offsets.back());
      std::vector<int64_t> seen(table_.size(), 0);
      for (int rank = 0; rank < shards; ++rank) {
        const auto pieces = ShardPieces(table_, offsets, buckets, rank, shards);
        const auto states = PlaceStates(table_, pieces, offsets.back() / shards);
        ASSERT_EQ(states.size(), 2U);
        for (const auto& piece : pieces) {
          seen[static_cast<size_t>(piece.parameter)] += piece.elements;
        }
        for (const auto& state : states) {
          ExpectApart(table_, pieces, state);
        }
      }
      for (size_t i = 0; i < table_.size(); ++i) {
        EXPECT_EQ(seen[i], table_[i].elements()) << table_[i].name;
      }
    }
  }
}

}  // namespace
}  // namespace hearth::spec
