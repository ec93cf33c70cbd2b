// A connection between every two ranks of a gang. Ports are open to anybody who reaches this
// machine, so nothing is believed before both sides have proven that they are ranks (handshake.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/clock.h"
#include "worker/trainer/comm/rendezvous/key_value_store.h"
#include "worker/trainer/comm/rendezvous/socket.h"

namespace hearth::trainer {

struct MeshOptions {
  int rank = 0;
  int world_size = 2;  // >= 2
  std::string host;    // name or address of this machine to listen on
  // Until all ranks have published their addresses. They may have much to load before.
  absl::Duration gather_timeout = absl::Minutes(1);
  // From then on, until all are connected.
  absl::Duration connect_timeout = absl::Minutes(1);
  // A connection is dropped if its handshake takes longer than this. A rank dials again.
  absl::Duration handshake_timeout = absl::Seconds(5);
  // Told of connections that were dropped because no rank was behind them: "10.0.0.7:51234: its
  // first bytes are no greeting". The first 8 are told. May be empty.
  std::function<void(std::string_view)> on_stranger;
};

// At [i] a connected socket to rank i, none at [rank]; they do not block. Rank 0 makes the gang's
// secret; it and the addresses go through `store`, used during this call only. Higher ranks dial
// lower ones. kInvalidArgument: host is not of this machine; kDeadlineExceeded names the first rank
// that did not come, or was not connected.
absl::StatusOr<std::vector<Socket>> ConnectMesh(const MeshOptions& options,
                                                KeyValueStore& store,
                                                Clock& clock = Clock::Real());

}  // namespace hearth::trainer
