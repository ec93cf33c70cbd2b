// The table of tasks: what `task` in the job file may say. What a rank does for a task, and the
// loss functions of those that train, live in the engine, keyed by ObjectiveKind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

enum class ObjectiveKind : uint8_t { kPretrain, kSft, kEval };

struct ObjectiveRow {
  ObjectiveKind kind;
  std::string_view name;
  std::string_view comment;
  // It changes a model step by step, writes checkpoints, and goes on from the newest one. A task
  // that does not (`evaluate` in the job file) reads each model of Job.models in a step of its own:
  // a reported step is done for good, and a restart goes on after it.
  bool trains;
  // The loss masks of the datasets say which targets count; of a dataset without one all do. Each
  // list of datasets needs one with a mask, and packing must be best_fit: other samples may have no
  // target that counts.
  bool uses_loss_mask;
  // Default of data.packing, a row of data/sample_tables.h; empty: the task has no data of its own.
  std::string_view packing;
  std::string_view attention;  // default of data.attention
  std::string_view unit;       // what Job.step counts, in the singular, for people
};

absl::Span<const ObjectiveRow> Objectives();
const ObjectiveRow* FindObjective(std::string_view name);
std::vector<std::string_view> ObjectiveNames();

// Whether the task of the job trains; true for a task that the table lacks.
bool Trains(const v1::JobSpec& job_spec);
// Steps until the job is done: train.steps, or the models that it reads.
int64_t TotalSteps(const v1::Job& job);
// The unit of the job's task; "step" of one that is no row.
std::string_view StepUnit(const v1::JobSpec& job_spec);
// The same as a heading, in the plural: "Steps", "Models".
std::string StepHeading(const v1::JobSpec& job_spec);
// "step 400 of 1000", "model 2 of 3".
std::string StepText(const v1::Job& job);

}  // namespace hearth::spec
