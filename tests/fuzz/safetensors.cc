#include "common/weights/safetensors.h"

#include <cstdint>

#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {

bool Safetensors(std::string_view bytes) {
  const std::string path = ScratchFile("model.safetensors", bytes);
  const auto file = weights::SafetensorsFile::Open(Env::Real(), path);
  if (!file.ok()) {
    return false;
  }
  // Every byte that a view promises is there.
  unsigned sum = 0;
  for (const weights::TensorView& tensor : (*file)->tensors()) {
    const auto* data = static_cast<const uint8_t*>(tensor.data);
    for (int64_t i = 0; i < tensor.bytes(); ++i) {
      sum += data[i];
    }
  }
  volatile unsigned keep = sum;
  static_cast<void>(keep);
  return true;
}

}  // namespace hearth::fuzz
