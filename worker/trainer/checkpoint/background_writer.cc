#include "worker/trainer/checkpoint/background_writer.h"

#include <cstring>
#include <map>
#include <type_traits>
#include <utility>

#include "common/base/status_macros.h"

namespace hearth::trainer {
namespace {

constexpr size_t kAlignment = 64;

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

}  // namespace

BackgroundWriter::BackgroundWriter(Env& env, Clock& clock, std::string dir, int32_t keep_last)
    : env_(env), clock_(clock), dir_(std::move(dir)), keep_last_(keep_last) {
  thread_ = std::thread([this] { Run(); });
}

BackgroundWriter::~BackgroundWriter() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  thread_.join();
}

absl::Status BackgroundWriter::Submit(const CheckpointContent& content) {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &BackgroundWriter::Idle));
  HEARTH_RETURN_IF_ERROR(Snapshot(content));
  busy_ = true;
  return absl::OkStatus();
}

// Weights that are also state (fp32 masters) are copied once.
absl::Status BackgroundWriter::Snapshot(const CheckpointContent& content) {
  content_ = content;
  content_.copy = nullptr;
  std::map<std::pair<const void*, size_t>, size_t> offsets;  // of (address, bytes)
  size_t size = 0;
  ForEachTensor(content_, [&](const void*& data, size_t bytes) {
    if (offsets.emplace(std::pair(data, bytes), size).second) {
      size += Aligned(bytes);
    }
  });
  if (snapshot_.size() < size) {
    snapshot_.resize(size);
  }
  for (const auto& [source, offset] : offsets) {
    const auto& [data, bytes] = source;
    uint8_t* to = snapshot_.data() + offset;
    if (content.copy) {
      HEARTH_RETURN_IF_ERROR(content.copy(to, data, bytes));
    } else if (bytes > 0) {
      std::memcpy(to, data, bytes);
    }
  }
  ForEachTensor(content_, [&](const void*& data, size_t bytes) {
    data = snapshot_.data() + offsets[std::pair(data, bytes)];
  });
  return absl::OkStatus();
}

void BackgroundWriter::Run() {
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &BackgroundWriter::HasWork));
      if (!busy_) {
        return;
      }
    }
    absl::StatusOr<CommittedCheckpoint> result =
        WriteCheckpoint(env_, clock_, dir_, content_, keep_last_);
    absl::MutexLock lock(&mu_);
    done_.push_back(std::move(result));
    busy_ = false;
  }
}

std::optional<absl::StatusOr<CommittedCheckpoint>> BackgroundWriter::Take(bool wait) {
  absl::MutexLock lock(&mu_);
  if (wait) {
    mu_.Await(absl::Condition(this, &BackgroundWriter::Idle));
  }
  if (done_.empty()) {
    return std::nullopt;
  }
  absl::StatusOr<CommittedCheckpoint> result = std::move(done_.front());
  done_.erase(done_.begin());
  return result;
}

}  // namespace hearth::trainer
