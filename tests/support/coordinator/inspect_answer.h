// What a worker of a test or benchmark answers to InspectPaths.
#pragma once

#include <string>

#include "hearth/v1/agent.pb.h"

namespace hearth::coordinator {

// Each path is a dataset of a million tokens; with `error`, one that cannot be used.
inline v1::AgentMessage InspectAnswer(const v1::InspectPaths& question,
                                      const std::string& error = "") {
  v1::AgentMessage answer;
  answer.mutable_inspect_result()->set_request_id(question.request_id());
  for (const std::string& path : question.paths()) {
    v1::PathInfo& info = *answer.mutable_inspect_result()->add_paths();
    info.set_path(path);
    info.set_error(error);
    info.set_kind("dataset");
    info.set_tokens(1'000'000);
    info.set_vocab(256);
  }
  return answer;
}

}  // namespace hearth::coordinator
