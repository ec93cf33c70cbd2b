// hearth-coordinator --check: reads a whole data dir and changes nothing in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/env.h"

namespace hearth::coordinator {

struct CheckReport {
  // Damage: a line each. Lines about a job name it.
  std::vector<std::string> damage;
  // Things that do not belong to the store and do no harm, e.g. unknown entries under jobs/ and
  // what earlier starts set aside.
  std::vector<std::string> notes;
  int64_t jobs = 0;   // rows read
  int64_t files = 0;  // histories and logs read
};

// kFailedPrecondition: a coordinator runs on the folder (its text says "in use"), the schema is
// newer than this program's, or the folder is no data dir. A store of an older version has no
// checksums of rows and is checked without them.
absl::StatusOr<CheckReport> CheckDataDir(const std::string& data_dir, Env& env = Env::Real());

}  // namespace hearth::coordinator
