// Best-fit packing: which documents of a dataset share a window.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/dataset.h"

namespace hearth::trainer {

// Consecutive tokens of one document.
struct Piece {
  uint64_t first : 43;  // in the dataset
  uint64_t tokens : 21;
};
static_assert(sizeof(Piece) == 8, "large datasets have hundreds of millions of documents");

// Documents go into buffers in their order; a buffer ends as soon as it holds the tokens of kBuffer
// windows. Within a buffer each document, the longest first, goes into the window where it leaves
// the least room. A document longer than a window is cut into pieces that overlap by one token, so
// that each of its tokens but the first is a target exactly once. Documents of one token have no
// target and are left out. Depends only on the dataset and the room.
class BestFit {
 public:
  static constexpr int64_t kBuffer = 1024;  // windows

  // Windows of `room` tokens (2 .. 2^21 - 1). Reads all of `data`, which says where its documents
  // end. `masked`: pieces without a target that the dataset's mask counts are left out, so that
  // every window has one that counts. kDataLoss: nothing to pack.
  static absl::StatusOr<BestFit> Pack(const dataset::Dataset& data, int64_t room, bool masked);

  int64_t windows() const { return static_cast<int64_t>(begin_.size()) - 1; }
  // In the order of the dataset; at most `room` tokens together.
  absl::Span<const Piece> Window(int64_t window) const {
    const auto w = static_cast<size_t>(window);
    return absl::MakeConstSpan(pieces_).subspan(static_cast<size_t>(begin_[w]),
                                                static_cast<size_t>(begin_[w + 1] - begin_[w]));
  }
  int64_t placed_tokens() const { return placed_tokens_; }  // in all windows

 private:
  BestFit(const dataset::Dataset& data, int64_t room, bool masked)
      : data_(masked ? &data : nullptr), room_(room) {}
  bool Counts(int64_t first, int64_t tokens) const;  // whether any target of a piece does
  void AddDocument(int64_t first, int64_t tokens);
  void PlaceBuffer();

  const dataset::Dataset* data_;  // whose mask says what counts; null: everything, or packed
  int64_t room_;
  std::vector<Piece> buffer_;
  int64_t buffered_tokens_ = 0;
  std::vector<Piece> pieces_;
  std::vector<int64_t> begin_ = {0};  // of each window in pieces_, and the end
  int64_t placed_tokens_ = 0;
};

}  // namespace hearth::trainer
