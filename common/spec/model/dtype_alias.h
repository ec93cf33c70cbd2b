// The number formats that specs name, as this folder says them.
#pragma once

#include "common/formats/dtype.h"

namespace hearth::spec {

using formats::DType;
using formats::DTypeBits;
using formats::DTypeBytes;
using formats::DTypeName;
using formats::ParseDType;

}  // namespace hearth::spec
