#include "kernels/core/cpu.h"
#include "kernels/formats/span.h"
#include "kernels/round/round.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kGrain = 16384;

char* Byte(const TensorView& view, int64_t element) {
  return view.as<char>() + DTypeBytes(view.dtype, element);
}

template <typename T>
absl::Status RoundImpl(const Exec& exec, const RoundToArgs& args) {
  ParallelFor(exec, args.x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const T* x = args.x.as<T>() + begin;
    if (args.y.dtype != args.x.dtype) {
      EncodeSpan(x, end - begin, args.to, Byte(args.y, begin));
      return;
    }
    T* y = args.y.as<T>() + begin;
    if (x != y) {
      std::copy_n(x, end - begin, y);
    }
    RoundSpan(y, end - begin, args.to);
  });
  return absl::OkStatus();
}

}  // namespace

namespace cpu {

absl::Status RoundTo(const Exec& exec, const RoundToArgs& args) {
  return DispatchFloating(args.x.dtype, [&]<typename T>() { return RoundImpl<T>(exec, args); });
}

absl::Status Widen(const Exec& exec, const WidenArgs& args) {
  return DispatchFloating(args.y.dtype, [&]<typename T>() {
    ParallelFor(exec, args.y.numel(), kGrain, [&](int64_t begin, int64_t end) {
      DecodeSpan(Byte(args.x, begin), end - begin, args.x.dtype, args.y.as<T>() + begin);
    });
    return absl::OkStatus();
  });
}

}  // namespace cpu

}  // namespace hearth::kernels
