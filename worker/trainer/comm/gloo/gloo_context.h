// Gloo's collectives over connections that are there already.
#pragma once

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/time/clock.h"
#include "gloo/context.h"
#include "worker/trainer/comm/rendezvous/socket.h"

namespace hearth::trainer {

// `sockets[i]` is connected to rank i of sockets.size() and does not block; the one at [rank] is
// none. Gloo's own transport is not used: it takes whoever connects first for the peer. Here bytes
// move while an operation waits, on the thread that waits, and nothing else is started.
//
// A pair's messages arrive in the order in which they were sent, so ranks that call different
// operations are told so. Operations throw gloo::Exception: a peer is gone, or what it sent is not
// what this rank waits for, or nothing came for `timeout` ("timed out"). After that the context is
// of no more use. One thread at a time.
std::shared_ptr<gloo::Context> NewGlooContext(int rank,
                                              std::vector<Socket> sockets,
                                              absl::Duration timeout,
                                              Clock& clock = Clock::Real());

}  // namespace hearth::trainer
