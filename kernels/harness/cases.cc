#include "kernels/harness/cases.h"

#include <iterator>

namespace hearth::kernels::harness {

std::vector<OpCase> AllCases() {
  using Table = std::vector<OpCase> (*)();
  constexpr Table kTables[] = {
      GemmCases,
      EmbeddingCases,
      RmsNormCases,
      LayerNormCases,
      QkNormRopeCases,
      SwigluCases,
      GeluCases,
      AttentionCases,
      LinearCrossEntropyCases,
      GatedGemmCases,
      DropoutCases,
      AdamWCases,
      GradNormCases,
      ScaleCases,
      MovingAverageCases,
      RoundCases,
      AmaxCases,
      StepGateCases,
      QuantizeCases,
      CountCodesCases,
      BlockQuantizeCases,
      DrawNormalCases,
      CachedAttentionCases,
      SampleTokensCases,
      NewtonSchulzCases,
      MuonCases,
  };
  std::vector<OpCase> all;
  for (Table table : kTables) {
    std::vector<OpCase> cases = table();
    std::move(cases.begin(), cases.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace hearth::kernels::harness
