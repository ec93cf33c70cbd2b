#include "coordinator/store/schema.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/store.pb.h"

namespace hearth::coordinator {
namespace {

template <typename Message>
bool Parses(std::string_view bytes) {
  Message message;
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

constexpr std::string_view kJournal = "journal";

constexpr TableDef kTables[] = {
    {"meta", 1, "key, value", "", "", nullptr},
    {"jobs", 1, "job_id, name, state, epoch, revision, record", "job_id", "record",
     &Parses<v1::JobRecord>},
    {"events", 1, "job_id, revision, event", "job_id", "event", &Parses<v1::JobEvent>},
    {"requests", 1, "request_id, record", "", "record", &Parses<v1::RequestRecord>},
    {"workers", 1, "worker_id, record", "", "record", &Parses<v1::WorkerRecord>},
    {"kv", 1, "job_id, epoch, key, record", "job_id", "record", &Parses<v1::KvRecord>},
    {"files", 1, "job_id, stream, first, last, tail_first, tail_bytes, dropped", "job_id", "",
     nullptr},
    {kJournal, 2, "id, records", "", "", nullptr},
    {"tokens", 3, "name, record", "", "record", &Parses<v1::TokenRecord>},
    {"audit", 3, "refused, number, record", "", "record", &Parses<v1::AuditRecord>},
};

constexpr std::string_view kSchema = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL, crc INTEGER) WITHOUT ROWID;
CREATE TABLE jobs (
  job_id TEXT PRIMARY KEY, name TEXT NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, revision INTEGER NOT NULL,
  record BLOB NOT NULL, crc INTEGER);
CREATE TABLE events (
  job_id TEXT NOT NULL, revision INTEGER NOT NULL, event BLOB NOT NULL, crc INTEGER,
  PRIMARY KEY (job_id, revision)) WITHOUT ROWID;
CREATE TABLE requests (request_id TEXT PRIMARY KEY, record BLOB NOT NULL, crc INTEGER) WITHOUT ROWID;
CREATE TABLE workers (worker_id TEXT PRIMARY KEY, record BLOB NOT NULL, crc INTEGER) WITHOUT ROWID;
CREATE TABLE kv (
  job_id TEXT NOT NULL, epoch INTEGER NOT NULL, key TEXT NOT NULL, record BLOB NOT NULL, crc INTEGER,
  PRIMARY KEY (job_id, epoch, key));
CREATE TABLE files (
  job_id TEXT NOT NULL, stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, tail_first INTEGER NOT NULL,
  tail_bytes INTEGER NOT NULL, dropped INTEGER NOT NULL, crc INTEGER, PRIMARY KEY (job_id, stream)) WITHOUT ROWID;
)sql";

// New in version 2.
constexpr std::string_view kSchema2 = R"sql(
CREATE TABLE journal (id INTEGER PRIMARY KEY, records BLOB NOT NULL, crc INTEGER);
CREATE TABLE damaged (
  id INTEGER PRIMARY KEY, time INTEGER NOT NULL, table_name TEXT NOT NULL, problem TEXT NOT NULL, content TEXT NOT NULL);
)sql";

// New in version 3.
constexpr std::string_view kSchema3 = R"sql(
CREATE TABLE tokens (name TEXT PRIMARY KEY, record BLOB NOT NULL, crc INTEGER) WITHOUT ROWID;
CREATE TABLE audit (
  refused INTEGER NOT NULL, number INTEGER NOT NULL, record BLOB NOT NULL, crc INTEGER,
  PRIMARY KEY (refused, number)) WITHOUT ROWID;
)sql";

constexpr size_t kContentShown = 120;
constexpr const char* kChecksumDiffers = "its checksum differs";

std::string Str(std::string_view text) {
  return std::string(text);
}

const TableDef& TableOf(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTables), std::end(kTables),
                                   [&](const TableDef& table) { return table.name == name; });
  HEARTH_CHECK(found != std::end(kTables), "a table of the store");
  return *found;
}

// The checksum of a row whose columns are `columns`, as SQL.
std::string CrcSql(const TableDef& table, const std::string& columns) {
  return absl::StrCat("row_crc('", Str(table.name), "', ", columns, ")");
}

std::string IsBadSql(const TableDef& table) {
  return absl::StrCat("crc IS NOT ", CrcSql(table, Str(table.columns)));
}

// From version 1 to 2: the journal, and a checksum for each row.
std::string AddChecksumsSql() {
  std::string sql = absl::StrCat(Str(kSchema2),
                                 "INSERT OR REPLACE INTO meta (key, value) VALUES ('data_id', 0);");
  for (const TableDef& table : kTables) {
    if (table.since == 1) {
      absl::StrAppend(&sql, "ALTER TABLE ", Str(table.name), " ADD COLUMN crc INTEGER; UPDATE ",
                      Str(table.name), " SET crc = ", CrcSql(table, Str(table.columns)), ";");
    }
  }
  return sql;
}

// All columns of a row as one text of SQL literals.
std::string ContentSql(const TableDef& table) {
  std::vector<std::string> quoted;
  const std::vector<std::string> columns = absl::StrSplit(Str(table.columns), ", ");
  for (const std::string& column : columns) {
    quoted.push_back(absl::StrCat("quote(", column, ")"));
  }
  return absl::StrJoin(quoted, " || ', ' || ");
}

// Rows of `table` that `where` selects.
absl::Status CollectBad(Database& database,
                        const TableDef& table,
                        const std::string& where,
                        const std::string& problem,
                        std::vector<BadRow>& bad) {
  const std::string job = table.job_id.empty() ? "''" : Str(table.job_id);
  HEARTH_ASSIGN_OR_RETURN(
      Statement query,
      database.Prepare(absl::StrCat("SELECT ", job, ", substr(", ContentSql(table), ", 1, ",
                                    kContentShown, ") FROM ", Str(table.name), " WHERE ", where)));
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      return absl::OkStatus();
    }
    bad.push_back({table.name, absl::CHexEscape(query.ColumnBytes(0)), problem,
                   absl::CHexEscape(query.ColumnBytes(1))});
  }
}

// Checksums of rows whose checksum is right and whose message cannot be parsed: they find the rows
// again. (A row of an older version that was damaged before it got its checksum.)
absl::StatusOr<std::vector<int64_t>> Unparsable(Database& database, const TableDef& table) {
  std::vector<int64_t> sums;
  if (table.parses == nullptr) {
    return sums;
  }
  HEARTH_ASSIGN_OR_RETURN(
      Statement query, database.Prepare(absl::StrCat("SELECT crc, ", Str(table.message), " FROM ",
                                                     Str(table.name))));
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) {
      return sums;
    }
    if (!table.parses(query.ColumnBytes(1))) {
      sums.push_back(query.ColumnInt(0));
    }
  }
}

// The two ways in which rows are bad: a condition and its text.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Conditions(Database& database,
                                                                            const TableDef& table) {
  std::vector<std::pair<std::string, std::string>> conditions = {
      {IsBadSql(table), kChecksumDiffers}};
  HEARTH_ASSIGN_OR_RETURN(const std::vector<int64_t> sums, Unparsable(database, table));
  if (!sums.empty()) {
    conditions.emplace_back(
        absl::StrCat("crc IN (", absl::StrJoin(sums, ", "), ") AND NOT ", IsBadSql(table)),
        "its message cannot be parsed");
  }
  return conditions;
}

absl::Status SetTableAside(Database& database,
                           const TableDef& table,
                           int64_t time,
                           std::vector<BadRow>& bad) {
  HEARTH_ASSIGN_OR_RETURN(const auto conditions, Conditions(database, table));
  for (const auto& [where, problem] : conditions) {
    const size_t before = bad.size();
    HEARTH_RETURN_IF_ERROR(CollectBad(database, table, where, problem, bad));
    if (bad.size() == before) {
      continue;
    }
    HEARTH_RETURN_IF_ERROR(database.Execute(absl::StrCat(
        "INSERT INTO damaged (time, table_name, problem, content) SELECT ", time, ", '",
        Str(table.name), "', '", problem, "', ", ContentSql(table), " FROM ", Str(table.name),
        " WHERE ", where, "; DELETE FROM ", Str(table.name), " WHERE ", where)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const TableDef> Tables() {
  return kTables;
}

std::string PutRowSql(std::string_view name) {
  const TableDef& table = TableOf(name);
  const std::vector<std::string> columns = absl::StrSplit(Str(table.columns), ", ");
  std::vector<std::string> parameters;
  for (size_t i = 1; i <= columns.size(); ++i) {
    parameters.push_back(absl::StrCat("?", i));
  }
  const std::string all = absl::StrJoin(parameters, ", ");
  return absl::StrCat("INSERT OR REPLACE INTO ", Str(table.name), " (", Str(table.columns),
                      ", crc) VALUES (", all, ", ", CrcSql(table, all), ")");
}

absl::StatusOr<SchemaInfo> ReadSchema(Database& database) {
  HEARTH_ASSIGN_OR_RETURN(
      Statement tables,
      database.Prepare("SELECT count(*), coalesce(sum(name = 'meta'), 0), coalesce(sum(name = "
                       "'journal'), 0) FROM sqlite_master"));
  HEARTH_RETURN_IF_ERROR(tables.Step().status());
  SchemaInfo info;
  info.fresh = tables.ColumnInt(0) == 0;
  if (tables.ColumnInt(1) != 1) {
    return info;
  }
  const bool checked = tables.ColumnInt(2) == 1;
  const TableDef& meta = TableOf("meta");
  HEARTH_ASSIGN_OR_RETURN(
      Statement query,
      database.Prepare(absl::StrCat("SELECT value FROM meta WHERE key = 'schema_version'",
                                    checked ? absl::StrCat(" AND NOT ", IsBadSql(meta)) : "")));
  HEARTH_ASSIGN_OR_RETURN(const bool found, query.Step());
  if (found) {
    info.version = query.ColumnInt(0);
  } else if (checked) {
    // The row is damaged; the file's header has the number too.
    HEARTH_ASSIGN_OR_RETURN(Statement user, database.Prepare("PRAGMA user_version"));
    HEARTH_RETURN_IF_ERROR(user.Step().status());
    info.version = user.ColumnInt(0);
  }
  if (info.version < 1) {
    return absl::DataLossError("schema version is missing");
  }
  return info;
}

absl::Status AdmitVersion(const SchemaInfo& schema, const std::string& data_dir) {
  if (schema.version == 0) {
    return absl::DataLossError(data_dir + "/store.db is not a store of hearth-coordinator");
  }
  if (schema.version > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "schema version ", schema.version, " is newer than this program's (", kSchemaVersion,
        "): it was written by a later hearth-coordinator; use that one"));
  }
  return absl::OkStatus();
}

absl::Status CreateTables(Database& database) {
  return database.Execute(
      absl::StrCat("BEGIN IMMEDIATE;", Str(kSchema), Str(kSchema2), Str(kSchema3),
                   "INSERT INTO meta (key, value) VALUES ('schema_version', ", kSchemaVersion,
                   "), ('generation', 0), ('revision', 0), ('data_id', 0);",
                   "UPDATE meta SET crc = ", CrcSql(TableOf("meta"), "key, value"),
                   ";PRAGMA user_version = ", kSchemaVersion, ";COMMIT;"));
}

absl::Status Migrate(Database& database, int64_t version) {
  if (version >= kSchemaVersion) {
    return absl::OkStatus();
  }
  // One step a version, in order; a store of any older one takes those that it lacks.
  const std::string steps[] = {AddChecksumsSql(), Str(kSchema3)};
  static_assert(std::size(steps) == kSchemaVersion - 1);
  // One transaction: a crash in between leaves the store in its old version, whole.
  std::string sql = "BEGIN IMMEDIATE;";
  for (int64_t from = version; from < kSchemaVersion; ++from) {
    absl::StrAppend(&sql, steps[from - 1]);
  }
  absl::StrAppend(&sql, PutRowSql("meta"), ";");
  sql =
      absl::StrReplaceAll(sql, {{"?1", "'schema_version'"}, {"?2", absl::StrCat(kSchemaVersion)}});
  absl::StrAppend(&sql, "PRAGMA user_version = ", kSchemaVersion, ";COMMIT;");
  absl::Status status = database.Execute(sql);
  if (!status.ok()) {
    database.Execute("ROLLBACK").IgnoreError();  // may have happened by itself
  }
  return status;
}

absl::StatusOr<std::vector<BadRow>> FindBadRows(Database& database, int64_t version) {
  std::vector<BadRow> bad;
  for (const TableDef& table : kTables) {
    if (table.since > version) {
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(const auto conditions, Conditions(database, table));
    for (const auto& [where, problem] : conditions) {
      HEARTH_RETURN_IF_ERROR(CollectBad(database, table, where, problem, bad));
    }
  }
  return bad;
}

absl::StatusOr<std::vector<BadRow>> SetBadRowsAside(Database& database, int64_t time) {
  std::vector<BadRow> bad;
  HEARTH_RETURN_IF_ERROR(database.Execute("BEGIN IMMEDIATE"));
  absl::Status status;
  for (const TableDef& table : kTables) {
    // The journal is read record by record (LoadJournal): what is whole of a damaged row is used.
    if (table.name != kJournal) {
      status.Update(SetTableAside(database, table, time, bad));
    }
  }
  if (status.ok()) {
    status = database.Execute("COMMIT");
  }
  if (!status.ok()) {
    database.Execute("ROLLBACK").IgnoreError();  // may have happened by itself
    return status;
  }
  return bad;
}

absl::Status KeepJournalRow(Database& database, int64_t id, int64_t time) {
  const TableDef& table = TableOf(kJournal);
  return database.Execute(
      absl::StrCat("INSERT INTO damaged (time, table_name, problem, content) SELECT ", time, ", '",
                   Str(kJournal), "', '", kChecksumDiffers, "', ", ContentSql(table),
                   " FROM journal WHERE id = ", id));
}

absl::Status KeepRowsOfJob(Database& database, const std::string& job_id, int64_t time) {
  for (const TableDef& table : kTables) {
    if (table.job_id.empty()) {
      continue;
    }
    HEARTH_ASSIGN_OR_RETURN(
        Statement insert,
        database.Prepare(
            absl::StrCat("INSERT INTO damaged (time, table_name, problem, content) SELECT ?1, '",
                         Str(table.name), "', 'its job is lost', ", ContentSql(table), " FROM ",
                         Str(table.name), " WHERE ", Str(table.job_id), " = ?2")));
    HEARTH_RETURN_IF_ERROR(insert.Int(time).Text(job_id).Run());
  }
  return absl::OkStatus();
}

std::string Describe(const BadRow& row) {
  return absl::StrCat("row of ", row.job_id.empty() ? "" : absl::StrCat("job ", row.job_id, " in "),
                      "table ", Str(row.table), ": ", row.problem, " (", row.content, ")");
}

}  // namespace hearth::coordinator
