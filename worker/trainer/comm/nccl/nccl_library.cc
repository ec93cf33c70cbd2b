#include "worker/trainer/comm/nccl/nccl_library.h"

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "kernels/cuda/library.h"
#include "worker/trainer/comm/nccl/nccl_version.h"

namespace hearth::trainer {
namespace {

// The first whose communicators never block and which tells them apart in groups.
constexpr int kMinimumVersion = 21900;

template <typename Function>
absl::Status Find(const kernels::Library& library, const char* name, Function& function) {
  HEARTH_ASSIGN_OR_RETURN(void* const symbol, library.Symbol(name));
  function = reinterpret_cast<Function>(symbol);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Nccl> Nccl::Load() {
  std::vector<std::string> names = {"libnccl.so.2"};
  if (const char* given = GetEnv("HEARTH_NCCL"); given != nullptr) {
    names = {given};
  }
  HEARTH_ASSIGN_OR_RETURN(const kernels::Library library, kernels::Library::Open(names));
  Nccl nccl = {};
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclGetVersion", nccl.GetVersion));
  if (nccl.GetVersion(&nccl.version) != ncclSuccess || nccl.version < kMinimumVersion) {
    return absl::UnavailableError(absl::StrCat(library.path(), " is NCCL ", nccl.VersionText(),
                                               "; Hearth needs 2.19 or later"));
  }
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclGetUniqueId", nccl.GetUniqueId));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclGetErrorString", nccl.GetErrorString));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclGetLastError", nccl.GetLastError));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclCommInitRankConfig", nccl.CommInitRankConfig));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclCommGetAsyncError", nccl.CommGetAsyncError));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclCommFinalize", nccl.CommFinalize));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclCommDestroy", nccl.CommDestroy));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclCommAbort", nccl.CommAbort));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclGroupStart", nccl.GroupStart));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclGroupEnd", nccl.GroupEnd));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclAllReduce", nccl.AllReduce));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclReduceScatter", nccl.ReduceScatter));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclAllGather", nccl.AllGather));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclBroadcast", nccl.Broadcast));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclSend", nccl.Send));
  HEARTH_RETURN_IF_ERROR(Find(library, "ncclRecv", nccl.Recv));
  return nccl;
}

std::string Nccl::VersionText() const {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusOr<std::string> NcclVersion() {
  HEARTH_ASSIGN_OR_RETURN(const Nccl nccl, Nccl::Load());
  return nccl.VersionText();
}

}  // namespace hearth::trainer
