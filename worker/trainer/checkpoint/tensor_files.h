// The names of common/weights that checkpoints are made of.
#pragma once

#include "common/weights/manifest.h"
#include "common/weights/safetensors.h"

namespace hearth::trainer {

using weights::kManifestFile;
using weights::ManifestEntry;
using weights::ManifestToJson;
using weights::ParseManifest;
using weights::RecordedModelFiles;
using weights::SafetensorsFile;
using weights::TensorDType;
using weights::TensorDTypeBytes;
using weights::TensorDTypeName;
using weights::TensorEntry;
using weights::TensorView;
using weights::WriteSafetensors;

}  // namespace hearth::trainer
