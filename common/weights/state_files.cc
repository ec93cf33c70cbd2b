#include "common/weights/state_files.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::weights {
namespace {

// First element of a tensor that is a piece of a whole one; 0 of one that is whole.
int64_t FirstElement(const SafetensorsFile& file, const TensorView& tensor) {
  const auto text = file.metadata().find(absl::StrCat("first.", tensor.name));
  int64_t first = 0;
  return text != file.metadata().end() && absl::SimpleAtoi(text->second, &first) ? first : 0;
}

}  // namespace

absl::StatusOr<StateFiles> StateFiles::Open(Env& env, const std::string& dir) {
  const std::string folder = absl::StrCat(dir, "/", std::string(kStateFolder));
  StateFiles state;
  if (!env.IsDirectory(folder)) {
    return state;
  }
  HEARTH_ASSIGN_OR_RETURN(std::vector<std::string> names, env.ListDir(folder));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (name.ends_with(kStateFileEnd)) {
      HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file,
                              SafetensorsFile::Open(env, absl::StrCat(folder, "/", name)));
      state.files_.push_back(std::move(file));
    }
  }
  return state;
}

StateFiles::Pieces StateFiles::Find(const std::string& name, TensorDType dtype) const {
  Pieces pieces;
  for (const std::unique_ptr<SafetensorsFile>& file : files_) {
    const TensorView* const tensor = file->Find(name);
    if (tensor != nullptr && tensor->dtype == dtype) {
      pieces[FirstElement(*file, *tensor)] = *tensor;
    }
  }
  return pieces;
}

bool StateFiles::HasAny(std::string_view prefix) const {
  for (const std::unique_ptr<SafetensorsFile>& file : files_) {
    for (const TensorView& tensor : file->tensors()) {
      if (std::string_view(tensor.name).starts_with(prefix)) {
        return true;
      }
    }
  }
  return false;
}

int64_t Covered(const StateFiles::Pieces& pieces) {
  int64_t end = 0;
  for (const auto& [first, tensor] : pieces) {
    end = first == end ? end + tensor.elements() : end;
  }
  return end;
}

}  // namespace hearth::weights
