#include "common/chat/chat_data.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/checked_json.h"

namespace hearth::chat {
namespace {

using Json = nlohmann::json;

struct RoleName {
  std::string_view name;
  std::string_view role;
};
constexpr RoleName kMessagesRoles[] = {
    {"system", "system"}, {"user", "user"}, {"assistant", "assistant"}};
constexpr RoleName kShareGptRoles[] = {{"system", "system"},       {"human", "user"},
                                       {"user", "user"},           {"gpt", "assistant"},
                                       {"assistant", "assistant"}, {"chatgpt", "assistant"}};

// Keys of a message or of a line that stand for tools.
constexpr std::string_view kToolKeys[] = {"tool_calls", "tool_call_id", "function_call", "tools",
                                          "functions"};

absl::Status Error(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

// Null where `key` is missing or null.
const Json* Find(const Json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::Status RefuseTools(const Json& object, const std::string& where) {
  for (const std::string_view key : kToolKeys) {
    const Json* value = Find(object, key);
    if (value != nullptr && !(value->is_array() && value->empty())) {
      return Error(where, absl::StrCat("\"", std::string(key),
                                       "\": conversations with tools are not supported"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextOf(const Json& object,
                                   std::string_view key,
                                   const std::string& where) {
  const Json* value = Find(object, key);
  const std::string name(key);
  if (value == nullptr) {
    return Error(where, absl::StrCat("no \"", name, "\""));
  }
  if (!value->is_string()) {
    return Error(where, absl::StrCat("\"", name, "\" is not a string"));
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.find('\0') != std::string::npos) {
    return Error(where, absl::StrCat("\"", name, "\" has a NUL character"));
  }
  return text;
}

absl::StatusOr<std::string> OptionalText(const Json& object,
                                         std::string_view key,
                                         const std::string& where) {
  return Find(object, key) == nullptr ? std::string() : TextOf(object, key, where);
}

// The messages of a list whose items have `role_key` and `text_key`.
absl::StatusOr<Conversation> MessagesOf(const Json& line,
                                        std::string_view list_key,
                                        std::string_view role_key,
                                        std::string_view text_key,
                                        absl::Span<const RoleName> roles,
                                        const std::string& where) {
  HEARTH_RETURN_IF_ERROR(RefuseTools(line, where));
  const Json* list = Find(line, list_key);
  if (list == nullptr || !list->is_array()) {
    return Error(where, absl::StrCat("\"", std::string(list_key), "\" is not a list"));
  }
  Conversation conversation;
  for (const Json& item : *list) {
    const std::string at = absl::StrCat(where, ": message ", conversation.size() + 1);
    if (!item.is_object()) {
      return Error(at, "not an object");
    }
    HEARTH_RETURN_IF_ERROR(RefuseTools(item, at));
    if (const Json* weight = Find(item, "weight"); weight != nullptr && *weight != 1) {
      return Error(at, "\"weight\" other than 1 is not supported");
    }
    HEARTH_ASSIGN_OR_RETURN(const std::string name, TextOf(item, role_key, at));
    const auto role = std::find_if(roles.begin(), roles.end(),
                                   [&name](const RoleName& row) { return row.name == name; });
    if (role == roles.end()) {
      return Error(
          at, absl::StrCat("\"", name, "\" is not one of ",
                           absl::StrJoin(roles, ", ", [](std::string* out, const RoleName& row) {
                             absl::StrAppend(out, std::string(row.name));
                           })));
    }
    HEARTH_ASSIGN_OR_RETURN(std::string content, TextOf(item, text_key, at));
    conversation.push_back({std::string(role->role), std::move(content)});
  }
  return conversation;
}

void PutSystem(std::string system, Conversation& conversation) {
  if (!system.empty()) {
    conversation.insert(conversation.begin(), {"system", std::move(system)});
  }
}

// OpenAI's: {"messages": [{"role": "user", "content": "..."}, ...]}.
absl::StatusOr<Conversation> ParseMessages(const Json& line, const std::string& where) {
  return MessagesOf(line, "messages", "role", "content", kMessagesRoles, where);
}

// {"conversations": [{"from": "human", "value": "..."}, ...]}, with or without "system".
absl::StatusOr<Conversation> ParseShareGpt(const Json& line, const std::string& where) {
  HEARTH_ASSIGN_OR_RETURN(Conversation conversation, MessagesOf(line, "conversations", "from",
                                                                "value", kShareGptRoles, where));
  HEARTH_ASSIGN_OR_RETURN(std::string system, OptionalText(line, "system", where));
  PutSystem(std::move(system), conversation);
  return conversation;
}

// {"instruction": "...", "input": "...", "output": "..."}, with or without "input" and "system".
absl::StatusOr<Conversation> ParseAlpaca(const Json& line, const std::string& where) {
  const Json* history = Find(line, "history");
  if (history != nullptr && !(history->is_array() && history->empty())) {
    return Error(where, "\"history\" is not supported");
  }
  HEARTH_ASSIGN_OR_RETURN(std::string question, TextOf(line, "instruction", where));
  HEARTH_ASSIGN_OR_RETURN(const std::string input, OptionalText(line, "input", where));
  HEARTH_ASSIGN_OR_RETURN(std::string answer, TextOf(line, "output", where));
  HEARTH_ASSIGN_OR_RETURN(std::string system, OptionalText(line, "system", where));
  if (!input.empty()) {
    absl::StrAppend(&question, "\n\n", input);
  }
  Conversation conversation = {{"user", std::move(question)}, {"assistant", std::move(answer)}};
  PutSystem(std::move(system), conversation);
  return conversation;
}

constexpr ChatLayout kLayouts[] = {
    {"messages", "messages", ParseMessages},
    {"sharegpt", "conversations", ParseShareGpt},
    {"alpaca", "instruction", ParseAlpaca},
};

std::string Keys() {
  return absl::StrJoin(kLayouts, ", ", [](std::string* out, const ChatLayout& layout) {
    absl::StrAppend(out, "\"", std::string(layout.key), "\" (", std::string(layout.name), ")");
  });
}

}  // namespace

absl::Span<const ChatLayout> ChatLayouts() {
  return kLayouts;
}

std::vector<std::string> ChatLayoutNames() {
  std::vector<std::string> names = {std::string(kAnyLayout)};
  for (const ChatLayout& layout : kLayouts) {
    names.emplace_back(layout.name);
  }
  return names;
}

absl::StatusOr<Conversation> ParseConversation(std::string_view line,
                                               std::string_view layout,
                                               const std::string& where) {
  HEARTH_ASSIGN_OR_RETURN(const Json json, tokenizer::ParseCheckedJson(line, where));
  if (!json.is_object()) {
    return Error(where, "not an object");
  }
  const auto row =
      std::find_if(std::begin(kLayouts), std::end(kLayouts), [&](const ChatLayout& candidate) {
        return layout == kAnyLayout ? json.contains(std::string(candidate.key))
                                    : layout == candidate.name;
      });
  if (row == std::end(kLayouts)) {
    return Error(where, absl::StrCat("no conversation: it has none of the keys ", Keys()));
  }
  HEARTH_ASSIGN_OR_RETURN(Conversation conversation, row->parse(json, where));
  const bool answers =
      std::any_of(conversation.begin(), conversation.end(),
                  [](const Message& message) { return message.role == "assistant"; });
  if (!answers) {
    return Error(where, "a conversation without an assistant message");
  }
  return conversation;
}

std::string ToText(const Conversation& conversation) {
  Json list = Json::array();
  for (const Message& message : conversation) {
    list.push_back({message.role, message.content});
  }
  return list.dump();
}

absl::StatusOr<Conversation> FromText(std::string_view text) {
  const Json list = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Conversation conversation;
  for (const Json& item : list.is_array() ? list : Json::array()) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_string()) {
      return absl::InternalError("not a conversation");
    }
    conversation.push_back({item[0].get<std::string>(), item[1].get<std::string>()});
  }
  return conversation;
}

}  // namespace hearth::chat
