#include "coordinator/service/agents/agent_hub.h"

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

class FakeLink : public AgentLink {
 public:
  void Send(v1::CoordinatorMessage /*message*/) override {}
  void Close(const absl::Status& status) override { closed.push_back(status); }

  std::vector<absl::Status> closed;
};

// A worker that connects while the coordinator stops would else hold up its end.
TEST(AgentHub, CloseAll_EndsThoseWithoutHelloAndRefusesNewOnes) {
  AgentHub hub;
  const auto greeted = std::make_shared<FakeLink>();
  const auto waiting = std::make_shared<FakeLink>();
  const auto late = std::make_shared<FakeLink>();
  ASSERT_TRUE(hub.Add(1, "a", greeted).ok());
  ASSERT_TRUE(hub.AddWaiting(2, "a", absl::InfiniteDuration(), waiting).ok());
  const absl::Status stopping = absl::UnavailableError("stopping");
  hub.CloseAll(stopping);
  EXPECT_EQ(greeted->closed, std::vector<absl::Status>{stopping});
  EXPECT_EQ(waiting->closed, std::vector<absl::Status>{stopping});
  EXPECT_EQ(hub.AddWaiting(3, "a", absl::InfiniteDuration(), late), stopping);
  // It said Hello in the moment of CloseAll.
  hub.RemoveWaiting(2);
  EXPECT_EQ(hub.Add(2, "a", waiting), stopping);
  EXPECT_EQ(hub.size(), 1);
}

TEST(AgentHub, TooManyOfOnePeer_AreRefusedAndOthersAreNot) {
  AgentHub hub;
  const auto link = std::make_shared<FakeLink>();
  for (int k = 0; k < AgentHub::kWaitingPerPeer; ++k) {
    ASSERT_TRUE(hub.AddWaiting(k, "a", absl::InfiniteDuration(), link).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(hub.AddWaiting(1000, "a", absl::InfiniteDuration(), link)));
  EXPECT_TRUE(hub.AddWaiting(1001, "b", absl::InfiniteDuration(), link).ok());
  hub.RemoveWaiting(0);
  EXPECT_TRUE(hub.AddWaiting(1002, "a", absl::InfiniteDuration(), link).ok());
}

}  // namespace
}  // namespace hearth::coordinator
