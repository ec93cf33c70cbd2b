// NCCL's place in a build without CUDA or without NCCL's header.
#include "worker/trainer/comm/collective.h"
#include "worker/trainer/comm/nccl/nccl_version.h"

namespace hearth::trainer {
namespace {

absl::Status None() {
  return absl::UnimplementedError("this build has no NCCL");
}

}  // namespace

absl::StatusOr<std::string> NcclVersion() {
  return None();
}

absl::StatusOr<std::unique_ptr<Collective>> NewNcclCollective(const NcclOptions&, KeyValueStore&) {
  return None();
}

}  // namespace hearth::trainer
