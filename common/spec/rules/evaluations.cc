// train.evaluations, train.samples and evaluate: names, which tell results apart, what an
// evaluation needs, and how much a report may hold.
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

void CheckStops(const v1::TextRequest& text, const std::string& field, Checker& check) {
  if (text.stop_size() > kStopsMax) {
    check.Add(field, Text(text.stop_size(), " are more than ", kStopsMax));
  }
  for (int i = 0; i < text.stop_size(); ++i) {
    const size_t bytes = text.stop(i).size();
    if (bytes == 0 || bytes > kStopBytesMax) {
      check.Add(Text(field, '[', i, ']'),
                Text(bytes, " bytes is out of range; must be 1..", kStopBytesMax));
    }
  }
}

// Reports carry the texts to the coordinator, which keeps them all.
void CheckSamples(const v1::TrainSpec& train, Checker& check) {
  const auto& samples = train.samples();
  if (samples.size() > kSamplesMax) {
    check.Add("train.samples", Text(samples.size(), " are more than ", kSamplesMax));
  }
  for (int i = 0; i < samples.size(); ++i) {
    const v1::TextRequest& text = samples[i];
    const std::string at = Text("train.samples[", i, "].");
    if (text.prompt().size() > kSamplePromptBytesMax) {
      check.Add(at + "prompt", Text(text.prompt().size(), " bytes are more than ",
                                    kSamplePromptBytesMax, " during training"));
    }
    if (text.max_tokens() > kSampleTokensMax) {
      check.Add(at + "max_tokens", Text(text.max_tokens(), " are more than ", kSampleTokensMax,
                                        " during training; jobctl sample writes longer texts"));
    }
    CheckStops(text, at + "stop", check);
  }
}

}  // namespace

void CheckEvaluations(const v1::JobSpec& job, Checker& check) {
  CheckNames(job.train().evaluations(), "train.evaluations", check);
  CheckSamples(job.train(), check);
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
