#include "coordinator/store/check.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/store/data_dir.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/positions.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/segment_log.h"
#include "coordinator/store/sqlite.h"

namespace hearth::coordinator {
namespace {

constexpr int kLinesOfOneKind = 100;

class Checker {
 public:
  Checker(std::string data_dir, Env& env) : dir_(std::move(data_dir)), env_(env) {}

  absl::StatusOr<CheckReport> Run() {
    HEARTH_ASSIGN_OR_RETURN(const FolderState folder, LookAtFolder(env_, dir_));
    HEARTH_RETURN_IF_ERROR(CheckFolder(folder));
    if (!folder.has_database) {
      Damage(dir_ + "/store.db is missing or empty");
      return std::move(report_);
    }
    absl::Status status = CheckDatabase(folder);
    if (absl::IsFailedPrecondition(status)) {
      return status;
    }
    if (!status.ok()) {
      Damage(std::string(status.message()));
    }
    return std::move(report_);
  }

 private:
  void Damage(std::string line) { report_.damage.push_back(std::move(line)); }

  absl::Status CheckFolder(const FolderState& folder) {
    if (folder.marker_damaged) {
      Damage(dir_ + "/.hearth-data is damaged");
    } else if (!folder.marker.has_value() && !folder.has_database) {
      return absl::FailedPreconditionError(dir_ + (env_.IsDirectory(dir_)
                                                       ? " is no data dir of hearth-coordinator"
                                                       : " does not exist"));
    } else if (!folder.marker.has_value()) {
      report_.notes.push_back("no marker: the next start makes one");
    }
    for (const std::string& name : folder.others) {
      report_.notes.push_back(
          absl::StrCat(dir_, "/", absl::CHexEscape(name), " is not the store's"));
    }
    const absl::StatusOr<std::vector<std::string>> kept = env_.ListDir(dir_ + "/quarantine");
    if (kept.ok() && !kept->empty()) {
      report_.notes.push_back(
          absl::StrCat("earlier starts set files aside: ", dir_, "/quarantine"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckDatabase(const FolderState& folder) {
    HEARTH_ASSIGN_OR_RETURN(database_, Database::OpenReadOnly(dir_ + "/store.db"));
    HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> found,
                            database_->FindDamage(kLinesOfOneKind));
    for (const std::string& line : found) {
      Damage(absl::StrCat(dir_, "/store.db: ", line));
    }
    HEARTH_ASSIGN_OR_RETURN(const SchemaInfo schema, ReadSchema(*database_));
    HEARTH_RETURN_IF_ERROR(AdmitVersion(schema, dir_));
    checked_ = schema.version >= 2;
    if (checked_) {
      HEARTH_RETURN_IF_ERROR(CheckRows(folder, schema.version));
    } else {
      report_.notes.push_back("store of an older version: its rows have no checksums yet");
    }
    return CheckFiles();
  }

  absl::Status CheckRows(const FolderState& folder, int64_t version) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<BadRow> rows, FindBadRows(*database_, version));
    for (const BadRow& row : rows) {
      Damage(absl::StrCat(dir_, "/store.db: ", Describe(row)));
    }
    HEARTH_ASSIGN_OR_RETURN(const int64_t kept, QueryInt("SELECT count(*) FROM damaged"));
    if (kept > 0) {
      report_.notes.push_back(
          absl::StrCat("earlier starts set ", kept, " damaged rows aside (table \"damaged\")"));
    }
    HEARTH_ASSIGN_OR_RETURN(const int64_t generation,
                            QueryInt("SELECT value FROM meta WHERE key = 'generation'"));
    HEARTH_ASSIGN_OR_RETURN(const int64_t data_id,
                            QueryInt("SELECT value FROM meta WHERE key = 'data_id'"));
    if (folder.marker.has_value() && generation >= 0 && generation < folder.marker->generation) {
      Damage(absl::StrCat(dir_, "/store.db is of generation ", generation, ", the folder has seen ",
                          folder.marker->generation));
    }
    if (folder.marker.has_value() && data_id > 0 && data_id != folder.marker->id) {
      Damage(dir_ + "/store.db belongs to another folder");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> QueryInt(const std::string& sql) {
    HEARTH_ASSIGN_OR_RETURN(Statement query, database_->Prepare(sql));
    HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
    return row ? query.ColumnInt(0) : -1;
  }

  // Histories, logs and what the journal has for them.
  absl::Status CheckFiles() {
    HEARTH_ASSIGN_OR_RETURN(Statement jobs, database_->Prepare("SELECT job_id FROM jobs"));
    std::set<std::string> known;
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool row, jobs.Step());
      if (!row) {
        break;
      }
      known.insert(jobs.ColumnBytes(0));
    }
    report_.jobs = static_cast<int64_t>(known.size());
    HEARTH_RETURN_IF_ERROR(ForEachPosition(
        *database_,
        [this](const std::string& job_id, StreamKind kind, const SegmentLog::Position& position) {
          const std::string dir = StreamFolder(dir_, job_id, kind);
          for (const std::string& problem : SegmentLog::Check(env_, dir, position)) {
            Damage(absl::StrCat("job ", absl::CHexEscape(job_id), ": ", problem));
          }
          ++report_.files;
          return absl::OkStatus();
        }));
    if (checked_) {
      HEARTH_RETURN_IF_ERROR(CheckJournal());
    }
    const absl::StatusOr<std::vector<std::string>> names = env_.ListDir(dir_ + "/jobs");
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      if (!known.contains(name)) {
        report_.notes.push_back(absl::StrCat(dir_, "/jobs/", absl::CHexEscape(name),
                                             " belongs to no job: the next start moves it to ",
                                             dir_, "/quarantine"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckJournal() {
    HEARTH_ASSIGN_OR_RETURN(Statement rows, database_->Prepare("SELECT id, records FROM journal"));
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) {
        return absl::OkStatus();
      }
      if (!ReadJournal(rows.ColumnBytes(1), [](JournalOp, std::string_view, const Frame&) {})) {
        Damage(
            absl::StrCat(dir_, "/store.db: row ", rows.ColumnInt(0), " of the journal is damaged"));
      }
    }
  }

  const std::string dir_;
  Env& env_;
  CheckReport report_;
  std::unique_ptr<Database> database_;
  bool checked_ = false;  // rows have checksums
};

}  // namespace

absl::StatusOr<CheckReport> CheckDataDir(const std::string& data_dir, Env& env) {
  // The coordinator's lock, if there is one to hold; nothing is made.
  const int lock = open((data_dir + "/LOCK").c_str(), O_RDONLY | O_CLOEXEC);
  absl::StatusOr<CheckReport> report;
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0) {
    report = absl::FailedPreconditionError(
        absl::StrCat("data dir ", data_dir, " is in use by a hearth-coordinator; stop it first"));
  } else {
    report = Checker(data_dir, env).Run();
  }
  if (lock >= 0) {
    close(lock);
  }
  return report;
}

}  // namespace hearth::coordinator
