#include "kernels/harness/optimizer_state.h"

#include <vector>

namespace hearth::kernels::harness {

BufferSpec OptimizerState(const std::string& name, int64_t count, DType dtype, const Fill& fill) {
  BufferSpec spec = Statistic(name, {count}, Role::kAccumulate);
  spec.fill = fill;
  spec.dtype = dtype;
  return spec;
}

int64_t CodeBytes(formats::StateCodec codec, int64_t count) {
  return (count * formats::RowOf(codec).bits + 7) / 8;
}

void AddStateBlocks(formats::StateCodec codec,
                    int64_t count,
                    const std::function<float(int64_t i)>& value,
                    const std::string& codes,
                    const std::string& scales,
                    OpCase& c) {
  const Fill zeros = {Fill::kConstant, 0.0, 0.0};
  const int64_t words = (CodeBytes(codec, count) + 7) / 8;
  const int64_t block = formats::RowOf(codec).block;
  BufferSpec code_buffer = {codes, {words}, Role::kAccumulate, zeros, DType::kI64};
  BufferSpec scale_buffer = {
      scales, {(count + block - 1) / block}, Role::kAccumulate, zeros, DType::kU8};
  if (value != nullptr) {
    std::vector<float> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = value(i);
    }
    std::vector<float> scale_values(static_cast<size_t>(scale_buffer.shape[0]));
    code_buffer.contents.assign(static_cast<size_t>(words) * 8, '\0');
    formats::EncodeStateBlocks(codec, values.data(), count,
                               reinterpret_cast<uint8_t*>(code_buffer.contents.data()),
                               scale_values.data());
    scale_buffer.contents.assign(reinterpret_cast<const char*>(scale_values.data()),
                                 scale_values.size() * sizeof(float));
  }
  c.buffers.push_back(code_buffer);
  c.buffers.push_back(scale_buffer);
}

}  // namespace hearth::kernels::harness
