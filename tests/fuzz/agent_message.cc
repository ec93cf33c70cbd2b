#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "coordinator/core/core.h"
#include "coordinator/service/agents/agent_route.h"
#include "coordinator/service/agents/agent_rules.h"
#include "coordinator/service/agents/inspector.h"
#include "hearth/v1/agent.pb.h"
#include "tests/fuzz/targets.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/coordinator/cpu_hello.h"
#include "tests/support/coordinator/played_worker.h"

namespace hearth::fuzz {
namespace {

using coordinator::Core;

// A core with one running job, the worker "w" that runs it on connection 1, and one question of
// each kind to it.
class Played {
 public:
  Played() {
    HEARTH_CHECK(hub_.Add(1, "here", std::make_shared<coordinator::DeafLink>()).ok(),
                 "the only stream");
    Apply(coordinator::AgentConnected{1, coordinator::CpuHello(), "", ""});
    coordinator::CreateJob create = coordinator::SmallJob("job");
    create.paths_checked = true;
    Apply(create);
    Apply(coordinator::Tick{});
    inspector_.Inspect(1, "cpu", {"/data", "/more"}, [](const auto& answers) {
      HEARTH_CHECK(!answers.ok() || answers->size() == 2, "an answer for each path");
    });
    inspector_.Read(1, v1::ReadCheckpointFile(), [](const auto& bytes) {
      HEARTH_CHECK(!bytes.ok() || bytes->code() == 0, "an error is no file");
    });
    inspector_.Write(1, v1::WriteText(), [](const auto& piece) {
      HEARTH_CHECK(!piece.ok() || piece->code() == 0, "an error is no text");
    });
  }
  ~Played() { inspector_.OnDisconnected(1); }

  void Apply(const coordinator::Command& command) {
    now_.monotonic += absl::Milliseconds(10);
    now_.wall += absl::Milliseconds(10);
    core_.Apply(command, now_);
  }

  void Deliver(v1::AgentMessage message) {
    if (message.has_hello()) {
      return Apply(coordinator::AgentConnected{2, message.hello(), "", ""});
    }
    coordinator::AgentRoute route = coordinator::RouteAgentMessage(1, message);
    if (route.command.has_value()) {
      Apply(*route.command);
    } else if (route.answer_to.has_value()) {
      inspector_.OnAnswer(1, *route.answer_to, std::move(message));
    }
  }

 private:
  coordinator::Now now_{absl::FromUnixSeconds(1'700'000'000), absl::Seconds(1000)};
  Core core_{coordinator::CoreOptions{}, coordinator::RestoredState{}, now_};
  FakeClock clock_;
  coordinator::AgentHub hub_;
  coordinator::Inspector inspector_{hub_, clock_, /*generation=*/1};
};

}  // namespace

// Messages of an agent, each behind two bytes of its length: what the edge lets through goes where
// a stream sends it, and time passes.
bool AgentMessage(std::string_view bytes) {
  Played played;
  bool delivered = false;
  while (bytes.size() > 2) {
    const size_t size =
        256 * static_cast<unsigned char>(bytes[0]) + static_cast<unsigned char>(bytes[1]);
    const std::string_view one = bytes.substr(2, size);
    bytes.remove_prefix(2 + one.size());
    v1::AgentMessage message;
    if (message.ParseFromArray(one.data(), static_cast<int>(one.size())) &&
        coordinator::CheckAgentMessage(message, "/ck").ok()) {
      played.Deliver(std::move(message));
      played.Apply(coordinator::Tick{});
      delivered = true;
    }
  }
  return delivered;
}

}  // namespace hearth::fuzz
