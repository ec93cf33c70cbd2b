#include "worker/trainer/optim/streamed_pieces.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/weights/weight_store.h"
#include "gtest/gtest.h"
#include "tests/support/trainer/test_model.h"
#include "worker/trainer/optim/optimizer.h"

namespace hearth::trainer {
namespace {

// Windows of one number each, of `host`, in turn in the two slots.
std::vector<OffloadWindow> Windows(std::vector<int64_t>& host, std::array<int64_t, 2>& slots) {
  std::vector<OffloadWindow> windows(host.size());
  for (size_t w = 0; w < host.size(); ++w) {
    windows[w].copies.push_back({&host[w], &slots[w % 2], sizeof(int64_t)});
  }
  return windows;
}

class OffloadLanesTest : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Windows, OffloadLanesTest, testing::Values(1, 2, 3, 7));

TEST_P(OffloadLanesTest, Run_FetchesAheadOfWork_AndWritesBackBehindIt) {
  const kernels::Exec exec;
  const auto lanes = OffloadLanes::New(exec);
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  std::vector<int64_t> host(GetParam());
  for (size_t w = 0; w < host.size(); ++w) {
    host[w] = 10 * static_cast<int64_t>(w) + 5;
  }
  const std::vector<int64_t> before = host;
  std::array<int64_t, 2> slots = {-1, -1};
  const std::vector<OffloadWindow> windows = Windows(host, slots);
  size_t calls = 0;
  const auto work = [&](size_t w) {
    EXPECT_EQ(w, calls++);
    EXPECT_EQ(slots[w % 2], before[w]);
    if (w + 1 < host.size()) {
      EXPECT_EQ(slots[(w + 1) % 2], before[w + 1]) << "the next one is there already";
    }
    if (w > 0) {
      EXPECT_EQ(host[w - 1], before[w - 1] + 1) << "the one before is written back";
    }
    ++slots[w % 2];
    return absl::OkStatus();
  };
  ASSERT_TRUE((*lanes)->Run(exec, windows, work).ok());
  EXPECT_EQ(calls, host.size());
  for (size_t w = 0; w < host.size(); ++w) {
    EXPECT_EQ(host[w], before[w] + 1);
  }
}

TEST(OffloadLanesOneWayTest, Run_WhatDoesNotChange_IsNotWrittenBack) {
  const kernels::Exec exec;
  const auto lanes = OffloadLanes::New(exec);
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  std::vector<int64_t> host = {1, 2, 3};
  std::array<int64_t, 2> slots = {};
  std::vector<OffloadWindow> windows = Windows(host, slots);
  windows[1].copies[0].changes = false;
  const auto work = [&](size_t w) {
    slots[w % 2] += 10;
    return absl::OkStatus();
  };
  ASSERT_TRUE((*lanes)->Run(exec, windows, work).ok());
  EXPECT_EQ(host, (std::vector<int64_t>{11, 2, 13}));
}

TEST(OffloadLanesErrorTest, Run_WorkFails_EndsWithItsError) {
  const kernels::Exec exec;
  const auto lanes = OffloadLanes::New(exec);
  ASSERT_TRUE(lanes.ok()) << lanes.status();
  std::vector<int64_t> host = {1, 2, 3, 4};
  std::array<int64_t, 2> slots = {};
  const std::vector<OffloadWindow> windows = Windows(host, slots);
  size_t calls = 0;
  const absl::Status run = (*lanes)->Run(exec, windows, [&](size_t) {
    return ++calls == 2 ? absl::AbortedError("enough") : absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsAborted(run)) << run;
  EXPECT_EQ(calls, 2U);
}

// A store with masters and states in the host's memory, as a plan of adamw has them.
struct Held {
  std::vector<spec::Parameter> table;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<ParameterStore> store;
  std::unique_ptr<OffloadLanes> lanes;
};

std::unique_ptr<Held> Hold(std::string_view state, bool away, std::string_view store = "bf16") {
  auto held = std::make_unique<Held>();
  v1::ModelSpec model = TinyModel("qwen2");
  model.set_hidden(64);
  model.set_head_dim(16);
  model.set_ffn_hidden(96);
  spec::TrainingPlanOptions plan;
  plan.shape = *spec::ResolveModelShape(model, 8);
  plan.recipe = spec::FindRecipe("bf16");
  held->table =
      spec::BuildParameterTable(plan.shape, plan.recipe->parameters, spec::FindOptimizer("adamw"),
                                spec::FindStateFormat(std::string(state)));
  spec::SetWeightStore(*spec::FindWeightStore(store), held->table);
  plan.table = &held->table;
  plan.sequence_length = 8;
  for (const spec::OffloadRow& row : spec::OffloadRows()) {
    if (away) {
      plan.offload.Add(row.away);
    }
  }
  const Numerics numerics =
      *MakeNumerics(*plan.recipe, spec::GradientFormats(held->table), kernels::DType::kF32);
  held->arena = *Arena::Allocate(*spec::PlanTraining(plan), kernels::DType::kF32);
  held->store =
      std::make_unique<ParameterStore>(held->table, *held->arena, numerics, true,
                                       StoreShards{0, 1, {}, spec::PlanWeightUnits(plan)});
  held->lanes = *OffloadLanes::New(kernels::Exec());
  held->lanes->SetSlots(*held->arena);
  return held;
}

class StreamedPiecesTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(States,
                         StreamedPiecesTest,
                         testing::Values("fp32", "bf16", "int8", "int4"));

// Every byte of masters and states is fetched once, to a place of its own in the window's slot, and
// parts follow one another at borders of blocks.
TEST_P(StreamedPiecesTest, Windows_CoverEachPieceOnce) {
  const std::unique_ptr<Held> held = Hold(GetParam(), true);
  const StreamedPieces streamed(*held->store, held->lanes.get(),
                                {.masters = true, .state = &IsOwnState});
  EXPECT_TRUE(streamed.streams());
  ASSERT_GE(streamed.windows().size(), 3U) << "else no slot is used twice";
  std::vector<int64_t> elements(held->table.size(), 0);
  size_t bytes = 0;
  for (size_t w = 0; w < streamed.windows().size(); ++w) {
    const OffloadWindow& window = streamed.windows()[w];
    const uint8_t* end = held->lanes->slot(w);
    for (const OffloadCopy& copy : window.copies) {
      EXPECT_GE(static_cast<uint8_t*>(copy.slot), end);
      end = static_cast<uint8_t*>(copy.slot) + copy.bytes;
      bytes += copy.bytes;
    }
    EXPECT_LE(end, held->lanes->slot(w) + held->lanes->slot_bytes());
    for (const StorePiece& piece : window.pieces) {
      const auto i = static_cast<size_t>(piece.place.parameter);
      EXPECT_EQ(piece.place.first_element, elements[i]) << held->table[i].name;
      EXPECT_EQ(piece.place.first_element % spec::kTensorAlignElements, 0);
      elements[i] += piece.place.elements;
      EXPECT_EQ(piece.gradient.numel(), piece.place.elements);
      EXPECT_EQ(piece.weight.numel(), piece.place.elements);
    }
  }
  size_t held_bytes = 0;
  for (const StorePiece& piece : held->store->pieces()) {
    EXPECT_EQ(elements[static_cast<size_t>(piece.place.parameter)], piece.place.elements);
    EXPECT_TRUE(piece.master_on_host && piece.states_on_host);
    held_bytes += piece.master.bytes();
    for (const kernels::TensorView& state : piece.states) {
      held_bytes += state.bytes();
    }
  }
  EXPECT_EQ(bytes, held_bytes);
}

TEST_P(StreamedPiecesTest, Windows_FetchNothingThatIsNotNeeded) {
  const std::unique_ptr<Held> held = Hold(GetParam(), true);
  const StreamedPieces masters(*held->store, held->lanes.get(), {.masters = true});
  for (const OffloadWindow& window : masters.windows()) {
    EXPECT_EQ(window.copies.size(), window.pieces.size());
  }
  const StreamedPieces none(*held->store, held->lanes.get(), {});
  EXPECT_FALSE(none.streams());
  EXPECT_EQ(none.windows().size(), 1U);
}

// A window of weights in blocks has them decoded, one behind the other, and their states in its
// slot. What nobody updates keeps its bytes.
TEST_P(StreamedPiecesTest, WindowsOfWeightsInBlocks_DecodeThem_WithTheirStatesInASlot) {
  const std::unique_ptr<Held> held = Hold(GetParam(), true, "q4_0");
  const kernels::Exec exec;
  ASSERT_TRUE(held->store->Initialise(exec, 7).ok());
  const StreamedPieces streamed(*held->store, held->lanes.get(),
                                {.masters = true, .state = &IsOwnState});
  std::vector<int64_t> elements(held->table.size(), 0);
  size_t decoding = 0;
  for (size_t w = 0; w < streamed.windows().size(); ++w) {
    const OffloadWindow& window = streamed.windows()[w];
    decoding += window.decoded.empty() ? 0 : 1;
    EXPECT_TRUE(window.decoded.empty() || window.decoded.size() == window.pieces.size())
        << "of one kind";
    const float* end = held->store->decoded().as<float>();
    const uint8_t* const slot = held->lanes->slot(w);
    for (const StorePiece& piece : window.pieces) {
      const auto i = static_cast<size_t>(piece.place.parameter);
      EXPECT_EQ(piece.place.first_element, elements[i]) << held->table[i].name;
      elements[i] += piece.place.elements;
      EXPECT_EQ(!piece.blocks.empty(), held->table[i].stored());
      EXPECT_EQ(piece.master.numel(), piece.place.elements);
      if (!piece.blocks.empty()) {
        EXPECT_GE(piece.master.as<float>(), end);
        end = piece.master.as<float>() + piece.master.numel();
      }
      for (const kernels::TensorView& state : piece.states) {
        EXPECT_GE(state.as<uint8_t>(), slot);
        EXPECT_LE(state.as<uint8_t>() + state.bytes(), slot + held->lanes->slot_bytes());
      }
    }
    EXPECT_LE(end, held->store->decoded().as<float>() + held->store->decoded().numel());
  }
  EXPECT_GE(decoding, 3U) << "else no slot is used twice";
  const auto all = [&held] {
    std::string bytes;
    for (const StorePiece& piece : held->store->pieces()) {
      EXPECT_EQ(piece.blocks.empty(),
                !held->table[static_cast<size_t>(piece.place.parameter)].stored());
      bytes.append(piece.blocks.as<char>(), piece.blocks.bytes());
    }
    return bytes;
  };
  const std::string before = all();
  EXPECT_NE(before.find_first_not_of('\0'), std::string::npos);
  kernels::StepInputs inputs;
  inputs.step = 1;
  size_t calls = 0;
  const auto count = [&calls](size_t) {
    ++calls;
    return absl::OkStatus();
  };
  ASSERT_TRUE(streamed.Run(exec, count, {.seed = 1, .inputs = &inputs}).ok());
  EXPECT_EQ(calls, streamed.windows().size());
  EXPECT_TRUE(all() == before);
  const auto add = [&](size_t w) {
    for (const StorePiece& piece : streamed.windows()[w].pieces) {
      std::fill_n(piece.master.as<float>(), piece.master.numel(), 0.5F);
    }
    return absl::OkStatus();
  };
  ASSERT_TRUE(streamed.Run(exec, add, {.seed = 1, .inputs = &inputs}).ok());
  EXPECT_FALSE(all() == before);
}

TEST(StreamedPiecesOfTheDeviceTest, NothingOnTheHost_IsOneWindowWhereItLies) {
  const std::unique_ptr<Held> held = Hold("fp32", false);
  const StreamedPieces streamed(*held->store, nullptr, {.masters = true, .state = &IsOwnState});
  ASSERT_EQ(streamed.windows().size(), 1U);
  const OffloadWindow& window = streamed.windows()[0];
  EXPECT_TRUE(window.copies.empty());
  ASSERT_EQ(window.pieces.size(), held->store->pieces().size());
  for (size_t i = 0; i < window.pieces.size(); ++i) {
    EXPECT_EQ(window.pieces[i].master.data, held->store->pieces()[i].master.data);
    EXPECT_EQ(window.pieces[i].states[1].data, held->store->pieces()[i].states[1].data);
  }
  size_t calls = 0;
  EXPECT_TRUE(streamed
                  .Run(kernels::Exec(),
                       [&](size_t w) {
                         EXPECT_EQ(w, 0U);
                         ++calls;
                         return absl::OkStatus();
                       })
                  .ok());
  EXPECT_EQ(calls, 1U);
}

}  // namespace
}  // namespace hearth::trainer
