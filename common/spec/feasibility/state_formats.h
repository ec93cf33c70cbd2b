// How many bytes a parameter takes in the formats of weights, gradients and optimizer state that
// people ask for, also those that this version cannot train in; and the largest model by that.
#pragma once

#include <string_view>

#include "absl/types/span.h"

namespace hearth::spec {

// Bytes a parameter.
struct StateFormat {
  std::string_view name;
  double weights = 0;  // masters included
  double gradients = 0;
  double states = 0;
  double scales = 0;   // of blocks of gradients and states, which the names of formats leave out
  bool built = false;  // this version trains so

  double bytes() const { return weights + gradients + states; }
  double with_scales() const { return bytes() + scales; }
};

// In the order in which `plan --bytes` prints them.
absl::Span<const StateFormat> StateFormats();
// Rows of it, from the most bytes to the least, that tables of largest models have.
absl::Span<const StateFormat* const> StateTiers();

// Share of a GPU's nominal memory that such tables count for parameters; the rest is for
// activations and libraries.
inline constexpr double kParameterShare = 0.8;

// Parameters that fit by that rule. `memory_gb` in 10^9 bytes.
double LargestParameters(double memory_gb, double bytes_per_parameter);

}  // namespace hearth::spec
