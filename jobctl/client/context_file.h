// The context file: settings of jobctl, and named sets of them, one for each coordinator that a
// person works with. Pure: text in, text out.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {

// {"coordinator": "host:7070", "current": "lab", "contexts": {"lab": {"coordinator": ...}}}. A
// setting at the top (settings.h) applies if the chosen context does not have it.
class ContextFile {
 public:
  // `text`: the content of the file at `path`, "" = there is no file. kInvalidArgument names the
  // path, and the key whose value is not a text or not an object.
  static absl::StatusOr<ContextFile> Parse(const std::string& path, const std::string& text);

  // The settings at the top: an object, with other keys in it.
  const nlohmann::json& defaults() const { return json_; }
  // The context that is used unless another is named; "" = none.
  std::string current() const;
  std::vector<std::string> names() const;  // sorted
  // The settings of a context, an object. kNotFound lists the contexts that there are.
  absl::StatusOr<nlohmann::json> Get(const std::string& name) const;

  // Adds or replaces a context. The first one becomes the current one. kInvalidArgument: `name` is
  // not [A-Za-z0-9][-_.A-Za-z0-9]*, at most 63 characters.
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
