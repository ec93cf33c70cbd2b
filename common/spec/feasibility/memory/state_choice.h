// A job's choices for what is kept with each parameter: the optimizer, and the formats of its
// state, of masters and of gradients. The values are those of the job file's rows, so plans offer a
// format as soon as it has its row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hearth/v1/job.pb.h"

namespace hearth::spec {

struct StateChoice {
  std::string optimizer;  // optimizer.name
  std::string state;      // optimizer.state
  std::string master;     // optimizer.master
  std::string gradients;  // gradients.dtype; empty = the recipe's

  auto operator<=>(const StateChoice&) const = default;  // NOLINT(modernize-use-nullptr)
};

// A field of the job file that is part of the choice.
struct StateField {
  const char* path;  // "optimizer.state"
  std::string StateChoice::*value;
  std::vector<std::string_view> (*values)();  // that its row allows
};
absl::Span<const StateField> StateFields();

// `job` is resolved.
StateChoice ChoiceOf(const v1::JobSpec& job);
v1::JobSpec WithChoice(v1::JobSpec job, const StateChoice& choice);
// kInvalidArgument: the job file's rules refuse the job with this choice. Without a GPU: what a
// model's sizes forbid shows in its plan.
absl::Status CheckChoice(const v1::JobSpec& job, const StateChoice& choice);
// The same for a job that differs from `job` in other fields.
absl::Status CheckChanged(const v1::JobSpec& job, v1::JobSpec changed);
// All combinations that the rules allow `job`, in the order of the fields and their values;
// gradients are those of `job` unless their formats are asked for too.
std::vector<StateChoice> AllowedChoices(const v1::JobSpec& job, bool gradients);
// The value of gradients.dtype that takes the fewest bits.
std::string SmallestGradients();
// The choice as people say it: "adamw, state int8, no masters".
std::string ChoiceText(const StateChoice& choice);
// What differs from FP32: "adamw", "adamw+int8+no-masters".
std::string ShortChoiceText(const StateChoice& choice);
// Keys that mean nothing any more with this choice, which submitting refuses.
std::vector<std::string> IdleWith(const v1::JobSpec& job, const StateChoice& choice);

// What was measured of a value's loss.
struct MeasuredLoss {
  const char* path;
  std::string_view value;
  std::string_view loss;  // against the default: "+0.8 %"; empty = not measured
  // The optimizer that it was measured with: the figure does not hold for others. Rows of
  // optimizer.name have the value itself.
  std::string_view optimizer;
};
// In the order in which a plan that must change something tries them: all combinations of the rows
// before a row come before that row. A plan shows what a value saves that has no row, but does not
// propose it.
absl::Span<const MeasuredLoss> MeasuredLosses();
// What the value costs in a job with the optimizer; "" = not measured.
std::string_view LossOf(const std::string& path,
                        const std::string& value,
                        const std::string& optimizer);

// The job's choice and all combinations of it with these rows, in that order; the first is the
// job's own. CheckChoice may refuse others.
std::vector<StateChoice> ChoicesByLoss(const v1::JobSpec& job);

}  // namespace hearth::spec
