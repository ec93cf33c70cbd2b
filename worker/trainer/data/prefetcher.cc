#include "worker/trainer/data/prefetcher.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace hearth::trainer {

Prefetcher::Prefetcher(const Loader& loader,
                       const spec::BatchPlan& plan,
                       int64_t rank,
                       int64_t first_step,
                       Clock& clock)
    : loader_(loader),
      plan_(plan),
      rank_(rank),
      first_step_(first_step),
      elements_(plan.micro_batch * plan.sequence_length),
      clock_(clock) {
  for (Slot& slot : slots_) {
    slot.words.resize(static_cast<size_t>(4 * elements_ + plan.micro_batch));
    slot.loss_weight.resize(static_cast<size_t>(elements_));
  }
  thread_ = std::thread([this] { Run(); });
}

Prefetcher::~Prefetcher() {
  Stop();
}

void Prefetcher::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  thread_.join();
}

void Prefetcher::Rewind(int64_t step) {
  Stop();
  {
    absl::MutexLock lock(&mu_);
    stop_ = false;
    produced_ = consumed_ = 0;
  }
  first_step_ = step;
  thread_ = std::thread([this] { Run(); });
}

BatchBuffers Prefetcher::Buffers(Slot& slot) const {
  int32_t* words = slot.words.data();
  return {words,
          words + elements_,
          slot.loss_weight.data(),
          words + 2 * elements_,
          words + 3 * elements_,
          words + 4 * elements_};
}

bool Prefetcher::SlotFree() const {
  return stop_ || produced_ - consumed_ < kSlots;
}
bool Prefetcher::SlotFull() const {
  return produced_ > consumed_;
}

void Prefetcher::Run() {
  for (int64_t step = first_step_;; ++step) {
    for (int64_t m = rank_; m < plan_.micro_batches; m += plan_.world_size) {
      int64_t index = 0;
      {
        absl::MutexLock lock(&mu_);
        mu_.Await(absl::Condition(this, &Prefetcher::SlotFree));
        if (stop_) {
          return;
        }
        index = produced_;
      }
      Slot& slot = slots_[index % kSlots];
      // Without the lock: the slot is this thread's until produced_ grows.
      slot.step = step;
      slot.micro_batch = m;
      slot.status = loader_.Fill(plan_.FirstSample(step, m), plan_.micro_batch, Buffers(slot));
      const bool failed = !slot.status.ok();
      absl::MutexLock lock(&mu_);
      ++produced_;
      if (failed) {
        return;
      }
    }
    if (rank_ >= plan_.micro_batches) {
      return;  // this rank never has work
    }
  }
}

absl::Status Prefetcher::Next(const BatchBuffers& out, int64_t* step, int64_t* global_micro_batch) {
  if (rank_ >= plan_.micro_batches) {
    return absl::FailedPreconditionError("this rank has no micro-batches");
  }
  int64_t index = 0;
  {
    absl::MutexLock lock(&mu_);
    if (!SlotFull()) {
      const absl::Duration begin = clock_.Monotonic();
      mu_.Await(absl::Condition(this, &Prefetcher::SlotFull));
      wait_seconds_ += absl::ToDoubleSeconds(clock_.Monotonic() - begin);
    }
    index = consumed_;
  }
  Slot& slot = slots_[index % kSlots];
  if (!slot.status.ok()) {
    return slot.status;  // not consumed: every later call meets it again
  }
  const BatchBuffers from = Buffers(slot);
  std::copy_n(from.tokens, elements_, out.tokens);
  std::copy_n(from.targets, elements_, out.targets);
  std::copy_n(from.loss_weight, elements_, out.loss_weight);
  std::copy_n(from.position, elements_, out.position);
  std::copy_n(from.start, elements_, out.start);
  if (out.source != nullptr) {
    std::copy_n(from.source, plan_.micro_batch, out.source);
  }
  *step = slot.step;
  *global_micro_batch = slot.micro_batch;
  absl::MutexLock lock(&mu_);
  ++consumed_;
  return absl::OkStatus();
}

double Prefetcher::TakeWaitSeconds() {
  return std::exchange(wait_seconds_, 0.0);
}

}  // namespace hearth::trainer
