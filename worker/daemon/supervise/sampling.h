// Lets a checkpoint's model write a text in a process of its own: starts it, confined as trainers
// are, passes on what it writes, and proves that none of its processes is left.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/io/message_frame.h"
#include "common/time/clock.h"
#include "hearth/v1/agent.pb.h"
#include "worker/daemon/device/device_check.h"
#include "worker/daemon/disk/checkpoint_root.h"
#include "worker/daemon/supervise/child_process.h"
#include "worker/daemon/supervise/line_splitter.h"
#include "worker/daemon/supervise/outbox.h"
#include "worker/daemon/supervise/text_host.h"

namespace hearth::worker {

class Sampling : public TextHost {
 public:
  struct Options {
    SpawnOptions program;  // that reads a WriteText from HEARTH_TRAINER_FD and answers there
    // Null: a device that is free when the process is gone.
    DeviceCheck* device = nullptr;
    // A process that says nothing for so long is ended: loading a model may take its time.
    absl::Duration silence = absl::Minutes(10);
    // How long the proof that nothing is left may take.
    absl::Duration gone_bound = absl::Seconds(10);
    // At most one piece in such a time, so that a fast model does not crowd the stream.
    absl::Duration piece_period = absl::Milliseconds(50);
    // A sign of life for the coordinator.
    absl::Duration alive_period = absl::Seconds(5);
  };

  // All outlive the object; the listener is called on a thread of its own.
  static absl::StatusOr<std::unique_ptr<Sampling>> Create(const Options& options,
                                                          const CheckpointRoot& root,
                                                          Clock& clock,
                                                          TextListener& listener);
  // Ends the text that is being written.
  ~Sampling() override;

  void Write(const v1::WriteText& request) override;
  void Stop(const std::string& why) override;

 private:
  // One text on its way.
  struct Text {
    int64_t id = 0;
    ChildProcess process;
    std::optional<int64_t> baseline;  // of the device
    Outbox outbox;                    // of the request
    FrameReader reader;
    LineSplitter errors;
    std::string last_words;  // last line of stderr
    std::string pending;     // written, not yet sent on
    v1::TextEnd end = v1::TEXT_END_UNSPECIFIED;
    absl::Status error;
    bool over = false;   // end or error says how
    bool quiet = false;  // nobody wants the last answer
    absl::Duration heard;
    absl::Duration sent;
  };

  Sampling(const Options& options, const CheckpointRoot& root, Clock& clock, TextListener& listener)
      : options_(options), root_(root), clock_(clock), listener_(listener) {}

  void Run();
  // The next request; nothing: stopping.
  std::optional<v1::WriteText> Await() ABSL_LOCKS_EXCLUDED(mu_);
  void Serve(const v1::WriteText& request);
  absl::Status Begin(const v1::WriteText& request, Text& text);
  void PollOnce(Text& text);
  // Ends the text if Stop was called.
  void TakeStop(Text& text) ABSL_LOCKS_EXCLUDED(mu_);
  void ReadPipe(Text& text);
  void ReadErrors(Text& text);
  void Deliver(Text& text);
  // Sends what waits, if it is time. False: the listener has no room for it now.
  bool Send(Text& text);
  // The process and all that it started; then its device.
  void EndProcess(Text& text);

  const Options options_;
  const CheckpointRoot& root_;
  Clock& clock_;
  TextListener& listener_;
  Fd wake_;  // eventfd

  absl::Mutex mu_;
  std::optional<v1::WriteText> next_ ABSL_GUARDED_BY(mu_);
  std::optional<std::string> stop_ ABSL_GUARDED_BY(mu_);  // of the text that is being written
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace hearth::worker
