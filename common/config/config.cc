#include "common/config/config.h"

#include <algorithm>
#include <exception>

#include "common/base/status_macros.h"
#include "common/config/reader.h"
#include "common/config/yaml_writer.h"

namespace hearth::config {
namespace {

// More errors would not help, and a hostile file must not cause a huge message.
constexpr size_t kMaxErrors = 50;

absl::Status ToStatus(std::vector<ReadError>& errors, std::string_view file_name) {
  std::stable_sort(errors.begin(), errors.end(),
                   [](const ReadError& a, const ReadError& b) { return a.line < b.line; });
  std::string text;
  for (size_t i = 0; i < errors.size() && i < kMaxErrors; ++i) {
    const ReadError& error = errors[i];
    text += (i == 0 ? "" : "\n") + std::string(file_name) + ':';
    text += error.line > 0 ? std::to_string(error.line) + ": " : " ";
    text += (error.path.empty() ? "" : error.path + ": ") + error.text;
  }
  if (errors.size() > kMaxErrors) {
    text += "\nand " + std::to_string(errors.size() - kMaxErrors) + " more";
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace

absl::Status ParseInto(std::string_view text,
                       std::string_view file_name,
                       google::protobuf::Message& message) {
  std::vector<ReadError> errors;
  const absl::StatusOr<YAML::Node> node = LoadYaml(text, errors);
  if (node.ok()) {
    try {
      if (node->IsNull()) {
        errors.push_back({0, "", "the file is empty"});
      } else {
        Reader(errors).ReadMessage(*node, "", message);
      }
    } catch (const std::exception& e) {
      errors.push_back({0, "", std::string("not valid YAML: ") + e.what()});
    }
  }
  return errors.empty() ? absl::OkStatus() : ToStatus(errors, file_name);
}

absl::StatusOr<v1::JobSpec> ParseJobSpec(std::string_view text, std::string_view file_name) {
  v1::JobSpec job_spec;
  HEARTH_RETURN_IF_ERROR(ParseInto(text, file_name, job_spec));
  return job_spec;
}

std::string ToYaml(const v1::JobSpec& job_spec) {
  return WriteBlock(job_spec);
}

}  // namespace hearth::config
