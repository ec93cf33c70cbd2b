// Says who may speak for a worker. Owns nothing and changes nothing.
#pragma once

#include "coordinator/core/core.h"
#include "coordinator/core/liveness/liveness.h"
#include "coordinator/core/turn.h"
#include "coordinator/core/workers/workers.h"

namespace hearth::coordinator {

// Not thread-safe.
class Admission {
 public:
  // All that is passed in outlives this.
  Admission(const Turn& turn,
            const CoreOptions& options,
            const Workers& workers,
            const Liveness& liveness)
      : turn_(turn), options_(options), workers_(workers), liveness_(liveness) {}

  // OK, or why this stream is refused (AgentConnected in core_commands.h).
  absl::Status Check(const AgentConnected& command) const;

 private:
  const Turn& turn_;
  const CoreOptions& options_;
  const Workers& workers_;
  const Liveness& liveness_;
};

}  // namespace hearth::coordinator
