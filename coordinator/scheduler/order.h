// Chooses the free workers that a gang takes, and their order as its ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {

// Chooses `count` of `candidates` (at least as many), on as few hosts as possible; among hosts that
// are enough by themselves, the one with the fewest candidates to spare. Returned in rank order:
// host, PCI bus id, device index, worker id.
std::vector<std::string> PackedRankOrder(std::vector<const v1::Worker*> candidates, int64_t count);

}  // namespace hearth::coordinator
