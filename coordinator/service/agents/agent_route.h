// Where a message of an agent's stream goes, once it is known to be within bounds (agent_rules.h).
#pragma once

#include <cstdint>
#include <optional>

#include "coordinator/core/core_commands.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::coordinator {

struct AgentRoute {
  std::optional<Command> command;    // for the core
  std::optional<int64_t> answer_to;  // the question that the message answers; for the Inspector
};

// Moves the command's part out of `message`; an answer stays in it. Neither is set for a Hello,
// which the stream itself takes, and for a kind that a newer agent sends.
AgentRoute RouteAgentMessage(uint64_t connection_id, v1::AgentMessage& message);

}  // namespace hearth::coordinator
