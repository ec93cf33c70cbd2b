// Chooses the free workers that a gang takes, and their order as its ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hearth/v1/worker.pb.h"

namespace hearth::coordinator {

// Whether `a` comes before `b` as a rank: by host, PCI bus id, device index, worker id.
bool RankBefore(const v1::Worker& a, const v1::Worker& b);

// Chooses `count` of `candidates` (at least as many, in rank order), on as few hosts as possible;
// among hosts that are enough by themselves, the one with the fewest candidates to spare. Returned
// in rank order.
std::vector<std::string> PackedRankOrder(const std::vector<const v1::Worker*>& candidates,
                                         int64_t count);

}  // namespace hearth::coordinator
