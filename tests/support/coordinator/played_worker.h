// What tests play to the worker "w" (cpu_hello.h): its job, and a stream on which it hears nothing.
#pragma once

#include <string>

#include "coordinator/core/core_commands.h"
#include "coordinator/service/agents/agent_hub.h"

namespace hearth::coordinator {

// What it is told is lost: the test answers whatever it likes.
class DeafLink : public AgentLink {
 public:
  void Send(v1::CoordinatorMessage /*message*/) override {}
  void Close(const absl::Status& /*status*/) override {}
};

// One worker's job of 100 steps on a CPU.
inline CreateJob SmallJob(const std::string& job_id) {
  CreateJob create;
  create.job_id = job_id;
  create.spec.set_name(job_id);
  create.spec.mutable_train()->set_steps(100);
  create.spec.mutable_resources()->set_workers(1);
  create.spec.mutable_resources()->set_device("cpu");
  return create;
}

}  // namespace hearth::coordinator
