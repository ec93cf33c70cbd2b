#include "worker/trainer/rank/device_reader.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace hearth::trainer {

using kernels::Event;

DeviceReader::DeviceReader(const Engine& engine) : engine_(engine), beside_(engine.exec()) {
  const auto add = [this](const kernels::TensorView& view) {
    if (!view.empty()) {
      updated_.emplace_back(view.as<uint8_t>(), view.as<uint8_t>() + view.bytes());
    }
  };
  // Ranges that only an update writes: masters and the optimizer's states.
  for (const StorePiece& piece : engine.parameters().pieces()) {
    add(piece.master);
    add(piece.blocks);
    for (const kernels::TensorView& state : piece.states) {
      add(state);
    }
  }
  std::sort(updated_.begin(), updated_.end());
}

absl::StatusOr<std::unique_ptr<DeviceReader>> DeviceReader::New(const Engine& engine) {
  std::unique_ptr<DeviceReader> reader(new DeviceReader(engine));
  kernels::Exec& beside = reader->beside_;
  beside.stream = nullptr;
  HEARTH_ASSIGN_OR_RETURN(beside.stream, kernels::NewStream(*engine.options().cuda));
  HEARTH_ASSIGN_OR_RETURN(reader->forked_, Event::New(beside, Event::Use::kOrder));
  HEARTH_ASSIGN_OR_RETURN(reader->copied_, Event::New(beside, Event::Use::kOrder));
  HEARTH_ASSIGN_OR_RETURN(reader->between_, Event::New(beside, Event::Use::kOrder));
  return reader;
}

DeviceReader::~DeviceReader() {
  if (beside_.stream != nullptr) {
    kernels::DeleteStream(beside_.stream);
  }
}

PinHooks DeviceReader::hooks() const {
  kernels::CudaContext* const cuda = engine_.options().cuda;
  return {[cuda](void* data, size_t bytes) { return kernels::Pin(*cuda, data, bytes); },
          [](void* data) { kernels::Unpin(data); }};
}

bool DeviceReader::ChangesInUpdatesAlone(const void* data) const {
  const auto* const address = static_cast<const uint8_t*>(data);
  const auto after =
      std::upper_bound(updated_.begin(), updated_.end(), address,
                       [](const uint8_t* at, const auto& range) { return at < range.first; });
  return after != updated_.begin() && address < std::prev(after)->second;
}

absl::Status DeviceReader::Read(void* to, const void* from, size_t bytes) {
  // The current GPU belongs to a thread, and the writer's thread reads too.
  HEARTH_RETURN_IF_ERROR(kernels::MakeCurrent(*engine_.options().cuda));
  absl::MutexLock lock(&reading_);
  HEARTH_RETURN_IF_ERROR(kernels::Synchronize(engine_.exec()));  // what was launched before
  HEARTH_RETURN_IF_ERROR(kernels::Copy(beside_, to, from, bytes));
  return kernels::Synchronize(beside_);
}

absl::Status DeviceReader::Start(void* to, const void* from, size_t bytes) {
  // The copies wait for the step before them, whose results they are.
  if (!begun_) {
    HEARTH_RETURN_IF_ERROR(forked_->Record(engine_.exec()));
    HEARTH_RETURN_IF_ERROR(kernels::StreamWait(beside_, *forked_));
    begun_ = true;
  }
  // What only updates change is copied beside the next step, whose update waits for it. Anything
  // else the next step may overwrite at once, so its copy stands in front of that step.
  return kernels::Copy(ChangesInUpdatesAlone(from) ? beside_ : engine_.exec(), to, from, bytes);
}

absl::Status DeviceReader::AllStarted() {
  begun_ = false;
  HEARTH_RETURN_IF_ERROR(copied_->Record(beside_));
  return between_->Record(engine_.exec());
}

absl::Status DeviceReader::Finish() {
  HEARTH_RETURN_IF_ERROR(kernels::MakeCurrent(*engine_.options().cuda));
  HEARTH_RETURN_IF_ERROR(copied_->Wait());
  return between_->Wait();
}

}  // namespace hearth::trainer
