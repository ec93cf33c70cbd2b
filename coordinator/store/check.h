// hearth-coordinator --check: reads a whole data dir, changes nothing in it, and says for each
// finding what would repair it. With --repair it makes the repairs that need no human decision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/io/env.h"

namespace hearth::coordinator {

// What repairs a finding.
enum class Mend {
  kNothing,   // it does no harm, or nothing brings back what is lost
  kStart,     // the next start of the coordinator does, and so does --repair
  kRepair,    // --repair alone
  kByPerson,  // a person has to decide; a start refuses the folder
};

// A row for each kind of thing that a check finds.
struct FindingKind {
  const char* name;
  bool damage;  // false: a note, the folder is as it should be
  Mend mend;
  const char* how;  // what is done, or what to do
};
absl::Span<const FindingKind> FindingKinds();

struct Finding {
  const FindingKind* kind = nullptr;
  std::string text;  // printable; names the job that it is about
};

struct CheckReport {
  std::vector<Finding> findings;
  int64_t jobs = 0;   // rows read
  int64_t files = 0;  // histories and logs read

  std::vector<std::string> damage() const;  // texts
  std::vector<std::string> notes() const;
};

// kFailedPrecondition: a coordinator runs on the folder (its text says "in use"), the schema is
// newer than this program's, or the folder is no data dir. A store of an older version has no
// checksums of rows and is checked without them.
absl::StatusOr<CheckReport> CheckDataDir(const std::string& data_dir, Env& env = Env::Real());

struct RepairReport {
  std::vector<std::string> done;  // a line each; printable
  CheckReport after;
};

// Mends what needs no decision: it opens the store as a start does, and also cuts damaged records
// out of histories and logs. Nothing is removed: damaged rows go to the table "damaged", files and
// copies of them to <data-dir>/quarantine. `now` names the quarantine's folder.
//
// kDataLoss: there is damage for a person (the text says what to do), nothing was changed; other
// errors as in CheckDataDir and Store::Open.
absl::StatusOr<RepairReport> RepairDataDir(const std::string& data_dir,
                                           absl::Time now,
                                           Env& env = Env::Real());

// A line for people that says what mends it, and who does that.
std::string MendText(const FindingKind& kind);

}  // namespace hearth::coordinator
