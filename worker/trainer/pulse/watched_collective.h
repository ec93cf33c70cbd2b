// A collective that tells a pulse while this rank waits for its peers.
#pragma once

#include <memory>

#include "worker/trainer/comm/collective.h"
#include "worker/trainer/pulse/pulse.h"

namespace hearth::trainer {

// Every call goes to `inner`; those that block count as Activity::kPeers meanwhile. `pulse`
// outlives the result, and the calling thread is the one that writes it.
std::unique_ptr<Collective> Watched(std::unique_ptr<Collective> inner, Pulse& pulse);

}  // namespace hearth::trainer
