// Buffers of optimizers' cases: masters, moments, and states in blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/formats/state_blocks.h"
#include "kernels/harness/harness.h"

namespace hearth::kernels::harness {

// f32 on a GPU and as wide as the run on the CPU, or bf16 everywhere; read and written.
BufferSpec OptimizerState(const std::string& name,
                          int64_t count,
                          DType dtype,
                          const Fill& fill = {});

// Bytes of the codes of `count` elements.
int64_t CodeBytes(formats::StateCodec codec, int64_t count);

// Adds a state of `count` elements in blocks: the buffer `codes`, compared bit for bit, and that of
// their `scales`. It begins as the values of the elements; without `value` as zeros, which takes no
// time in cases that are only timed.
void AddStateBlocks(formats::StateCodec codec,
                    int64_t count,
                    const std::function<float(int64_t i)>& value,
                    const std::string& codes,
                    const std::string& scales,
                    OpCase& c);

}  // namespace hearth::kernels::harness
