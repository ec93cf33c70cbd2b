#include "common/base/status.h"

#include "absl/strings/str_cat.h"

namespace hearth {

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) {
    return status;
  }
  absl::Status out(status.code(), absl::StrCat(absl::string_view(context.data(), context.size()),
                                               ": ", status.message()));
  status.ForEachPayload(
      [&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

}  // namespace hearth
