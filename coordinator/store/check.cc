#include "coordinator/store/check.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "coordinator/store/data_dir.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/positions.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/segment_log.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/store.h"
#include "hearth/v1/store.pb.h"

namespace hearth::coordinator {
namespace {

constexpr int kLinesOfOneKind = 100;

// Control characters and bytes that are no ASCII, as damage makes them, as \xNN.
std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return out;
}

constexpr FindingKind kKinds[] = {
    {"store_missing", true, Mend::kByPerson,
     "put a copy of the store back (made by jobctl backup) and start once with --restore"},
    {"marker_damaged", true, Mend::kByPerson, "start once with --restore, which writes a new one"},
    {"store_damaged", true, Mend::kByPerson,
     "put a copy of the store back (made by jobctl backup) and start once with --restore; or "
     "save what can be read: sqlite3 store.db .recover"},
    {"store_unreadable", true, Mend::kByPerson,
     "put a copy of the store back (made by jobctl backup) and start once with --restore"},
    {"older_store", true, Mend::kByPerson,
     "if a copy was put back on purpose, start once with --restore; else put the right store back"},
    {"foreign_store", true, Mend::kByPerson,
     "put the folder's own store back; or start once with --restore to keep this one"},
    {"index_damaged", true, Mend::kStart,
     "the indexes are made again; the file as it is goes to the quarantine"},
    {"row_damaged", true, Mend::kStart,
     "the row goes to the table \"damaged\" and is not used; everything else works"},
    {"journal_damaged", true, Mend::kStart,
     "what is whole of the row is used; the row goes to the table \"damaged\""},
    {"records_damaged", true, Mend::kRepair,
     "the whole records stay, the damaged ones count as dropped, and a copy of the file goes to "
     "the quarantine; until then readers stop there and no backup can be made"},
    {"records_missing", true, Mend::kStart,
     "the file is cut at its last whole record; what is missing counts as dropped"},
    {"history_behind", false, Mend::kNothing,
     "only a copy can bring these records back; the job goes on with later ones"},
    {"history_ahead", false, Mend::kStart, "what the job's row does not know is kept aside"},
    {"unknown_folder", false, Mend::kStart, "it is moved to the quarantine"},
    {"set_aside", false, Mend::kNothing, "only you can remove it"},
    {"not_ours", false, Mend::kNothing, "it is left alone"},
    {"no_marker", false, Mend::kStart, "one is made"},
    {"old_schema", false, Mend::kStart, "the store is brought up to this version"},
};

const FindingKind& KindOf(std::string_view name) {
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const FindingKind& kind) { return kind.name == name; });
  HEARTH_CHECK(found != std::end(kKinds), "a kind of finding");
  return *found;
}

// Damage that is confined to indexes, as SQLite words it.
bool IsOfAnIndex(absl::string_view line) {
  return absl::StrContains(line, " missing from index ") ||
         absl::StrContains(line, "wrong # of entries in index ") ||
         absl::StrContains(line, "non-unique entry in index ");
}

class Checker {
 public:
  Checker(std::string data_dir, Env& env) : dir_(std::move(data_dir)), env_(env) {}

  absl::StatusOr<CheckReport> Run() {
    HEARTH_ASSIGN_OR_RETURN(const FolderState folder, LookAtFolder(env_, dir_));
    HEARTH_RETURN_IF_ERROR(CheckFolder(folder));
    if (!folder.has_database) {
      Found("store_missing", dir_ + "/store.db is missing or empty");
      return std::move(report_);
    }
    absl::Status status = CheckDatabase(folder);
    // A store of a later version: that is no damage.
    if (absl::IsFailedPrecondition(status)) {
      return status;
    }
    if (!status.ok()) {
      Found("store_unreadable", std::string(status.message()));
    }
    return std::move(report_);
  }

 private:
  using Stream = std::pair<std::string, StreamKind>;
  // Cursors of a job's newest records, by its row.
  struct Cursors {
    int64_t history = 0;
    int64_t log = 0;
    bool known = false;  // the row can be read
  };

  void Found(std::string_view kind, std::string_view text) {
    report_.findings.push_back({&KindOf(kind), Printable(text)});
  }

  absl::Status CheckFolder(const FolderState& folder) {
    if (folder.marker_damaged) {
      Found("marker_damaged", dir_ + "/.hearth-data is damaged");
    } else if (!folder.marker.has_value() && !folder.has_database) {
      return absl::FailedPreconditionError(dir_ + (env_.IsDirectory(dir_)
                                                       ? " is not a data dir of hearth-coordinator"
                                                       : " does not exist"));
    } else if (!folder.marker.has_value()) {
      Found("no_marker", dir_ + " has no marker");
    }
    for (const std::string& name : folder.others) {
      Found("not_ours", absl::StrCat(dir_, "/", name, " is not the store's"));
    }
    const absl::StatusOr<std::vector<std::string>> kept = env_.ListDir(dir_ + "/quarantine");
    if (kept.ok() && !kept->empty()) {
      Found("set_aside", absl::StrCat("earlier starts set files aside: ", dir_, "/quarantine"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckDatabase(const FolderState& folder) {
    HEARTH_ASSIGN_OR_RETURN(database_, Database::OpenReadOnly(dir_ + "/store.db"));
    HEARTH_ASSIGN_OR_RETURN(const std::vector<std::string> found,
                            database_->FindDamage(kLinesOfOneKind));
    // Indexes can be made again from the rows (REINDEX); any other line is for a person to decide.
    const bool indexes = std::all_of(found.begin(), found.end(), IsOfAnIndex);
    for (const std::string& line : found) {
      Found(indexes ? "index_damaged" : "store_damaged", absl::StrCat(dir_, "/store.db: ", line));
    }
    HEARTH_ASSIGN_OR_RETURN(const SchemaInfo schema, ReadSchema(*database_));
    HEARTH_RETURN_IF_ERROR(AdmitVersion(schema, dir_));
    // Version 2 brought the checksums (AddChecksumsSql).
    checked_ = schema.version >= 2;
    if (schema.version < kSchemaVersion) {
      Found("old_schema",
            absl::StrCat("store of version ", schema.version, ", this program's is ",
                         kSchemaVersion, checked_ ? "" : ": its rows have no checksums yet"));
    }
    if (checked_) {
      HEARTH_RETURN_IF_ERROR(CheckRows(folder, schema.version));
    }
    return CheckFiles();
  }

  absl::Status CheckRows(const FolderState& folder, int64_t version) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<BadRow> rows, FindBadRows(*database_, version));
    for (const BadRow& row : rows) {
      Found("row_damaged", absl::StrCat(dir_, "/store.db: ", Describe(row)));
    }
    HEARTH_ASSIGN_OR_RETURN(const int64_t kept, QueryInt("SELECT count(*) FROM damaged"));
    if (kept > 0) {
      Found("set_aside",
            absl::StrCat("earlier starts set ", kept, " damaged rows aside (table \"damaged\")"));
    }
    HEARTH_ASSIGN_OR_RETURN(const int64_t generation,
                            QueryInt("SELECT value FROM meta WHERE key = 'generation'"));
    HEARTH_ASSIGN_OR_RETURN(const int64_t data_id,
                            QueryInt("SELECT value FROM meta WHERE key = 'data_id'"));
    if (folder.marker.has_value() && generation >= 0 && generation < folder.marker->generation) {
      Found("older_store", absl::StrCat(dir_, "/store.db is of generation ", generation,
                                        ", the folder has seen ", folder.marker->generation));
    }
    if (folder.marker.has_value() && data_id > 0 && data_id != folder.marker->id) {
      Found("foreign_store", dir_ + "/store.db belongs to another folder");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> QueryInt(const std::string& sql) {
    HEARTH_ASSIGN_OR_RETURN(Statement query, database_->Prepare(sql));
    HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
    return row ? query.ColumnInt(0) : -1;
  }

  absl::Status ReadJobs() {
    HEARTH_ASSIGN_OR_RETURN(Statement jobs, database_->Prepare("SELECT job_id, record FROM jobs"));
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool row, jobs.Step());
      if (!row) {
        break;
      }
      v1::JobRecord record;
      Cursors& cursors = jobs_[jobs.ColumnBytes(0)];
      cursors.known = record.ParseFromString(jobs.ColumnBytes(1)) && record.has_job();
      cursors.history = record.history_cursor();
      cursors.log = record.log_cursor();
    }
    report_.jobs = static_cast<int64_t>(jobs_.size());
    return absl::OkStatus();
  }

  // Histories, logs and what the journal has for them.
  absl::Status CheckFiles() {
    HEARTH_RETURN_IF_ERROR(ReadJobs());
    std::map<Stream, int64_t> ends;  // of the newest records, in files or journal
    HEARTH_RETURN_IF_ERROR(ForEachPosition(
        *database_,
        [&](const std::string& job_id, StreamKind kind, const SegmentLog::Position& position) {
          const std::string dir = StreamFolder(dir_, job_id, kind);
          for (const SegmentLog::Problem& problem : SegmentLog::Check(env_, dir, position)) {
            Found(problem.missing ? "records_missing" : "records_damaged",
                  absl::StrCat("job ", job_id, ": ", problem.text));
          }
          ++report_.files;
          ends[{job_id, kind}] = position.end;
          return absl::OkStatus();
        }));
    if (checked_) {
      HEARTH_RETURN_IF_ERROR(CheckJournal(ends));
      CompareWithRows(ends);
    }
    const absl::StatusOr<std::vector<std::string>> names = env_.ListDir(dir_ + "/jobs");
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      if (!jobs_.contains(name)) {
        Found("unknown_folder", absl::StrCat(dir_, "/jobs/", name, " belongs to no job"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckJournal(std::map<Stream, int64_t>& ends) {
    HEARTH_ASSIGN_OR_RETURN(Statement rows,
                            database_->Prepare("SELECT id, records FROM journal ORDER BY id"));
    const auto see = [&ends](JournalOp op, std::string_view job_id, const Frame& frame) {
      const std::string job(job_id);
      // In the order of ids: a deletion takes away what stands before it and nothing of later rows.
      if (op == JournalOp::kDeleteJob) {
        ends.erase({job, StreamKind::kHistory});
        ends.erase({job, StreamKind::kLog});
        return;
      }
      int64_t& end =
          ends[{job, op == JournalOp::kHistory ? StreamKind::kHistory : StreamKind::kLog}];
      end = std::max(end, frame.cursor);
    };
    while (true) {
      HEARTH_ASSIGN_OR_RETURN(const bool row, rows.Step());
      if (!row) {
        return absl::OkStatus();
      }
      if (!ReadJournal(rows.ColumnBytes(1), see)) {
        Found("journal_damaged", absl::StrCat(dir_, "/store.db: row ", rows.ColumnInt(0),
                                              " of the journal is damaged"));
      }
    }
  }

  // Whether each job's row and its records agree on what is newest.
  void CompareWithRows(const std::map<Stream, int64_t>& ends) {
    for (const auto& [job_id, cursors] : jobs_) {
      for (const StreamKind kind : {StreamKind::kHistory, StreamKind::kLog}) {
        const auto found = ends.find({job_id, kind});
        const int64_t end = found == ends.end() ? 0 : found->second;
        const int64_t row = kind == StreamKind::kHistory ? cursors.history : cursors.log;
        if (!cursors.known || end == row) {
          continue;
        }
        Found(end < row ? "history_behind" : "history_ahead",
              absl::StrCat("job ", job_id, ": its ", StreamName(kind), " goes to record ", end,
                           ", its row says ", row));
      }
    }
  }

  const std::string dir_;
  Env& env_;
  CheckReport report_;
  std::unique_ptr<Database> database_;
  bool checked_ = false;  // rows have checksums
  std::map<std::string, Cursors> jobs_;
};

// "what: how" of what no program decides.
std::string ForAPerson(const CheckReport& report) {
  std::vector<std::string> lines;
  for (const Finding& finding : report.findings) {
    if (finding.kind->mend == Mend::kByPerson) {
      lines.push_back(absl::StrCat(finding.text, ": ", finding.kind->how));
    }
  }
  return absl::StrJoin(lines, "\n  ");
}

std::vector<std::string> TextsOf(const std::vector<Finding>& findings, bool damage) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings) {
    if (finding.kind->damage == damage) {
      texts.push_back(finding.text);
    }
  }
  return texts;
}

}  // namespace

absl::Span<const FindingKind> FindingKinds() {
  return kKinds;
}

std::string MendText(const FindingKind& kind) {
  switch (kind.mend) {
    case Mend::kStart:
      return absl::StrCat("repaired by the next start or --repair: ", kind.how);
    case Mend::kRepair:
      return absl::StrCat("repaired by --repair: ", kind.how);
    case Mend::kByPerson:
      return absl::StrCat("for you to decide: ", kind.how);
    case Mend::kNothing:
      return kind.how;
  }
  return kind.how;
}

std::vector<std::string> CheckReport::damage() const {
  return TextsOf(findings, true);
}

std::vector<std::string> CheckReport::notes() const {
  return TextsOf(findings, false);
}

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

absl::StatusOr<RepairReport> RepairDataDir(const std::string& data_dir, absl::Time now, Env& env) {
  HEARTH_ASSIGN_OR_RETURN(const CheckReport before, CheckDataDir(data_dir, env));
  if (const std::string person = ForAPerson(before); !person.empty()) {
    return absl::DataLossError(
        absl::StrCat("nothing was repaired, because a person has to decide first:\n  ", person));
  }
  RepairReport report;
  {
    HEARTH_ASSIGN_OR_RETURN(
        const std::unique_ptr<Store> store,
        Store::Open({.data_dir = data_dir, .mend_records = true, .now = now}, env));
    HEARTH_ASSIGN_OR_RETURN(const LoadedState state, store->Load());
    for (const std::string& line : state.warnings) {
      report.done.push_back(Printable(line));
    }
    HEARTH_RETURN_IF_ERROR(store->Flush());
  }
  HEARTH_ASSIGN_OR_RETURN(report.after, CheckDataDir(data_dir, env));
  return report;
}

}  // namespace hearth::coordinator
