#include "common/spec/feasibility/memory/state_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/spec/fields/idle.h"
#include "common/spec/fields/rows.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/resolve/resolve.h"

namespace hearth::spec {
namespace {

constexpr const char* kNoMasters = "none";

template <typename Section>
std::vector<std::string_view> Values(const char* field) {
  return NamesOf(RowOf(*Section::descriptor()->FindFieldByName(field)));
}

constexpr StateField kFields[] = {
    {"optimizer.name", &StateChoice::optimizer, [] { return Values<v1::OptimizerSpec>("name"); }},
    {"optimizer.state", &StateChoice::state, [] { return Values<v1::OptimizerSpec>("state"); }},
    {"optimizer.master", &StateChoice::master, [] { return Values<v1::OptimizerSpec>("master"); }},
    {"gradients.dtype", &StateChoice::gradients, [] { return Values<v1::GradientSpec>("dtype"); }},
};

// docs/memory.md and docs/optimizers.md: hearth-112m, 3,000 steps, means of three seeds, within
// 0.01 to 0.12 %. The rows of the default optimizer stand in the order of their losses. Another
// optimizer comes last whatever its loss: its learning rate has to be found again.
constexpr MeasuredLoss kLosses[] = {
    {"gradients.dtype", "bf16", "", ""},
    {"optimizer.state", "int8", "0.00 %", "adamw"},
    {"optimizer.master", "none", "+0.07 %", "adamw"},
    {"optimizer.state", "int4", "+0.69 %", "adamw"},
    {"optimizer.name", "muon", "-17 %", "muon"},
    {"optimizer.name", "adamw", "", "adamw"},
    {"optimizer.state", "int8", "-0.05 %", "muon"},
    {"optimizer.master", "none", "+0.14 %", "muon"},
    {"optimizer.state", "int4", "+0.75 %", "muon"},
};

const StateField& FieldAt(std::string_view path) {
  return *std::find_if(std::begin(kFields), std::end(kFields),
                       [&](const StateField& field) { return field.path == path; });
}

std::vector<std::string> IdleKeys(const v1::JobSpec& job) {
  std::vector<FieldViolation> violations;
  CheckIdleKeys(job, violations);
  std::vector<std::string> keys;
  for (const FieldViolation& violation : violations) {
    keys.push_back(violation.field);
  }
  return keys;
}

}  // namespace

absl::Span<const StateField> StateFields() {
  return kFields;
}

std::string SmallestGradients() {
  const auto bits = [](std::string_view name) {
    DType dtype = DType::kF32;
    ParseDType(name, dtype);
    return DTypeBits(dtype);
  };
  const std::vector<std::string_view> formats = Values<v1::GradientSpec>("dtype");
  return std::string(
      *std::min_element(formats.begin(), formats.end(),
                        [&](std::string_view a, std::string_view b) { return bits(a) < bits(b); }));
}

StateChoice ChoiceOf(const v1::JobSpec& job) {
  return {.optimizer = job.optimizer().name(),
          .state = job.optimizer().state(),
          .master = job.optimizer().master(),
          .gradients = job.gradients().dtype()};
}

v1::JobSpec WithChoice(v1::JobSpec job, const StateChoice& choice) {
  v1::OptimizerSpec& optimizer = *job.mutable_optimizer();
  optimizer.set_name(choice.optimizer);
  if (!choice.state.empty()) {
    optimizer.set_state(choice.state);
  }
  if (!choice.master.empty()) {
    optimizer.set_master(choice.master);
  }
  if (!choice.gradients.empty()) {
    v1::GradientSpec& gradients = *job.mutable_gradients();
    if (gradients.reduce_dtype() == gradients.dtype()) {  // its default, which follows
      gradients.clear_reduce_dtype();
    }
    gradients.set_dtype(choice.gradients);
  }
  return job;
}

absl::Status CheckChoice(const v1::JobSpec& job, const StateChoice& choice) {
  return CheckChanged(job, WithChoice(job, choice));
}

absl::Status CheckChanged(const v1::JobSpec& job, v1::JobSpec changed) {
  std::vector<FieldViolation> before;
  std::vector<FieldViolation> after;
  v1::JobSpec as_is = job;
  Resolve(as_is, before);
  Resolve(changed, after);
  // What is wrong with the job whatever it chooses here is not the choice's fault.
  std::erase_if(after, [&](const FieldViolation& violation) {
    return std::any_of(before.begin(), before.end(),
                       [&](const FieldViolation& old) { return old.field == violation.field; });
  });
  return ViolationsToStatus(after);
}

std::vector<StateChoice> AllowedChoices(const v1::JobSpec& job, bool gradients) {
  std::vector<StateChoice> choices = {ChoiceOf(job)};
  for (const StateField& field : kFields) {
    if (field.value == &StateChoice::gradients && !gradients) {
      continue;
    }
    std::vector<StateChoice> more;
    for (const StateChoice& choice : choices) {
      for (const std::string_view value : field.values()) {
        more.push_back(choice);
        more.back().*field.value = value;
      }
    }
    choices = std::move(more);
  }
  std::erase_if(choices, [&](const StateChoice& choice) { return !CheckChoice(job, choice).ok(); });
  return choices;
}

std::string ChoiceText(const StateChoice& choice) {
  const std::string masters =
      choice.master == kNoMasters ? "no masters" : choice.master + " masters";
  return absl::StrCat(choice.optimizer, ", state ", choice.state, ", ", masters);
}

std::string ShortChoiceText(const StateChoice& choice) {
  const std::string_view plain = StateFormatRows().front().name;
  return absl::StrCat(choice.optimizer, choice.state == plain ? "" : "+" + choice.state,
                      choice.master == kNoMasters ? "+no-masters" : "");
}

std::vector<std::string> IdleWith(const v1::JobSpec& job, const StateChoice& choice) {
  const std::vector<std::string> before = IdleKeys(job);
  std::vector<std::string> after = IdleKeys(WithChoice(job, choice));
  std::erase_if(after, [&](const std::string& key) {
    return std::find(before.begin(), before.end(), key) != before.end();
  });
  return after;
}

absl::Span<const MeasuredLoss> MeasuredLosses() {
  return kLosses;
}

std::string_view LossOf(const std::string& path,
                        const std::string& value,
                        const std::string& optimizer) {
  for (const MeasuredLoss& row : kLosses) {
    if (row.path == path && row.value == value && row.optimizer == optimizer) {
      return row.loss;
    }
  }
  return "";
}

std::vector<StateChoice> ChoicesByLoss(const v1::JobSpec& job) {
  std::vector<StateChoice> choices = {ChoiceOf(job)};
  // Each row doubles the list: all before it without and with it.
  for (const MeasuredLoss& row : kLosses) {
    const StateField& field = FieldAt(row.path);
    const size_t known = choices.size();
    for (size_t i = 0; i < known; ++i) {
      StateChoice changed = choices[i];
      changed.*field.value = row.value;
      if (std::find(choices.begin(), choices.end(), changed) == choices.end()) {
        choices.push_back(changed);
      }
    }
  }
  return choices;
}

}  // namespace hearth::spec
