#include <filesystem>
#include <string>

#include "common/base/status_macros.h"
#include "common/weights/model_files.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {
namespace {

// A safetensors file with one number, "a".
std::string OneTensor() {
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + std::string(4, '\0');
}

}  // namespace

// model.safetensors.index.json of a folder with one file of weights.
bool WeightIndex(std::string_view bytes) {
  ScratchFile("weight_index/part.safetensors", OneTensor());
  const std::string index = ScratchFile("weight_index/model.safetensors.index.json", bytes);
  const auto files =
      weights::ModelFiles::Open(Env::Real(), std::filesystem::path(index).parent_path().string());
  if (!files.ok()) {
    return false;
  }
  for (const weights::TensorView* tensor : files->Tensors()) {
    HEARTH_CHECK(files->Find(tensor->name) != nullptr, "a tensor that is listed is found");
  }
  return !files->Tensors().empty();
}

}  // namespace hearth::fuzz
