// The short name of a linear layer, as tables of its products show it.
#pragma once

#include <string>

#include "common/spec/model/parameter.h"

namespace hearth::spec {

// The name of a linear layer's weight without its layer: "head" for the output projection, tied or
// not, else the part before ".weight": "qkv" of "layers.3.qkv.weight".
std::string LinearName(const Parameter& weight);

}  // namespace hearth::spec
