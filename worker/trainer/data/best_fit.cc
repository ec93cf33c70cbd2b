#include "worker/trainer/data/best_fit.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

constexpr int64_t kScan = int64_t{1} << 22;  // tokens looked through at a time

// The window of each piece, windows counted in the order in which they are opened.
struct Placement {
  std::vector<int32_t> window;
  std::vector<int32_t> opener;  // piece that opened each window, its longest
};

Placement Place(absl::Span<const Piece> pieces, int64_t room) {
  // Best fit decreasing: the longest first, each into the window with the least room that still
  // takes it.
  std::vector<int32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return pieces[static_cast<size_t>(a)].tokens > pieces[static_cast<size_t>(b)].tokens;
  });
  Placement placement;
  placement.window.resize(pieces.size());
  std::set<std::pair<int64_t, int32_t>> open;  // room that is left, window
  for (const int32_t i : order) {
    const auto tokens = static_cast<int64_t>(pieces[static_cast<size_t>(i)].tokens);
    std::pair<int64_t, int32_t> target = {room, static_cast<int32_t>(placement.opener.size())};
    if (const auto best = open.lower_bound({tokens, 0}); best != open.end()) {
      target = *best;
      open.erase(best);
    } else {
      placement.opener.push_back(i);
    }
    placement.window[static_cast<size_t>(i)] = target.second;
    target.first -= tokens;
    if (target.first >= 2) {  // a shorter document has no target
      open.insert(target);
    }
  }
  return placement;
}

}  // namespace

absl::StatusOr<BestFit> BestFit::Pack(const dataset::Dataset& data, int64_t room, bool masked) {
  BestFit packed(data, room, masked);
  std::vector<int64_t> ends;
  int64_t begin = 0;
  for (int64_t first = 0; first < data.tokens(); first += kScan) {
    ends.clear();
    data.FindEnds(first, std::min(first + kScan, data.tokens()), ends);
    for (const int64_t end : ends) {
      packed.AddDocument(begin, end - begin);
      begin = end;
    }
  }
  packed.AddDocument(begin, data.tokens() - begin);
  packed.PlaceBuffer();
  if (packed.windows() == 0) {
    return absl::DataLossError(absl::StrCat(
        data.path(), masked ? ": no token counts in the loss" : ": no document has two tokens"));
  }
  packed.data_ = nullptr;
  packed.pieces_.shrink_to_fit();
  packed.begin_.shrink_to_fit();
  return packed;
}

bool BestFit::Counts(int64_t first, int64_t tokens) const {
  if (data_ == nullptr) {
    return true;
  }
  uint8_t all = 0;  // the first token is nobody's target
  data_->VisitMask(first + 1, tokens - 1, [&all](int64_t, uint8_t mask) { all |= mask; });
  return (all & dataset::kMaskCounts) != 0;
}

void BestFit::AddDocument(int64_t first, int64_t tokens) {
  while (tokens >= 2) {
    const int64_t piece = std::min(tokens, room_);
    if (Counts(first, piece)) {
      buffer_.push_back({static_cast<uint64_t>(first), static_cast<uint64_t>(piece)});
      buffered_tokens_ += piece;
    }
    // The last token of a piece is a target there, and the first input of the next piece.
    first += piece - 1;
    tokens -= piece - 1;
    if (buffered_tokens_ >= kBuffer * room_) {
      PlaceBuffer();
    }
  }
}

void BestFit::PlaceBuffer() {
  const Placement placement = Place(buffer_, room_);
  // Windows in the order of their longest documents in the dataset: read front to back, the first
  // ones are then no longer than the rest.
  std::vector<int32_t> rank(placement.opener.size());
  std::vector<int32_t> order(placement.opener.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return placement.opener[static_cast<size_t>(a)] < placement.opener[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < order.size(); ++i) {
    rank[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
  }
  std::vector<int64_t> next(order.size() + 1, 0);
  for (const int32_t window : placement.window) {
    ++next[static_cast<size_t>(rank[static_cast<size_t>(window)]) + 1];
  }
  next[0] = static_cast<int64_t>(pieces_.size());
  std::partial_sum(next.begin(), next.end(), next.begin());
  begin_.insert(begin_.end(), next.begin() + 1, next.end());
  pieces_.resize(pieces_.size() + buffer_.size());
  for (size_t i = 0; i < buffer_.size(); ++i) {
    const auto window = static_cast<size_t>(rank[static_cast<size_t>(placement.window[i])]);
    pieces_[static_cast<size_t>(next[window]++)] = buffer_[i];
  }
  placed_tokens_ += buffered_tokens_;
  buffer_.clear();
  buffered_tokens_ = 0;
}

}  // namespace hearth::trainer
