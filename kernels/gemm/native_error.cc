#include "kernels/gemm/native_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace hearth::kernels {
namespace {

constexpr char kMark[] = "hearth/native_gemm";

}  // namespace

absl::Status NativeGemmError(const absl::Status& cause) {
  absl::Status marked(cause.code(), absl::StrCat("native ", cause.message()));
  cause.ForEachPayload([&marked](absl::string_view mark, const absl::Cord& payload) {
    marked.SetPayload(mark, payload);
  });
  marked.SetPayload(kMark, absl::Cord());
  return marked;
}

bool IsNativeGemmError(const absl::Status& status) {
  return status.GetPayload(kMark).has_value();
}

}  // namespace hearth::kernels
