// The tables of cases, one per op folder; cases.cc joins them.
#pragma once

#include <vector>

#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {

std::vector<OpCase> GemmCases();
std::vector<OpCase> EmbeddingCases();
std::vector<OpCase> RmsNormCases();
std::vector<OpCase> LayerNormCases();
std::vector<OpCase> QkNormRopeCases();
std::vector<OpCase> SwigluCases();
std::vector<OpCase> GatedGemmCases();
std::vector<OpCase> GeluCases();
std::vector<OpCase> AttentionCases();
std::vector<OpCase> LinearCrossEntropyCases();
std::vector<OpCase> DropoutCases();
std::vector<OpCase> AdamWCases();
std::vector<OpCase> GradNormCases();
std::vector<OpCase> ScaleCases();
std::vector<OpCase> MovingAverageCases();
std::vector<OpCase> RoundCases();
std::vector<OpCase> AmaxCases();
std::vector<OpCase> DrawNormalCases();
std::vector<OpCase> StepGateCases();
std::vector<OpCase> CountCodesCases();
std::vector<OpCase> QuantizeCases();
std::vector<OpCase> BlockQuantizeCases();
std::vector<OpCase> CachedAttentionCases();
std::vector<OpCase> SampleTokensCases();
std::vector<OpCase> NewtonSchulzCases();
std::vector<OpCase> MuonCases();

}  // namespace hearth::kernels::harness
