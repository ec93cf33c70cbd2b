// Questions and judgements as the messages of PlanService, both ways without loss: jobctl prints
// what a coordinator judged as if it had judged it itself.
#pragma once

#include "common/spec/feasibility/feasibility.h"
#include "hearth/v1/plan.pb.h"

namespace hearth::spec {

v1::PlanQuestion QuestionOf(const FeasibilityQuery& query);
// Prices::currency is not part of a question.
FeasibilityQuery QueryOf(const v1::PlanQuestion& question);

v1::PlanJudgement JudgementOf(const Feasibility& f);
// A verdict or a format that this version does not know: kNo, kBf16.
Feasibility FeasibilityOf(const v1::PlanJudgement& judgement);

// Leaves out the products.
v1::StepPlan StepPlanOf(const StepTime& time);

}  // namespace hearth::spec
