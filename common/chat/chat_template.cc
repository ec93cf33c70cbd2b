#include "common/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/checked_json.h"

namespace hearth::chat {
namespace {

using jinja::Value;
using Json = nlohmann::json;

constexpr std::string_view kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "pad_token"};

// The one that most templates descend from (OpenAI's ChatML).
constexpr NamedTemplate kNamedTemplates[] = {
    {"chatml",
     "{% for message in messages %}"
     "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
     "{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
};

struct TemplateText {
  std::string text;
  std::string name;  // for errors
};

// `chat_template` of a tokenizer_config.json: a text, or a list of {name, template}.
absl::StatusOr<TemplateText> FromConfig(const Json& config, const std::string& path) {
  const auto found = config.find("chat_template");
  const std::string name = absl::StrCat(path, ": chat_template");
  if (found == config.end() || found->is_null()) {
    return absl::NotFoundError(absl::StrCat(path, ": no chat_template"));
  }
  if (found->is_string()) {
    return TemplateText{found->get<std::string>(), name};
  }
  for (const Json& entry : found->is_array() ? *found : Json::array()) {
    if (entry.is_object() && entry.value("name", Json()) == "default" &&
        entry.contains("template") && entry["template"].is_string()) {
      return TemplateText{entry["template"].get<std::string>(), name};
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": neither text nor a list with a template called \"default\""));
}

// Special tokens are texts, or objects with their `content`.
void AddSpecialTokens(const Json& config, Value::Dict* globals) {
  for (const std::string_view key : kSpecialTokens) {
    const std::string name(key);
    const auto found = config.find(name);
    if (found == config.end()) {
      continue;
    }
    const Json content = found->is_object() ? found->value("content", Json()) : *found;
    if (content.is_string()) {
      globals->emplace_back(name, Value::String(content.get<std::string>()));
    }
  }
}

}  // namespace

absl::Span<const NamedTemplate> NamedTemplates() {
  return kNamedTemplates;
}

absl::StatusOr<ChatTemplate> ChatTemplate::FromFiles(
    const std::map<std::string, std::string>& files, const std::string& dir) {
  const auto path = [&dir](std::string_view name) {
    return absl::StrCat(dir, dir.empty() ? "" : "/", std::string(name));
  };
  // transformers passes these globals too.
  Value::Dict globals = {{"tools", Value::None()}, {"documents", Value::None()}};
  Json config = Json::object();
  const auto config_file = files.find(std::string(kConfigFileName));
  if (config_file != files.end()) {
    HEARTH_ASSIGN_OR_RETURN(
        config, tokenizer::ParseCheckedJson(config_file->second, path(kConfigFileName)));
    if (!config.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(path(kConfigFileName), ": not an object"));
    }
  }
  AddSpecialTokens(config, &globals);
  TemplateText source;
  const auto template_file = files.find(std::string(kTemplateFileName));
  if (template_file != files.end()) {
    source = {template_file->second, path(kTemplateFileName)};
  } else {
    HEARTH_ASSIGN_OR_RETURN(source, FromConfig(config, path(kConfigFileName)));
  }
  HEARTH_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::Parse(source.text, source.name));
  return ChatTemplate(std::move(parsed), std::move(globals));
}

absl::StatusOr<ChatTemplate> ChatTemplate::Open(const std::string& dir, Env& env) {
  std::map<std::string, std::string> files;
  for (const std::string_view name : {kTemplateFileName, kConfigFileName}) {
    const std::string path = absl::StrCat(dir, "/", std::string(name));
    if (env.Exists(path)) {
      HEARTH_ASSIGN_OR_RETURN(files[std::string(name)], env.ReadFile(path));
    }
  }
  return FromFiles(files, dir);
}

absl::StatusOr<jinja::Rendered> ChatTemplate::RenderAll(absl::Span<const Message> messages,
                                                        bool add_generation_prompt) const {
  Value::List list;
  for (const Message& message : messages) {
    HEARTH_ASSIGN_OR_RETURN(Value value,
                            Value::OfDict({{"role", Value::String(message.role)},
                                           {"content", Value::String(message.content)}}));
    list.push_back(std::move(value));
  }
  Value::Dict globals = globals_;
  HEARTH_ASSIGN_OR_RETURN(Value values, Value::OfList(std::move(list)));
  globals.emplace_back("messages", std::move(values));
  globals.emplace_back("add_generation_prompt", Value::Bool(add_generation_prompt));
  return template_.Render(globals);
}

absl::StatusOr<std::string> ChatTemplate::Render(const Conversation& messages,
                                                 bool add_generation_prompt) const {
  HEARTH_ASSIGN_OR_RETURN(jinja::Rendered rendered, RenderAll(messages, add_generation_prompt));
  return std::move(rendered.text);
}

}  // namespace hearth::chat
