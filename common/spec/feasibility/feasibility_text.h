// A judgement as text for people, shared by `jobctl plan` and `hearth-trainer plan`.
#pragma once

#include <string>

#include "common/spec/feasibility/feasibility.h"

namespace hearth::spec {

// Several lines; `verbose`: also a line for each product by shape.
std::string FeasibilityText(const Feasibility& f, const FeasibilityQuery& query, bool verbose);

// ParameterByteRows() as a table.
std::string StateFormatsText();

}  // namespace hearth::spec
