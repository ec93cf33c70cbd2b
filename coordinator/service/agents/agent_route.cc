#include "coordinator/service/agents/agent_route.h"

#include <utility>

namespace hearth::coordinator {

// Without a default, so that a new kind does not compile before it has its place here.
AgentRoute RouteAgentMessage(uint64_t connection_id, v1::AgentMessage& message) {
  switch (message.message_case()) {
    case v1::AgentMessage::kHeartbeat:
      return {AgentHeartbeat{connection_id, std::move(*message.mutable_heartbeat())}, {}};
    case v1::AgentMessage::kReport:
      return {AgentReport{connection_id, std::move(*message.mutable_report())}, {}};
    case v1::AgentMessage::kKvWait:
      return {AgentKvWait{connection_id, std::move(*message.mutable_kv_wait())}, {}};
    case v1::AgentMessage::kGoodbye:
      return {AgentGoodbye{connection_id, std::move(*message.mutable_goodbye())}, {}};
    case v1::AgentMessage::kCheckpointFolders:
      return {AgentFolders{connection_id, std::move(*message.mutable_checkpoint_folders())}, {}};
    case v1::AgentMessage::kInspectResult:
      return {{}, message.inspect_result().request_id()};
    case v1::AgentMessage::kCheckpointBytes:
      return {{}, message.checkpoint_bytes().request_id()};
    case v1::AgentMessage::kWritten:
      return {{}, message.written().request_id()};
    case v1::AgentMessage::kHello:
    case v1::AgentMessage::MESSAGE_NOT_SET:
      return {};
  }
  return {};
}

}  // namespace hearth::coordinator
