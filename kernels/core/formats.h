// The names of common/formats as kernels say them.
#pragma once

#include "common/formats/block_layout.h"
#include "common/formats/codecs.h"
#include "common/formats/dtype.h"
#include "common/formats/hd.h"
#include "common/formats/model_functions.h"
#include "common/formats/quantization.h"

namespace hearth::kernels {

using formats::Activation;
using formats::AddRn;
using formats::BitsFloat;
using formats::BlockLayout;
using formats::BlockLayoutRow;
using formats::BlockScaleBytes;
using formats::BlockScaleOffset;
using formats::BlocksOf;
using formats::DecodeBf16;
using formats::DecodeE2m1;
using formats::DecodeE4m3;
using formats::DecodeE5m2;
using formats::DecodeE8m0;
using formats::DecodeF16;
using formats::DivRn;
using formats::DType;
using formats::DTypeBits;
using formats::DTypeBytes;
using formats::DTypeName;
using formats::DTypeOf;
using formats::EncodeBf16;
using formats::EncodeBf16Stochastic;
using formats::EncodeE2m1;
using formats::EncodeE2m1Pair;
using formats::EncodeE2m1Stochastic;
using formats::EncodeE4m3;
using formats::EncodeE4m3Stochastic;
using formats::EncodeE5m2;
using formats::EncodeE5m2Stochastic;
using formats::EncodeE8m0Up;
using formats::EncodeF16;
using formats::FloatBits;
using formats::HadamardSigns;
using formats::HoldsValues;
using formats::InverseE8m0;
using formats::kBlockLayoutCount;
using formats::kBlockLayouts;
using formats::kE2m1Max;
using formats::MaxFinite;
using formats::MulRn;
using formats::PaddedScaleLines;
using formats::RopeScaling;
using formats::RopeScalingType;
using formats::RoundBf16;
using formats::Rounding;
using formats::RoundToFormat;
using formats::RowOf;
using formats::SubRn;
using formats::SwizzledScaleBytes;
using formats::SwizzledScaleOffset;
using formats::VisitLayout;
using formats::WideScales;

}  // namespace hearth::kernels
