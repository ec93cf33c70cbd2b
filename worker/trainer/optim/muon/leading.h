// Momenta that are kept with their leading directions apart (kernels/muon_leading).
#pragma once

#include <vector>

#include "common/spec/model/parameter.h"
#include "kernels/muon_leading/muon_leading.h"
#include "worker/trainer/model/parameter_store.h"

namespace hearth::trainer {

// The matrices of a piece, which is a whole parameter of the table. Its momentum comes first of its
// states and needs whole matrices. Matrices are numbered in the order of the table.
std::vector<kernels::MuonLeadingMatrix> LeadingMatrices(const std::vector<spec::Parameter>& table,
                                                        const StorePiece& piece);

}  // namespace hearth::trainer
