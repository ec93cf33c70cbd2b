// The CUDA backend of a build without CUDA: the CPU halves of cuda/device.h, and refusals.
#include <cstring>

#include "kernels/attention/attention_check.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device.h"
#include "kernels/gemm/gemm_probe.h"

namespace hearth::kernels {
namespace {

absl::Status None() {
  return absl::UnimplementedError("this build has no CUDA backend");
}

}  // namespace

class GemmPlans {};
class AttentionPlans {};

CudaContext::CudaContext() = default;
CudaContext::~CudaContext() = default;

std::vector<GemmProbe> ProbeGemms(const Exec&) {
  return {};
}
std::vector<BlockGemmChoice> ChooseBlockGemms(const Exec&, bool) {
  return {};
}

absl::StatusOr<AttentionEngines> CheckAttention(const Exec&,
                                                const AttentionForwardArgs&,
                                                const AttentionBackwardArgs&,
                                                double) {
  return AttentionEngines();
}

int GpuCount() {
  return 0;
}
absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Open(const CudaOptions&) {
  return None();
}
std::string CudaContext::gemm_version() const {
  return "";
}
std::string CudaContext::attention_version() const {
  return "";
}
std::string CudaContext::ExportPlans() const {
  return "";
}
absl::StatusOr<bool> CudaContext::ImportPlans(const std::string&) {
  return None();
}
int CudaContext::untuned_products() const {
  return 0;
}
int CudaContext::shipped_products() const {
  return 0;
}
void CudaContext::CheckProducts(ProductCheck*) {}
absl::Status CudaContext::SavePlans() {
  return None();
}

absl::StatusOr<void*> NewStream(CudaContext&, StreamPriority) {
  return None();
}
void DeleteStream(void*) {}
absl::StatusOr<void*> AllocateDevice(CudaContext&, size_t) {
  return None();
}
void FreeDevice(void*) {}
absl::StatusOr<void*> AllocatePinned(size_t) {
  return None();
}
void FreePinned(void*) {}
absl::Status Pin(CudaContext&, void*, size_t) {
  return None();
}
void Unpin(void*) {}
absl::Status MakeCurrent(CudaContext&) {
  return None();
}
absl::Status DeviceMemory(CudaContext&, int64_t&, int64_t&) {
  return None();
}

absl::Status Copy(const Exec& exec, void* to, const void* from, size_t bytes) {
  if (exec.device != Device::kCpu) {
    return None();
  }
  std::memmove(to, from, bytes);
  return absl::OkStatus();
}
absl::Status Zero(const Exec& exec, void* data, size_t bytes) {
  if (exec.device != Device::kCpu) {
    return None();
  }
  std::memset(data, 0, bytes);
  return absl::OkStatus();
}
absl::Status Synchronize(const Exec& exec) {
  return exec.device == Device::kCpu ? absl::OkStatus() : None();
}

absl::Status ProvokeIllegalAccess(const Exec&) {
  return None();
}

absl::StatusOr<std::unique_ptr<Event>> Event::New(const Exec& exec, Use) {
  if (exec.device != Device::kCpu) {
    return None();
  }
  return std::unique_ptr<Event>(new Event(nullptr));
}
// Not defaulted: the class with CUDA, of which this is the shape, has something to destroy.
Event::~Event() {}
absl::Status Event::Record(const Exec&) {
  return absl::OkStatus();
}
absl::Status Event::Wait() {
  return absl::OkStatus();
}
absl::StatusOr<bool> Event::Done() {
  return event_ == nullptr;
}
double Event::MillisecondsSince(const Event&) const {
  static_cast<void>(event_);
  return 0;
}

absl::Status StreamWait(const Exec&, const Event& event) {
  return event.event_ == nullptr ? absl::OkStatus() : None();
}

Graph::~Graph() {}
absl::Status Graph::Begin(const Exec&) {
  return None();
}
absl::StatusOr<std::unique_ptr<Graph>> Graph::End(const Exec&, const char*) {
  return None();
}
absl::Status Graph::Launch(const Exec&) {
  static_cast<void>(executable_);
  return None();
}

}  // namespace hearth::kernels
