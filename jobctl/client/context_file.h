// The context file: settings of jobctl, and named sets of them, one for each coordinator that a
// person works with. Pure: text in, text out.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {

// {"coordinator": "host:7070", "current": "lab", "contexts": {"lab": {"coordinator": ...}}}. The
// keys of the settings (settings.h) at the top count where the chosen context has none of its own.
class ContextFile {
 public:
  // `text` is what stands in the file at `path`, "" = there is none. kInvalidArgument names the
  // path, and the key that is no text or no object.
  static absl::StatusOr<ContextFile> Parse(const std::string& path, const std::string& text);

  // The settings at the top: an object, with other keys in it.
  const nlohmann::json& defaults() const { return json_; }
  // The context that counts unless another is asked for; "" = none.
  std::string current() const;
  std::vector<std::string> names() const;  // sorted
  // The settings of a context, an object. kNotFound lists the contexts that there are.
  absl::StatusOr<nlohmann::json> Get(const std::string& name) const;

  // Adds or replaces a context. The first one is the current one from now on. kInvalidArgument:
  // `name` is not [A-Za-z0-9][-_.A-Za-z0-9]*, at most 63 characters.
  absl::Status Set(const std::string& name, nlohmann::json settings);
  absl::Status Use(const std::string& name);  // kNotFound as Get
  // kNotFound as Get. Without it there is no current one if it was that.
  absl::Status Remove(const std::string& name);

  const std::string& path() const { return path_; }
  // What is to be written to the file. Keys that this class does not know stay.
  std::string Text() const;

 private:
  ContextFile(std::string path, nlohmann::json json);

  std::string path_;
  nlohmann::json json_;
};

}  // namespace hearth::jobctl
