// Why hearth-trainer ended, as a process exit status. Under the daemon the same reason travels in
// TrainerExit, which is the authority; the status is for people and scripts, and for a trainer that
// could not send its last message.
#pragma once

#include <string_view>

#include "hearth/v1/trainer.pb.h"

namespace hearth::trainer {

struct ExitCode {
  v1::ExitReason reason;
  int code;
  std::string_view name;
  std::string_view meaning;
};

inline constexpr ExitCode kExitCodes[] = {
    {v1::EXIT_REASON_FINISHED, 0, "finished", "all steps done, final checkpoint written"},
    {v1::EXIT_REASON_STOPPED, 20, "stopped",
     "asked to stop (SIGTERM, SIGINT, cancel); checkpoint written"},
    {v1::EXIT_REASON_PAUSED, 21, "paused", "asked to pause; checkpoint written"},
    {v1::EXIT_REASON_BAD_SPEC, 22, "bad_spec",
     "the job cannot run as specified; a retry would fail again"},
    {v1::EXIT_REASON_BAD_DATA, 23, "bad_data",
     "a dataset, model folder or checkpoint cannot be read"},
    {v1::EXIT_REASON_NUMERICAL, 24, "numerical", "a loss or gradient was not finite, or spiked"},
    {v1::EXIT_REASON_COMM, 25, "comm", "peers were lost"},
    {v1::EXIT_REASON_DEVICE, 26, "device", "device failure or out of memory"},
    {v1::EXIT_REASON_IO, 27, "io", "a checkpoint could not be written"},
    {v1::EXIT_REASON_INTERNAL, 28, "internal", "a defect of the trainer"},
    {v1::EXIT_REASON_ABORTED, 29, "aborted", "asked to leave at once"},
    {v1::EXIT_REASON_HUNG, 30, "hung", "a step made no progress; the log has what each thread did"},
};

// Reasons outside the table have the code of EXIT_REASON_INTERNAL.
inline const ExitCode& ExitCodeOf(v1::ExitReason reason) {
  const ExitCode* internal = nullptr;
  for (const ExitCode& row : kExitCodes) {
    if (row.reason == reason) {
      return row;
    }
    if (row.reason == v1::EXIT_REASON_INTERNAL) {
      internal = &row;
    }
  }
  return *internal;
}

}  // namespace hearth::trainer
