#include "worker/trainer/model/sub_block.h"

#include "absl/strings/str_cat.h"

namespace hearth::trainer {

kernels::TensorView ModelContext::Activation(int layer,
                                             std::string_view name,
                                             std::initializer_list<int64_t> shape) const {
  const absl::string_view key(name.data(), name.size());
  const std::string own = absl::StrCat("layers.", layer, ".", key);
  if (arena->Has(own)) {
    return arena->Floats(own, shape);
  }
  const std::string shared = absl::StrCat("shared.", key);
  return arena->Has(shared) ? arena->Floats(shared, shape) : kernels::TensorView();
}

}  // namespace hearth::trainer
