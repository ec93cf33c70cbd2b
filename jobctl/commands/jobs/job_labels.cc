#include "jobctl/commands/jobs/job_labels.h"

#include "absl/strings/str_cat.h"

namespace hearth::jobctl {

void AddLabels(CLI::App& app, std::vector<std::string>& labels, const std::string& what) {
  app.add_option("-l,--label", labels, what + ": key=value, or key for any value; repeatable")
      ->allow_extra_args(false)
      // As a key, "team!" would find nothing without a word.
      ->check([](const std::string& label) {
        return label.substr(0, label.find('=')).find('!') == std::string::npos
                   ? ""
                   : label + " is neither key=value nor key";
      });
}

std::string LabelFilter(const std::vector<std::string>& labels) {
  std::string filter;
  for (const std::string& label : labels) {
    absl::StrAppend(&filter, " label.", label);
  }
  return filter;
}

}  // namespace hearth::jobctl
