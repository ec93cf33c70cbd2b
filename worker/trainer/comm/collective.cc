#include "worker/trainer/comm/collective.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/trainer/comm/solo_collective.h"

namespace hearth::trainer {

std::unique_ptr<Collective> NewSoloCollective() {
  return std::make_unique<SoloCollective>();
}

absl::StatusOr<std::string> BroadcastString(Collective& comm, std::string_view text, int root) {
  uint64_t size = comm.rank() == root ? text.size() : 0;
  HEARTH_RETURN_IF_ERROR(
      comm.Broadcast(absl::MakeSpan(reinterpret_cast<uint8_t*>(&size), sizeof size), root));
  std::string result(comm.rank() == root ? text : std::string_view());
  result.resize(size);
  if (size > 0) {
    HEARTH_RETURN_IF_ERROR(
        comm.Broadcast(absl::MakeSpan(reinterpret_cast<uint8_t*>(result.data()), size), root));
  }
  return result;
}

}  // namespace hearth::trainer
