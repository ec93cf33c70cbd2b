// Templates of `-o jsonpath=`, a part of what kubectl takes: '{.jobs[*].job_id}'. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace hearth::jobctl {

// Text with expressions in braces: a path, or text in double quotes with \n and \t in it. A path is
// made of .field, [N] (negative: from the end), [*] (all of a list or map) and ['key'] (of a map);
// it may begin with "$". A template without braces is one path. Fields have the names of the API
// and the job file; their JSON names (jobId) are taken too. Immutable.
class JsonPath {
 public:
  // kInvalidArgument: it cannot be read, or is more than that; the text says what to use instead.
  static absl::StatusOr<JsonPath> Parse(std::string_view text);

  // The template with the values of `message`, as its JSON has them, but with the field names of
  // the API: texts without quotes, sections and lists as JSON in one line, several values with a
  // blank between them, nothing for what is not set. kInvalidArgument: there is no such field (the
  // text names the nearest), a step does not fit its place, or a list has no element N.
  absl::StatusOr<std::string> Print(const google::protobuf::Message& message) const;

 private:
  struct Step {
    enum Kind { kField, kIndex, kAll } kind;
    std::string name;  // of a field, or the key of a map's entry
    int index;
  };
  // A path, or plain text.
  struct Part {
    bool is_path;
    std::string text;  // of a path: as it was typed
    std::vector<Step> steps;
  };

  static absl::StatusOr<Part> ParsePath(std::string_view text);
  static absl::StatusOr<Part> ParseExpression(std::string_view text);
  // The steps with the names that `type` knows.
  static absl::StatusOr<std::vector<Step>> Resolve(const Part& part,
                                                   const google::protobuf::Descriptor& type);

  std::vector<Part> parts_;
};

}  // namespace hearth::jobctl
