// Files whose checksum is recorded somewhere, and which of them have been found to have it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/io/checksum.h"
#include "common/io/env.h"
#include "common/time/clock.h"

namespace hearth {

struct RecordedFile {
  std::string path;
  Checksum checksum;
};

// $HEARTH_HOME/verified, else ~/.hearth/verified; "" when neither variable is set.
std::string VerifiedFilesFolder();

// Reads each file once: what was found is kept in a file of `folder` under path, size, times of
// change (ns), inode and device, so a file is read again once it is changed, or replaced by
// another. A byte that only the disk has changed since is not noticed. Several processes may use
// one folder; of those that verify the same files at the same time one reads and the others wait. A
// folder that cannot be written, or a damaged file in it, costs a second reading and nothing else.
// Thread-safe.
class FileVerifier {
 public:
  // `folder`: as above, made if absent; "" = nothing is kept. `threads`, >= 1: of a call; they
  // share out files, and chunks of files where the checksum allows that.
  FileVerifier(std::string folder,
               int threads,
               Env& env = Env::Real(),
               Clock& clock = Clock::Real());

  // kDataLoss: the first file that differs, "FILE: SHA-256 is X, recorded Y"; otherwise the errors
  // of Env::Map. kCancelled: `stop` became true. Files that are not there are passed over: whoever
  // needs them says so.
  absl::Status Verify(absl::Span<const RecordedFile> files,
                      const std::atomic<bool>* stop = nullptr) const;

 private:
  struct Identity;
  struct Found;
  class Known;
  class Lock;
  class Round;

  std::vector<Found> NotKnown(absl::Span<const RecordedFile> files) const;
  absl::Status Check(const Found& found, const std::atomic<bool>* stop) const;
  void Remember(const std::vector<Found>& found) const;

  const std::string folder_;
  const int threads_;
  Env& env_;
  Clock& clock_;
};

}  // namespace hearth
