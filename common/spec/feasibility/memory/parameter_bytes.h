// Bytes per parameter for each combination of formats of weights, gradients and optimizer state:
// all combinations that this version trains, and others that people ask about. Also the largest
// model that these bytes allow.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace hearth::spec {

// Bytes per parameter of a large matrix of the layers. Embeddings, norms and biases have state in
// FP32 whatever optimizer.state says (common/spec/optimizer).
struct ParameterBytes {
  std::string name;
  double weights = 0;  // masters included
  double gradients = 0;
  double states = 0;
  double scales = 0;   // of blocks of gradients and states, which the names of formats leave out
  bool built = false;  // this version supports it

  double bytes() const { return weights + gradients + states; }
  double with_scales() const { return bytes() + scales; }
};

// In the order in which `plan --bytes` prints them: every combination of optimizer, state, masters
// and gradients that the job file's rules allow in the recipe bf16, then what people ask for.
// Whether this version trains the latter follows from the tables of recipes, optimizers and
// formats.
const std::vector<ParameterBytes>& ParameterByteRows();
// What people ask for: the rows of ParameterByteRows behind those that are named by a job's fields.
absl::Span<const ParameterBytes> AskedParameterBytes();
// Rows of it, from the most bytes to the least, that tables of largest models have.
std::vector<const ParameterBytes*> ParameterByteTiers();

// Share of a GPU's nominal memory that such tables count for parameters; the rest is for
// activations and libraries.
inline constexpr double kParameterShare = 0.8;

// Parameters that fit by that rule. `memory_gb` in 10^9 bytes.
double LargestParameters(double memory_gb, double bytes_per_parameter);

}  // namespace hearth::spec
