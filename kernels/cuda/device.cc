#include "kernels/cuda/device.h"

#include <cuda_runtime.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_error.h"

namespace hearth::kernels {
namespace {

cudaStream_t Stream(const Exec& exec) {
  return static_cast<cudaStream_t>(exec.stream);
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  cudaGetLastError();  // else the next launch would report this error as its own
  // The call's name is enough: macros pass all of it.
  const absl::string_view call(what);
  const std::string text = absl::StrCat(call.substr(0, call.find('(')), ": ",
                                        cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : DeviceError(text);
}

absl::StatusOr<void*> NewStream(CudaContext& /*context*/, StreamPriority priority) {
  int least = 0;
  int greatest = 0;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  // A stream without a priority has 0, which is the least.
  HEARTH_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithPriority(
      &stream, cudaStreamNonBlocking, priority == StreamPriority::kHigh ? greatest : 0));
  return static_cast<void*>(stream);
}

void DeleteStream(void* stream) {
  cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

absl::StatusOr<void*> AllocateDevice(CudaContext& context, size_t bytes) {
  void* data = nullptr;
  if (const cudaError_t error = cudaMalloc(&data, bytes); error != cudaSuccess) {
    cudaGetLastError();  // an allocation that failed is not sticky: forget it
    int64_t free_bytes = 0;
    int64_t total_bytes = 0;
    HEARTH_RETURN_IF_ERROR(DeviceMemory(context, free_bytes, total_bytes));
    return absl::ResourceExhaustedError(absl::StrCat("the GPU does not give ", bytes,
                                                     " bytes: ", free_bytes, " of ", total_bytes,
                                                     " are free (", cudaGetErrorName(error), ")"));
  }
  return data;
}

void FreeDevice(void* data) {
  cudaFree(data);
}

absl::StatusOr<void*> AllocatePinned(size_t bytes) {
  void* data = nullptr;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaMallocHost(&data, bytes));
  return data;
}

void FreePinned(void* data) {
  cudaFreeHost(data);
}

absl::Status Pin(CudaContext& context, void* data, size_t bytes) {
  HEARTH_RETURN_IF_ERROR(MakeCurrent(context));
  HEARTH_CUDA_RETURN_IF_ERROR(cudaHostRegister(data, bytes, cudaHostRegisterDefault));
  return absl::OkStatus();
}

void Unpin(void* data) {
  cudaHostUnregister(data);
}

absl::Status MakeCurrent(CudaContext& context) {
  HEARTH_CUDA_RETURN_IF_ERROR(cudaSetDevice(context.gpu().ordinal));
  return absl::OkStatus();
}

absl::Status DeviceMemory(CudaContext& /*context*/, int64_t& free_bytes, int64_t& total_bytes) {
  size_t free = 0;
  size_t total = 0;
  HEARTH_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
  free_bytes = static_cast<int64_t>(free);
  total_bytes = static_cast<int64_t>(total);
  return absl::OkStatus();
}

absl::Status Copy(const Exec& exec, void* to, const void* from, size_t bytes) {
  if (exec.device == Device::kCpu) {
    std::memmove(to, from, bytes);
    return absl::OkStatus();
  }
  HEARTH_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, Stream(exec)));
  return absl::OkStatus();
}

absl::Status Zero(const Exec& exec, void* data, size_t bytes) {
  if (exec.device == Device::kCpu) {
    std::memset(data, 0, bytes);
    return absl::OkStatus();
  }
  HEARTH_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(data, 0, bytes, Stream(exec)));
  return absl::OkStatus();
}

absl::Status Synchronize(const Exec& exec) {
  if (exec.device == Device::kCpu) {
    return absl::OkStatus();
  }
  HEARTH_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(Stream(exec)));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Event>> Event::New(const Exec& exec, Use use) {
  cudaEvent_t event = nullptr;
  if (exec.device == Device::kCuda) {
    HEARTH_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(
        &event, use == Use::kOrder ? cudaEventDisableTiming : cudaEventDefault));
  }
  return std::unique_ptr<Event>(new Event(event));
}

Event::~Event() {
  if (event_ != nullptr) {
    cudaEventDestroy(static_cast<cudaEvent_t>(event_));
  }
}

absl::Status Event::Record(const Exec& exec) {
  if (event_ != nullptr) {
    HEARTH_CUDA_RETURN_IF_ERROR(cudaEventRecord(static_cast<cudaEvent_t>(event_), Stream(exec)));
  }
  return absl::OkStatus();
}

absl::Status Event::Wait() {
  if (event_ != nullptr) {
    HEARTH_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Event::Done() {
  if (event_ == nullptr) {
    return true;
  }
  const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event_));
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // else the next launch would report it as its own
    return false;
  }
  HEARTH_CUDA_RETURN_IF_ERROR(state);
  return true;
}

double Event::MillisecondsSince(const Event& earlier) const {
  float milliseconds = 0;
  if (event_ == nullptr ||
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier.event_),
                           static_cast<cudaEvent_t>(event_)) != cudaSuccess) {
    return 0;
  }
  return milliseconds;
}

absl::Status StreamWait(const Exec& exec, const Event& event) {
  if (event.event_ != nullptr) {
    HEARTH_CUDA_RETURN_IF_ERROR(
        cudaStreamWaitEvent(Stream(exec), static_cast<cudaEvent_t>(event.event_), 0));
  }
  return absl::OkStatus();
}

Graph::~Graph() {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
}

absl::Status Graph::Begin(const Exec& exec) {
  // Not the global mode, in which an allocation by another thread would spoil the recording.
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaStreamBeginCapture(Stream(exec), cudaStreamCaptureModeThreadLocal));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Graph>> Graph::End(const Exec& exec, const char* what) {
  cudaGraph_t graph = nullptr;
  if (const cudaError_t error = cudaStreamEndCapture(Stream(exec), &graph); error != cudaSuccess) {
    cudaGetLastError();
    return CudaStatus(error, what);
  }
  size_t nodes = 0;
  cudaGraphGetNodes(graph, nullptr, &nodes);
  cudaGraphExec_t executable = nullptr;
  // Without the flag all nodes would have the priority of the stream that the graph is launched on.
  const cudaError_t error =
      cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(graph);
  HEARTH_RETURN_IF_ERROR(CudaStatus(error, what));
  return std::unique_ptr<Graph>(new Graph(executable, nodes));
}

absl::Status Graph::Launch(const Exec& exec) {
  HEARTH_CUDA_RETURN_IF_ERROR(
      cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), Stream(exec)));
  return absl::OkStatus();
}

}  // namespace hearth::kernels
