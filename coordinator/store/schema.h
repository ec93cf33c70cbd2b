// The tables of store.db: creating and migrating them, and finding damaged rows.
//
// Every table's last column is the checksum of the others (row_crc of sqlite.h over the table's
// name and them). A row whose checksum differs, or whose message cannot be parsed, is damaged: its
// columns go to the table `damaged`, as SQL literals, and it is not used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/store/sqlite.h"

namespace hearth::coordinator {

// Version of the tables and files; a store of a newer one is refused, an older one is migrated on
// Open. 2: checksums of rows, the journal. 3: tokens and the audit log.
inline constexpr int kSchemaVersion = 3;

struct TableDef {
  std::string_view name;
  int since;                 // the version that brought it
  std::string_view columns;  // without the checksum, comma separated, in order
  std::string_view job_id;   // the column that names the job; "" = none
  std::string_view message;  // the column with a serialized message; "" = none
  bool (*parses)(std::string_view message);
};
absl::Span<const TableDef> Tables();

// INSERT OR REPLACE of a row with parameters ?1..?n for its columns, and its checksum.
std::string PutRowSql(std::string_view table);

struct SchemaInfo {
  bool fresh = false;   // no tables at all
  int64_t version = 0;  // 0 = not a store of ours
};
// kDataLoss: damaged so badly that the version cannot be read.
absl::StatusOr<SchemaInfo> ReadSchema(Database& database);
// Whether this program may use tables of that version (an older one after Migrate).
// kFailedPrecondition: newer than kSchemaVersion; kDataLoss: not a store of ours.
absl::Status AdmitVersion(const SchemaInfo& schema, const std::string& data_dir);

// Makes the tables in an empty database.
absl::Status CreateTables(Database& database);
// Brings a store of an older version up to kSchemaVersion, in one transaction.
absl::Status Migrate(Database& database, int64_t version);

// What is wrong with a row.
struct BadRow {
  std::string_view table;
  std::string job_id;   // as it stands there, perhaps damaged too; "" = its table has none
  std::string problem;  // "its checksum differs" or "its message cannot be parsed"
  std::string content;  // SQL literals of all columns, cut for people
};
// Changes nothing. Expects the tables of `version`, which is 2 or later.
absl::StatusOr<std::vector<BadRow>> FindBadRows(Database& database, int64_t version);
// Moves damaged rows to the table `damaged`, in one transaction, and returns them. Leaves out the
// journal, whose records have their own checksums. `time`: seconds since 1970, recorded with them.
absl::StatusOr<std::vector<BadRow>> SetBadRowsAside(Database& database, int64_t time);

// Copies a row of the journal to `damaged`.
absl::Status KeepJournalRow(Database& database, int64_t id, int64_t time);
// Copies the rows of a job in all tables to `damaged`: its own row is lost. For a transaction.
absl::Status KeepRowsOfJob(Database& database, const std::string& job_id, int64_t time);

// "row of job x in table jobs: its checksum differs (…)".
std::string Describe(const BadRow& row);

}  // namespace hearth::coordinator
