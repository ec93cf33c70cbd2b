// Limits on the messages of a worker's agent. Every message of a stream is checked here before it
// becomes a command, so that nothing a peer sends reaches the core, the store or a scrape out of
// bounds. The core checks what only it can judge, such as a step past the job's end, and refuses it
// with the same error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/rpc/field_rules.h"
#include "hearth/v1/agent.pb.h"

namespace hearth::coordinator {

// Most bytes of a file that an agent may send at a time.
inline constexpr int32_t kPieceBytes = 256 << 10;

// The fields that differ from the default, for tests and readers.
absl::Span<const rpc::FieldRule> AgentFieldRules();

// True for an absolute path without empty, "." and ".." parts and without '/' at its end.
bool IsCleanPath(std::string_view path);

// kInvalidArgument naming the field. `checkpoint_root` is that of the stream's Hello ("" before
// it): a checkpoint must lie at <root>/<job>/e<epoch>/.
absl::Status CheckAgentMessage(const v1::AgentMessage& message, std::string_view checkpoint_root);

}  // namespace hearth::coordinator
