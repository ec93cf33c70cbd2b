// Saves, pauses and stops that are asked for while a rank runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "hearth/v1/trainer.pb.h"
#include "worker/trainer/link/link.h"
#include "worker/trainer/step/trainer.h"

namespace hearth::trainer {

// What this rank was asked, until a step takes it to all ranks; and what any rank was asked, until
// all act on it together. For the step thread only; signal handlers set `signals`.
class Controls {
 public:
  // `link` outlives it. `signals`: RankOptions.
  Controls(Link& link, std::atomic<uint64_t>* signals) : link_(link), signals_(signals) {}

  // What this rank was asked since the last call. It goes into the next step's control word.
  ControlRequests Take() {
    uint64_t bits = link_.TakeControl();
    if (signals_ != nullptr) {
      bits |= signals_->exchange(0);
    }
    const auto has = [bits](v1::ControlBit bit) { return (bits >> bit & 1) != 0; };
    return {has(v1::CONTROL_BIT_SAVE), has(v1::CONTROL_BIT_PAUSE), has(v1::CONTROL_BIT_STOP)};
  }

  // Keeps what came out of a step's control word.
  void Agreed(const ControlRequests& requests) {
    agreed_.save |= requests.save;
    agreed_.pause |= requests.pause;
    agreed_.stop |= requests.stop;
  }
  // Whether Agreed() kept something that was not acted on yet.
  bool pending() const { return agreed_.save || agreed_.pause || agreed_.stop; }
  // To act on it: forgets it.
  ControlRequests TakeAgreed() { return std::exchange(agreed_, ControlRequests{}); }

 private:
  Link& link_;
  std::atomic<uint64_t>* const signals_;  // null: none
  ControlRequests agreed_;
};

}  // namespace hearth::trainer
