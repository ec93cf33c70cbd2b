#include "worker/trainer/rank/controls.h"

#include <atomic>
#include <cstdint>

#include "gtest/gtest.h"
#include "tests/support/trainer/test_link.h"
#include "worker/trainer/comm/rendezvous/key_value_store.h"

namespace hearth::trainer {
namespace {

constexpr uint64_t Bit(v1::ControlBit bit) {
  return uint64_t{1} << bit;
}

TEST(ControlsTest, Take_LinkAndSignals_AreTakenOnce) {
  LocalKeyValueStore store;
  FakeLink link(v1::Task(), store);
  link.AskAt(1, v1::CONTROL_BIT_SAVE);
  std::atomic<uint64_t> signals{Bit(v1::CONTROL_BIT_STOP)};
  Controls controls(link, &signals);

  const ControlRequests first = controls.Take();
  EXPECT_TRUE(first.save && first.stop);
  EXPECT_FALSE(first.pause);
  const ControlRequests second = controls.Take();
  EXPECT_FALSE(second.save || second.pause || second.stop);
}

// What this rank was asked is not acted on before all ranks have it.
TEST(ControlsTest, Take_AskedOfThisRankAlone_IsNotPending) {
  LocalKeyValueStore store;
  FakeLink link(v1::Task(), store);
  link.AskAt(1, v1::CONTROL_BIT_STOP);
  Controls controls(link, nullptr);

  EXPECT_TRUE(controls.Take().stop);
  EXPECT_FALSE(controls.pending());
}

TEST(ControlsTest, TakeAgreed_RequestsOfSeveralSteps_AddUpAndAreForgotten) {
  LocalKeyValueStore store;
  FakeLink link(v1::Task(), store);
  Controls controls(link, nullptr);

  controls.Agreed({true, false, false});
  controls.Agreed({false, true, false});
  EXPECT_TRUE(controls.pending());
  const ControlRequests agreed = controls.TakeAgreed();
  EXPECT_TRUE(agreed.save && agreed.pause);
  EXPECT_FALSE(agreed.stop);
  EXPECT_FALSE(controls.pending());
}

}  // namespace
}  // namespace hearth::trainer
