// train.evaluations and evaluate: names, which tell results apart, and what an evaluation needs.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

bool IsResultName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

// The names of a list of evaluations or questions, `list`.
template <typename List>
void CheckNames(const List& entries, const std::string& list, Checker& check) {
  std::map<std::string, int> first;
  for (int i = 0; i < entries.size(); ++i) {
    const std::string& name = entries.Get(i).name();
    const std::string field = Text(list, '[', i, "].name");
    if (!IsResultName(name)) {
      check.Add(field, "must be 1 to 63 of a-z, 0-9, '-' and '_'");
      continue;
    }
    const auto [same, added] = first.emplace(name, i);
    if (!added) {
      check.Add(field, Text(list, '[', same->second, "] is called \"", name,
                            "\" too; give one of them another name"));
    }
  }
}

// No entry is empty or there twice.
void CheckPaths(const google::protobuf::RepeatedPtrField<std::string>& paths,
                const std::string& list,
                Checker& check) {
  for (int i = 0; i < paths.size(); ++i) {
    if (paths[i].empty()) {
      check.Add(Text(list, '[', i, ']'), "must not be empty");
    } else if (std::find(paths.begin(), paths.begin() + i, paths[i]) != paths.begin() + i) {
      check.Add(Text(list, '[', i, ']'), Text(paths[i], " is listed twice"));
    }
  }
}

void CheckSteps(const v1::EvaluateSpec& evaluate, Checker& check) {
  const auto& steps = evaluate.steps();
  if (!steps.empty() && !evaluate.has_job()) {
    check.Add("evaluate.steps", "changes nothing: it acts only with evaluate.job");
  }
  for (int i = 0; i < steps.size(); ++i) {
    if (steps[i] < 1) {
      check.Add(Text("evaluate.steps[", i, ']'), Text(steps[i], " is out of range; must be >= 1"));
    } else if (std::find(steps.begin(), steps.begin() + i, steps[i]) != steps.begin() + i) {
      check.Add(Text("evaluate.steps[", i, ']'), Text(steps[i], " is listed twice"));
    }
  }
}

void CheckCount(int given, int most, const std::string& field, Checker& check) {
  if (given > most) {
    check.Add(field, Text(given, " are more than ", most, ", the most that a job evaluates"));
  }
}

}  // namespace

void CheckEvaluations(const v1::JobSpec& job, Checker& check) {
  CheckNames(job.train().evaluations(), "train.evaluations", check);
}

void CheckEvaluate(const v1::JobSpec& job, Checker& check) {
  const v1::EvaluateSpec& evaluate = job.evaluate();
  if (evaluate.job().empty() == evaluate.models().empty()) {
    check.Add("evaluate.job",
              "give either evaluate.job or evaluate.models: one of them says what "
              "is evaluated");
  }
  if (evaluate.data().empty() && evaluate.questions().empty()) {
    check.Add("evaluate.data",
              "required: without evaluate.data and evaluate.questions nothing is evaluated");
  }
  CheckCount(evaluate.models_size(), kEvaluatedModelsMax, "evaluate.models", check);
  CheckCount(evaluate.steps_size(), kEvaluatedModelsMax, "evaluate.steps", check);
  CheckCount(evaluate.data_size(), kEvaluatedOnMax, "evaluate.data", check);
  CheckCount(evaluate.questions_size(), kEvaluatedOnMax, "evaluate.questions", check);
  CheckSteps(evaluate, check);
  CheckPaths(evaluate.models(), "evaluate.models", check);
  CheckPaths(evaluate.data(), "evaluate.data", check);
  CheckNames(evaluate.questions(), "evaluate.questions", check);
  if (job.resources().workers() != 1) {
    check.Add("resources.workers", Text(job.resources().workers(),
                                        " is out of range; a job that "
                                        "evaluates runs on one worker"));
  }
}

}  // namespace hearth::spec
