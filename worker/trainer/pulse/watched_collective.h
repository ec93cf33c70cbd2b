// A collective that tells a pulse while this rank waits for its peers.
#pragma once

#include <memory>

#include "common/time/clock.h"
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/pulse/pulse.h"

namespace hearth::trainer {

// Every call goes to `inner`; those that block count as Activity::kPeers meanwhile, and their time
// as waited. `pulse` and `clock` outlive the result, and the calling thread is the one that writes
// the pulse.
std::unique_ptr<Collective> Watched(std::unique_ptr<Collective> inner, Pulse& pulse, Clock& clock);

}  // namespace hearth::trainer
