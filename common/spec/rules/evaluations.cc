// train.evaluations: names, which tell results apart.
#include <algorithm>
#include <map>
#include <string>

#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

bool IsResultName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

}  // namespace

void CheckEvaluations(const v1::JobSpec& job, Checker& check) {
  std::map<std::string, int> first;
  for (int i = 0; i < job.train().evaluations_size(); ++i) {
    const std::string& name = job.train().evaluations(i).name();
    const std::string field = Text("train.evaluations[", i, "].name");
    if (!IsResultName(name)) {
      check.Add(field, "must be 1 to 63 of a-z, 0-9, '-' and '_'");
      continue;
    }
    const auto [same, added] = first.emplace(name, i);
    if (!added) {
      check.Add(field, Text("train.evaluations[", same->second, "] is called \"", name,
                            "\" too; give one of them another name"));
    }
  }
}

}  // namespace hearth::spec
