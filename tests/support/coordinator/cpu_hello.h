// The Hello of a worker without a GPU.
#pragma once

#include "hearth/v1/agent.pb.h"

namespace hearth::coordinator {

// The worker "w" in its first life says this.
inline v1::Hello CpuHello() {
  v1::Hello hello;
  hello.set_worker_id("w");
  hello.set_incarnation("i1");
  hello.set_host("host");
  hello.mutable_device()->set_kind("cpu");
  hello.set_checkpoint_root("/ck");
  hello.set_root_uuid("root");
  return hello;
}

}  // namespace hearth::coordinator
