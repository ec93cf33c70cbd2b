// Memory, copies, events and graphs, the same calls for both devices: on the CPU copies are done
// when they return and events have always happened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/exec.h"

namespace hearth::kernels {

// The streams on which a run's ops are launched. Null on the CPU. Blocks of a kHigh stream's
// kernels are placed before those that wait on other streams (communication); a graph's nodes take
// the priority of the stream they were recorded from.
enum class StreamPriority : uint8_t { kNormal, kHigh };
absl::StatusOr<void*> NewStream(CudaContext& context,
                                StreamPriority priority = StreamPriority::kNormal);
void DeleteStream(void* stream);

// Device memory, 256-byte aligned, contents undefined. kResourceExhausted: asked and free.
absl::StatusOr<void*> AllocateDevice(CudaContext& context, size_t bytes);
void FreeDevice(void* data);
// Host memory that copies to and from the GPU without a stop.
absl::StatusOr<void*> AllocatePinned(size_t bytes);
void FreePinned(void* data);
// Makes host memory of the caller such; back before it is freed. `data` page-aligned.
absl::Status Pin(CudaContext& context, void* data, size_t bytes);
void Unpin(void* data);
// Makes the GPU current on the calling thread: on every thread that waits for events or pins.
absl::Status MakeCurrent(CudaContext& context);
// Free and total bytes of the GPU's memory.
absl::Status DeviceMemory(CudaContext& context, int64_t& free_bytes, int64_t& total_bytes);

// Copies between any two memories, in the order of the stream. Host memory must be pinned for the
// call not to wait.
absl::Status Copy(const Exec& exec, void* to, const void* from, size_t bytes);
// Zero bytes, in the order of the stream.
absl::Status Zero(const Exec& exec, void* data, size_t bytes);
// Waits for everything launched on the stream; returns the first error of it. A sticky one (illegal
// address, ...) is kInternal with the CUDA error's name: the process must end.
absl::Status Synchronize(const Exec& exec);

// Launches a kernel that writes to an address which is nobody's: a sticky error at the next wait.
// kUnimplemented on the CPU.
absl::Status ProvokeIllegalAccess(const Exec& exec);

// A moment of a stream.
class Event {
 public:
  // On the CPU Wait() returns at once and times are 0. kOrder: for StreamWait and Wait alone;
  // cheaper, MillisecondsSince gives 0.
  enum class Use : uint8_t { kTiming, kOrder };
  static absl::StatusOr<std::unique_ptr<Event>> New(const Exec& exec, Use use = Use::kTiming);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  absl::Status Record(const Exec& exec);
  // Until the recorded moment is past; at once if none was recorded. Errors as Synchronize.
  absl::Status Wait();
  // Whether Wait() would return at once. Allocates nothing. Errors as Synchronize.
  absl::StatusOr<bool> Done();
  // Milliseconds from `earlier`'s moment to this one's; both must have been waited for.
  double MillisecondsSince(const Event& earlier) const;

  friend absl::Status StreamWait(const Exec& exec, const Event& event);

 private:
  explicit Event(void* event) : event_(event) {}
  void* event_;  // cudaEvent_t; null on the CPU
};

// What is launched on exec's stream from now on starts after the moment that `event` recorded last;
// the host does not wait. While exec's stream or the event's is being recorded into a graph, this
// makes an edge of it: a stream that waits for an event of the recorded one is recorded too (fork)
// until the recorded one waits for an event of it (join), which must be before Graph::End.
absl::Status StreamWait(const Exec& exec, const Event& event);

// A sequence of launches that is replayed with one call. Ops in it read their scalars through
// device pointers, or they are fixed.
class Graph {
 public:
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Everything launched on the stream until End() is recorded, not run. CUDA only. While recording,
  // nothing may synchronise or allocate.
  static absl::Status Begin(const Exec& exec);
  // `what` names the graph in errors. After an error of a recorded call: ends the recording and
  // gives up what was recorded.
  static absl::StatusOr<std::unique_ptr<Graph>> End(const Exec& exec, const char* what);
  absl::Status Launch(const Exec& exec);
  size_t nodes() const { return nodes_; }

 private:
  Graph(void* executable, size_t nodes) : executable_(executable), nodes_(nodes) {}
  void* executable_;  // cudaGraphExec_t
  size_t nodes_;
};

}  // namespace hearth::kernels
