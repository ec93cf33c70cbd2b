#include <algorithm>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/trainer/comm/cpu_collective.h"

namespace hearth::trainer {
namespace {

// Elements [begin, begin + count) of `from` to the same places of `to`. Where there are none, both
// may be null, which memcpy forbids.
template <typename T>
void Copy(const void* from, size_t begin, size_t count, void* to) {
  std::copy_n(static_cast<const T*>(from) + begin, count, static_cast<T*>(to) + begin);
}

// Meeting place of the ranks. Each operation has two phases: all have come (the last one computes),
// all have gone.
class Group {
 public:
  explicit Group(int size) : buffers_(static_cast<size_t>(size), nullptr) {}

  // Calls `combine(buffers)` once all ranks are here; returns when it is done and all have left.
  template <typename Combine>
  void Meet(int rank, void* buffer, const Combine& combine) {
    absl::MutexLock lock(&mu_);
    buffers_[static_cast<size_t>(rank)] = buffer;
    ++present_;
    const int64_t round = round_;
    if (present_ == static_cast<int>(buffers_.size())) {
      combine(buffers_);
      present_ = 0;
      ++round_;
      return;
    }
    const auto over = [this, round]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return round_ != round; };
    // Combining happens under the lock, so whoever wakes up sees its result.
    mu_.Await(absl::Condition(&over));
  }

  int size() const { return static_cast<int>(buffers_.size()); }

 private:
  absl::Mutex mu_;
  std::vector<void*> buffers_;
  int present_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t round_ ABSL_GUARDED_BY(mu_) = 0;
};

class ThreadCollective : public CpuCollective {
 public:
  ThreadCollective(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  using CpuCollective::AllReduceMax;
  using CpuCollective::AllReduceSum;

  int rank() const override { return rank_; }
  int world_size() const override { return group_->size(); }
  std::string_view transport() const override { return "threads"; }

  absl::Status AllReduceSum(absl::Span<float> data) override {
    return Reduce(data, [](float a, float b) { return a + b; });
  }
  absl::Status AllReduceSum(absl::Span<double> data) override {
    return Reduce(data, [](double a, double b) { return a + b; });
  }
  absl::Status AllReduceMax(absl::Span<int32_t> data) override {
    return Reduce(data, [](int32_t a, int32_t b) { return std::max(a, b); });
  }
  absl::Status AllReduceMax(absl::Span<uint64_t> data) override {
    return Reduce(data, [](uint64_t a, uint64_t b) { return std::max(a, b); });
  }

  absl::Status Broadcast(absl::Span<uint8_t> data, int root) override {
    const size_t size = data.size();
    group_->Meet(rank_, data.data(), [root, size](const std::vector<void*>& buffers) {
      for (size_t r = 0; r < buffers.size(); ++r) {
        if (static_cast<int>(r) != root) {
          Copy<uint8_t>(buffers[static_cast<size_t>(root)], 0, size, buffers[r]);
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status Barrier() override {
    group_->Meet(rank_, nullptr, [](const std::vector<void*>&) {});
    return absl::OkStatus();
  }

 protected:
  absl::Status AllGatherBytes(absl::Span<uint8_t> data) override {
    const size_t piece = data.size() / static_cast<size_t>(group_->size());
    group_->Meet(rank_, data.data(), [piece](const std::vector<void*>& buffers) {
      for (size_t from = 0; from < buffers.size(); ++from) {
        for (size_t to = 0; to < buffers.size(); ++to) {
          if (to == from) {
            continue;
          }
          Copy<uint8_t>(buffers[from], from * piece, piece, buffers[to]);
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status AllToAllBytes(absl::Span<uint8_t> send, absl::Span<uint8_t> receive) override {
    Exchange own = {send.data(), receive.data()};
    const size_t piece = send.size() / static_cast<size_t>(group_->size());
    group_->Meet(rank_, &own, [piece](const std::vector<void*>& buffers) {
      for (size_t from = 0; from < buffers.size(); ++from) {
        for (size_t to = 0; to < buffers.size(); ++to) {
          std::copy_n(static_cast<const Exchange*>(buffers[from])->send + to * piece, piece,
                      static_cast<const Exchange*>(buffers[to])->receive + from * piece);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  struct Exchange {
    const uint8_t* send;
    uint8_t* receive;
  };

  template <typename T, typename Op>
  absl::Status Reduce(absl::Span<T> data, Op op) {
    const size_t n = data.size();
    group_->Meet(rank_, data.data(), [n, op](const std::vector<void*>& buffers) {
      // In the order of the ranks, so that sums have the same bits in each run.
      T* first = static_cast<T*>(buffers[0]);
      for (size_t r = 1; r < buffers.size(); ++r) {
        const T* other = static_cast<const T*>(buffers[r]);
        for (size_t i = 0; i < n; ++i) {
          first[i] = op(first[i], other[i]);
        }
      }
      for (size_t r = 1; r < buffers.size(); ++r) {
        Copy<T>(first, 0, n, buffers[r]);
      }
    });
    return absl::OkStatus();
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> NewThreadCollectives(int world_size) {
  auto group = std::make_shared<Group>(world_size);
  std::vector<std::unique_ptr<Collective>> ranks;
  for (int r = 0; r < world_size; ++r) {
    ranks.push_back(std::make_unique<ThreadCollective>(group, r));
  }
  return ranks;
}

}  // namespace hearth::trainer
