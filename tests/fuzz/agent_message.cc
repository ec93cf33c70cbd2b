#include <memory>

#include "coordinator/core/core.h"
#include "coordinator/service/agents/agent_rules.h"
#include "hearth/v1/agent.pb.h"
#include "tests/fuzz/targets.h"
#include "tests/support/coordinator/cpu_hello.h"

namespace hearth::fuzz {
namespace {

using coordinator::Core;

// A core with one running job, and the worker "w" that runs it on connection 1.
class Played {
 public:
  Played() {
    Apply(coordinator::AgentConnected{1, coordinator::CpuHello(), "", ""});
    coordinator::CreateJob create;
    create.job_id = "job";
    create.paths_checked = true;
    create.spec.set_name("job");
    create.spec.mutable_train()->set_steps(100);
    create.spec.mutable_resources()->set_workers(1);
    create.spec.mutable_resources()->set_device("cpu");
    Apply(create);
    Apply(coordinator::Tick{});
  }

  void Apply(const coordinator::Command& command) {
    now_.monotonic += absl::Milliseconds(10);
    now_.wall += absl::Milliseconds(10);
    core_.Apply(command, now_);
  }

  void Deliver(const v1::AgentMessage& message) {
    switch (message.message_case()) {
      case v1::AgentMessage::kHello:
        return Apply(coordinator::AgentConnected{2, message.hello(), "", ""});
      case v1::AgentMessage::kHeartbeat:
        return Apply(coordinator::AgentHeartbeat{1, message.heartbeat()});
      case v1::AgentMessage::kReport:
        return Apply(coordinator::AgentReport{1, message.report()});
      case v1::AgentMessage::kKvWait:
        return Apply(coordinator::AgentKvWait{1, message.kv_wait()});
      case v1::AgentMessage::kCheckpointFolders:
        return Apply(coordinator::AgentFolders{1, message.checkpoint_folders()});
      case v1::AgentMessage::kGoodbye:
        return Apply(coordinator::AgentGoodbye{1, message.goodbye()});
      default:
        return;
    }
  }

 private:
  coordinator::Now now_{absl::FromUnixSeconds(1'700'000'000), absl::Seconds(1000)};
  Core core_{coordinator::CoreOptions{}, coordinator::RestoredState{}, now_};
};

}  // namespace

// Messages of an agent, each behind two bytes of its length: what the edge lets through goes into a
// core, and time passes.
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
      played.Deliver(message);
      played.Apply(coordinator::Tick{});
      delivered = true;
    }
  }
  return delivered;
}

}  // namespace hearth::fuzz
