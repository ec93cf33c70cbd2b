// Conversations of chat data, in the layouts in which people keep them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace hearth::chat {

struct Message {
  std::string role;     // system | user | assistant
  std::string content;  // UTF-8 without NUL
};

using Conversation = std::vector<Message>;

// How a line of JSON holds a conversation. A row of the table that ChatLayouts returns.
struct ChatLayout {
  std::string_view name;  // as --chat has it
  std::string_view key;   // a line that has this key is of this layout
  // Errors: kInvalidArgument with `where`.
  absl::StatusOr<Conversation> (*parse)(const nlohmann::json& line, const std::string& where);
};

absl::Span<const ChatLayout> ChatLayouts();

// What --chat takes: kAnyLayout, which looks at each line's keys, and the names of the layouts.
inline constexpr std::string_view kAnyLayout = "auto";
std::vector<std::string> ChatLayoutNames();

// A line of a file in the layout called `layout` (one of ChatLayoutNames). kInvalidArgument with
// `where`: no JSON, another layout, a role that is none of the three, tools, no assistant message.
absl::StatusOr<Conversation> ParseConversation(std::string_view line,
                                               std::string_view layout,
                                               const std::string& where);

// The same text for the same conversation, and back; [["user", "..."], ["assistant", "..."]].
std::string ToText(const Conversation& conversation);
absl::StatusOr<Conversation> FromText(std::string_view text);

}  // namespace hearth::chat
