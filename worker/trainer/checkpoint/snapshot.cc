#include "worker/trainer/checkpoint/snapshot.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/io/chunk_threads.h"

namespace hearth::trainer {
namespace {

constexpr size_t kAlignment = 64;
// Pinned at a time: the driver lets nobody else in meanwhile. No copy crosses the border between
// two.
constexpr size_t kPinBytes = size_t{256} << 20;
// Touched or copied by one thread at a time.
constexpr size_t kPieceBytes = size_t{16} << 20;
constexpr size_t kPageBytes = 4096;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Calls `visit(address, bytes)` for all that `content` points to; the address may be changed.
template <typename Visit>
void ForEachTensor(CheckpointContent& content, Visit visit) {
  for (TensorView& t : content.state) {
    visit(t.data, static_cast<size_t>(t.bytes()));
  }
  for (SavedPiece& p : content.pieces) {
    visit(p.values.data, static_cast<size_t>(p.values.bytes()));
  }
  const auto weights = [&](auto& pointers) {
    for (size_t i = 0; i < pointers.size(); ++i) {
      const void* data = pointers[i];
      visit(data, static_cast<size_t>((*content.table)[i].elements()) * sizeof(*pointers[i]));
      pointers[i] = static_cast<std::decay_t<decltype(pointers[i])>>(data);
    }
  };
  weights(content.weights);
  weights(content.bf16_weights);
}

using Places = std::map<std::pair<const void*, size_t>, size_t>;  // of (address, bytes)

// Where each tensor goes; returns the end.
size_t Place(CheckpointContent& content, Places& places) {
  size_t size = 0;
  ForEachTensor(content, [&](const void*& data, size_t bytes) {
    // The same memory may be listed twice: on a GPU masters are state, and weights are written from
    // them. It is copied once.
    if (places.emplace(std::pair(data, bytes), size).second) {
      size += Aligned(bytes);
    }
  });
  return size;
}

struct CopyPiece {
  uint8_t* to = nullptr;
  const uint8_t* from = nullptr;
  size_t bytes = 0;
};

// `places` cut at multiples of `limit` of the destination.
std::vector<CopyPiece> Cut(const Places& places, uint8_t* base, size_t limit) {
  std::vector<CopyPiece> pieces;
  for (const auto& [source, offset] : places) {
    const auto* from = static_cast<const uint8_t*>(source.first);
    for (size_t done = 0; done < source.second;) {
      const size_t at = offset + done;
      // Up to the next border of the destination, which no copy crosses (kPinBytes).
      const size_t n = std::min(source.second - done, limit - at % limit);
      pieces.push_back({base + at, from + done, n});
      done += n;
    }
  }
  return pieces;
}

}  // namespace

Snapshot::Snapshot(PinHooks hooks) : hooks_(std::move(hooks)) {}

Snapshot::~Snapshot() {
  Release();
}

void Snapshot::Release() {
  for (size_t at = 0; at < pinned_; at += kPinBytes) {
    hooks_.unpin(data_ + at);
  }
  if (data_ != nullptr) {
    munmap(data_, capacity_);
  }
  data_ = nullptr;
  capacity_ = pinned_ = 0;
}

absl::Status Snapshot::Reserve(size_t bytes, int64_t available, int threads) {
  if (bytes <= capacity_) {
    return absl::OkStatus();
  }
  Release();
  if (static_cast<int64_t>(bytes) > available / 2) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a snapshot takes ", FormatBytes(static_cast<int64_t>(bytes)),
                     ", more than half of the ", FormatBytes(available), " that are free"));
  }
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no address space for a snapshot of ", bytes, " bytes"));
  }
  madvise(data, bytes, MADV_HUGEPAGE);
  data_ = static_cast<uint8_t*>(data);
  capacity_ = bytes;
  // By several threads: the kernel clears each page at its first touch.
  const auto pieces = static_cast<int64_t>((bytes + kPieceBytes - 1) / kPieceBytes);
  HEARTH_RETURN_IF_ERROR(ForEachChunk(pieces, threads, [&](int64_t piece) {
    const size_t begin = static_cast<size_t>(piece) * kPieceBytes;
    for (size_t at = begin; at < std::min(bytes, begin + kPieceBytes); at += kPageBytes) {
      data_[at] = 0;
    }
    return absl::OkStatus();
  }));
  Pin();
  return absl::OkStatus();
}

void Snapshot::Pin() {
  while (hooks_.pin && pinned_ < capacity_) {
    const size_t bytes = std::min(kPinBytes, capacity_ - pinned_);
    if (!hooks_.pin(data_ + pinned_, bytes).ok()) {
      return;  // a limit on locked memory: copies to the rest are slower
    }
    pinned_ += bytes;
  }
}

size_t Snapshot::Bytes(const CheckpointContent& content) {
  CheckpointContent visited = content;
  Places places;
  return Place(visited, places);
}

absl::StatusOr<CheckpointContent> Snapshot::Take(const CheckpointContent& content) {
  CheckpointContent taken = content;
  taken.reader = nullptr;
  Places places;
  HEARTH_CHECK(Place(taken, places) <= capacity_, "the snapshot's memory was reserved");
  if (content.reader != nullptr) {
    for (const CopyPiece& piece : Cut(places, data_, kPinBytes)) {
      HEARTH_RETURN_IF_ERROR(content.reader->Start(piece.to, piece.from, piece.bytes));
    }
    HEARTH_RETURN_IF_ERROR(content.reader->AllStarted());
  } else {
    const std::vector<CopyPiece> pieces = Cut(places, data_, kPieceBytes);
    HEARTH_RETURN_IF_ERROR(
        ForEachChunk(static_cast<int64_t>(pieces.size()), content.threads, [&](int64_t i) {
          const CopyPiece& piece = pieces[static_cast<size_t>(i)];
          std::memcpy(piece.to, piece.from, piece.bytes);
          return absl::OkStatus();
        }));
  }
  ForEachTensor(taken, [&](const void*& data, size_t bytes) {
    data = data_ + places[std::pair(data, bytes)];
  });
  return taken;
}

}  // namespace hearth::trainer
