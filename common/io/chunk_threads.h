// Numbered pieces of work, shared out among threads.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace hearth {

// Calls `work(index)` for index 0 .. count - 1, each once, from the caller and up to threads - 1
// more threads. After an error no further piece is begun. Returns when all threads are done: OK, or
// the error of the lowest index that has one.
absl::Status ForEachChunk(int64_t count,
                          int threads,
                          const std::function<absl::Status(int64_t index)>& work);

}  // namespace hearth
