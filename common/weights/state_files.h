// Tensors in the state/ of a checkpoint: those of the file of whole tensors, and pieces of one in
// the file of each rank where the optimizer was divided.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/env.h"
#include "common/weights/safetensors.h"

namespace hearth::weights {

inline constexpr std::string_view kStateFolder = "state";
inline constexpr std::string_view kStateFileEnd = ".safetensors";

// Immutable, thread-safe.
class StateFiles {
 public:
  // None where `dir` has no state/. kDataLoss: a file is damaged.
  static absl::StatusOr<StateFiles> Open(Env& env, const std::string& dir);

  bool empty() const { return files_.empty(); }
  // The pieces of a tensor, by first element; those of another type are left out. They live as long
  // as this.
  using Pieces = std::map<int64_t, TensorView>;
  Pieces Find(const std::string& name, TensorDType dtype) const;
  bool HasAny(std::string_view prefix) const;  // a tensor whose name begins so

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

// Elements that the pieces cover from 0 on without a gap.
int64_t Covered(const StateFiles::Pieces& pieces);

// Calls `take(piece, begin, out)` for each stretch of `out`, which begins with element `first` of
// the tensor: it has elements of one piece, from `begin` of that on. The pieces cover all of them.
template <typename T, typename Take>
void ForEachPiece(const StateFiles::Pieces& pieces,
                  int64_t first,
                  absl::Span<T> out,
                  const Take& take) {
  for (auto piece = std::prev(pieces.upper_bound(first)); !out.empty(); ++piece) {
    const int64_t begin = first - piece->first;
    const size_t count =
        std::min(out.size(), static_cast<size_t>(piece->second.elements() - begin));
    take(piece->second, begin, out.first(count));
    out.remove_prefix(count);
    first += static_cast<int64_t>(count);
  }
}

}  // namespace hearth::weights
