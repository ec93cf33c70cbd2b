#include "common/spec/objective/objective_table.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/table_rows.h"
#include "common/spec/data/sample_tables.h"

namespace hearth::spec {
namespace {

constexpr ObjectiveRow kObjectives[] = {
    {ObjectiveKind::kPretrain, "pretrain", "predict each next token; every token weighs 1", true,
     false, "concat", "causal", "step"},
    {ObjectiveKind::kSft, "sft",
     "supervised fine-tuning; the tokens that the loss mask names count", true, true, "best_fit",
     kDocumentAttention, "step"},
    {ObjectiveKind::kEval, "eval", "evaluate models; trains nothing", false, false, "", "",
     "model"},
};

}  // namespace

absl::Span<const ObjectiveRow> Objectives() {
  return kObjectives;
}

const ObjectiveRow* FindObjective(std::string_view name) {
  return FindRow(kObjectives, &ObjectiveRow::name, name);
}

std::vector<std::string_view> ObjectiveNames() {
  return ColumnOf(kObjectives, &ObjectiveRow::name);
}

bool Trains(const v1::JobSpec& job_spec) {
  const ObjectiveRow* const row = FindObjective(job_spec.task());
  return row == nullptr || row->trains;
}

int64_t TotalSteps(const v1::Job& job) {
  return Trains(job.spec()) ? job.spec().train().steps() : job.models_size();
}

std::string_view StepUnit(const v1::JobSpec& job_spec) {
  const ObjectiveRow* const row = FindObjective(job_spec.task());
  return row == nullptr ? "step" : row->unit;
}

std::string StepHeading(const v1::JobSpec& job_spec) {
  std::string heading = absl::StrCat(std::string(StepUnit(job_spec)), "s");
  heading[0] = absl::ascii_toupper(static_cast<unsigned char>(heading[0]));
  return heading;
}

std::string StepText(const v1::Job& job) {
  return absl::StrCat(std::string(StepUnit(job.spec())), " ", job.step(), " of ", TotalSteps(job));
}

}  // namespace hearth::spec
