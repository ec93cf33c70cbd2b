// Names, labels and selectors.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/base/clip_text.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

constexpr size_t kNameBytes = 63;
constexpr int kMaxLabels = 32;

const char kNameRule[] =
    "must be lower-case letters, digits, '-' and '.', begin and end with a letter or digit, and "
    "have at most 63 characters";

bool IsName(std::string_view name) {
  const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > kNameBytes || !alnum(name.front()) || !alnum(name.back())) {
    return false;
  }
  for (char c : name) {
    if (!alnum(c) && c != '-' && c != '.') {
      return false;
    }
  }
  return true;
}

// For a message: not long, and without what a terminal would obey.
std::string Quotable(std::string_view text) {
  std::string out = ClipText(text, 100);
  std::replace_if(
      out.begin(), out.end(),
      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, '?');
  return out;
}

template <typename Map>
void CheckMap(std::string_view field, const Map& labels, Checker& check) {
  if (labels.size() > kMaxLabels) {
    check.Add(field, Text(labels.size(), " entries; at most ", kMaxLabels));
  }
  for (const auto& [key, value] : labels) {
    const std::string problem = LabelProblem(key, value);
    if (!problem.empty()) {
      check.Add(Text(field, '.', Quotable(key)), problem);
    }
  }
}

}  // namespace

std::string LabelProblem(std::string_view key, std::string_view value) {
  if (!IsName(key)) {
    return Text("key \"", Quotable(key), "\" ", kNameRule);
  }
  const bool printable = std::none_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  return value.size() <= kNameBytes && printable
             ? ""
             : Text("the value \"", Quotable(value), "\" of ", key,
                    " must have at most 63 characters, none of them a control character");
}

void CheckLabels(const v1::JobSpec& job, Checker& check) {
  if (!job.name().empty()) {
    check.Rule("name", IsName(job.name()), Text('"', job.name(), '"'), kNameRule);
  }
  CheckMap("labels", job.labels(), check);
  CheckMap("resources.selector", job.resources().selector(), check);
}

}  // namespace hearth::spec
