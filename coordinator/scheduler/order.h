// Which of the free workers a gang takes, and in which order they are its ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {

// `count` of `candidates` (at least as many), on as few hosts as possible; of several hosts that
// would do alone, the one with the least to spare. Returned in rank order: host, PCI bus id, device
// index, worker id.
std::vector<std::string> PackedRankOrder(std::vector<const v1::Worker*> candidates, int64_t count);

}  // namespace hearth::coordinator
