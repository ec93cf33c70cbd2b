// The tokens that a coordinator leaves for its own account on its machine, so that one person on
// one machine needs to set nothing up.
#pragma once

#include "absl/status/status.h"
#include "coordinator/service/identity/gate.h"

namespace hearth::coordinator {

// Makes the files of rpc::LocalTokenPath for the coordinator that listens on `port`, unless they
// are there, and lets the gate take their tokens: one of an admin named like this process's
// account, one of workers of any name. Without $HEARTH_HOME and $HOME: none, with a warning.
// kPermissionDenied, kResourceExhausted and others: a file cannot be read or made, or others can
// read it.
absl::Status AllowLocalTokens(int port, Gate& gate);

}  // namespace hearth::coordinator
