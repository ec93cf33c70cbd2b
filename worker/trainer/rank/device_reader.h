// How a GPU's state gets into a checkpoint's snapshot beside the next step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/device.h"
#include "worker/trainer/checkpoint/checkpoint.h"
#include "worker/trainer/checkpoint/snapshot.h"
#include "worker/trainer/step/engine.h"

namespace hearth::trainer {

// Masters and optimizer state, which only updates change, are copied on a stream of their own:
// forward and backward of the next step go on meanwhile, and its update must be launched behind
// updates_may_begin(). Everything else is copied on the engine's stream, before whatever is
// launched next.
class DeviceReader : public ContentReader {
 public:
  // The engine, which must be on a GPU, outlives it.
  static absl::StatusOr<std::unique_ptr<DeviceReader>> New(const Engine& engine);
  ~DeviceReader() override;
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;

  // Hooks that pin memory for this GPU.
  PinHooks hooks() const;

  absl::Status Read(void* to, const void* from, size_t bytes) override;
  absl::Status Start(void* to, const void* from, size_t bytes) override;
  absl::Status AllStarted() override;
  absl::Status Finish() override;

  const kernels::Event& updates_may_begin() const { return *copied_; }

 private:
  explicit DeviceReader(const Engine& engine);
  bool ChangesInUpdatesAlone(const void* data) const;

  const Engine& engine_;
  std::vector<std::pair<const uint8_t*, const uint8_t*>> updated_;  // [begin, end) of each piece
  kernels::Exec beside_;
  bool begun_ = false;                       // beside_ waits for the engine's stream
  std::unique_ptr<kernels::Event> forked_;   // what was launched before the first copy
  std::unique_ptr<kernels::Event> copied_;   // the copies beside
  std::unique_ptr<kernels::Event> between_;  // the copies on the engine's stream
  absl::Mutex reading_;                      // one Read at a time uses beside_
};

}  // namespace hearth::trainer
