#include "jobctl/client/context_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace hearth::jobctl {
namespace {

constexpr const char* kCurrent = "current";
constexpr const char* kContexts = "contexts";
constexpr size_t kMaxNameBytes = 63;

absl::Status CheckName(const std::string& name) {
  const auto alnum = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  const bool good = !name.empty() && name.size() <= kMaxNameBytes && alnum(name.front()) &&
                    std::all_of(name.begin(), name.end(), [&alnum](char c) {
                      return alnum(c) || c == '-' || c == '_' || c == '.';
                    });
  return good ? absl::OkStatus()
              : absl::InvalidArgumentError(absl::StrCat(
                    "context \"", name, "\": a name has letters, digits, - _ and ., at most ",
                    kMaxNameBytes, ", and begins with a letter or digit"));
}

}  // namespace

ContextFile::ContextFile(std::string path, nlohmann::json json)
    : path_(std::move(path)), json_(std::move(json)) {}

absl::StatusOr<ContextFile> ContextFile::Parse(const std::string& path, const std::string& text) {
  nlohmann::json json = text.empty()
                            ? nlohmann::json::object()
                            : nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a JSON object, e.g. {\"coordinator\": \"host:7070\"}"));
  }
  if (json.contains(kCurrent) && !json[kCurrent].is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": \"", kCurrent, "\" is ", json[kCurrent].dump(), ", not a text in quotes"));
  }
  const nlohmann::json contexts = json.value(kContexts, nlohmann::json::object());
  bool objects = contexts.is_object();
  if (objects) {
    objects = std::all_of(contexts.begin(), contexts.end(),
                          [](const nlohmann::json& each) { return each.is_object(); });
  }
  if (!objects) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": \"", kContexts,
                     "\" is not an object of objects, e.g. {\"lab\": {\"coordinator\": "
                     "\"lab:7070\"}}"));
  }
  return ContextFile(path, std::move(json));
}

std::string ContextFile::current() const {
  return json_.value(kCurrent, "");
}

std::vector<std::string> ContextFile::names() const {
  std::vector<std::string> names;
  if (json_.contains(kContexts)) {
    for (const auto& [name, settings] : json_[kContexts].items()) {
      names.push_back(name);
    }
  }
  return names;
}

absl::StatusOr<nlohmann::json> ContextFile::Get(const std::string& name) const {
  if (json_.contains(kContexts) && json_[kContexts].contains(name)) {
    return json_[kContexts][name];
  }
  const std::vector<std::string> all = names();
  return absl::NotFoundError(
      absl::StrCat(path_, " has no context \"", name, "\"; ",
                   all.empty() ? "jobctl context add NAME --coordinator HOST:PORT adds one"
                               : absl::StrCat("there are: ", absl::StrJoin(all, ", "))));
}

absl::Status ContextFile::Set(const std::string& name, nlohmann::json settings) {
  HEARTH_RETURN_IF_ERROR(CheckName(name));
  const bool first = names().empty();
  json_[kContexts][name] = std::move(settings);
  if (first) {
    json_[kCurrent] = name;
  }
  return absl::OkStatus();
}

absl::Status ContextFile::Use(const std::string& name) {
  HEARTH_RETURN_IF_ERROR(Get(name).status());
  json_[kCurrent] = name;
  return absl::OkStatus();
}

absl::Status ContextFile::Remove(const std::string& name) {
  HEARTH_RETURN_IF_ERROR(Get(name).status());
  json_[kContexts].erase(name);
  if (current() == name) {
    json_.erase(kCurrent);
  }
  return absl::OkStatus();
}

std::string ContextFile::Text() const {
  return json_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace hearth::jobctl
