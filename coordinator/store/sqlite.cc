#include "coordinator/store/sqlite.h"

#include <sqlite3.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "coordinator/store/fault_vfs.h"
#include "coordinator/store/record_frame.h"

namespace hearth::coordinator {
namespace {

absl::StatusCode CodeOf(int rc) {
  switch (rc & 0xff) {
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kUnavailable;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ErrorOf(sqlite3* db, int rc) {
  const char* file = db == nullptr ? nullptr : sqlite3_db_filename(db, "main");
  const bool full =
      (rc & 0xff) == SQLITE_IOERR && db != nullptr && sqlite3_system_errno(db) == ENOSPC;
  const absl::StatusCode code = full ? absl::StatusCode::kResourceExhausted : CodeOf(rc);
  // SQLite calls a full disk "disk I/O error" when it is a write to the WAL that fails.
  const char* text = full            ? "the disk is full"
                     : db == nullptr ? sqlite3_errstr(rc)
                                     : sqlite3_errmsg(db);
  return absl::Status(code, absl::StrCat(file == nullptr ? "store" : file, ": ", text));
}

template <typename T>
std::string_view BytesOf(const T& value) {
  return std::string_view(reinterpret_cast<const char*>(&value), sizeof(value));
}

// row_crc(x, ...) in SQL.
void RowCrc(sqlite3_context* context, int count, sqlite3_value** values) {
  Crc32c sum;
  for (int i = 0; i < count; ++i) {
    const int type = sqlite3_value_type(values[i]);
    // With the type, so that NULL, an empty text and 0 differ.
    sum.Extend(BytesOf(static_cast<uint8_t>(type)));
    if (type == SQLITE_INTEGER) {
      sum.Extend(BytesOf(static_cast<int64_t>(sqlite3_value_int64(values[i]))));
    } else if (type == SQLITE_FLOAT) {
      sum.Extend(BytesOf(sqlite3_value_double(values[i])));
    } else if (type != SQLITE_NULL) {
      const void* data = sqlite3_value_blob(values[i]);
      const uint32_t size = static_cast<uint32_t>(sqlite3_value_bytes(values[i]));
      sum.Extend(BytesOf(size));
      sum.Extend(std::string_view(static_cast<const char*>(data), data == nullptr ? 0 : size));
    }
  }
  sqlite3_result_int64(context, sum.value());
}

}  // namespace

Statement::~Statement() {
  sqlite3_finalize(stmt_);
}

Statement::Statement(Statement&& other) noexcept {
  *this = std::move(other);
}

Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(db_, other.db_);
  std::swap(stmt_, other.stmt_);
  std::swap(next_parameter_, other.next_parameter_);
  std::swap(bind_error_, other.bind_error_);
  return *this;
}

Statement& Statement::Text(std::string_view value) {
  // A view of length 0 may have no pointer, which SQLite would take for NULL.
  const char* data = value.data() == nullptr ? "" : value.data();
  bind_error_ |= sqlite3_bind_text64(stmt_, next_parameter_++, data, value.size(), SQLITE_TRANSIENT,
                                     SQLITE_UTF8);
  return *this;
}

Statement& Statement::Blob(std::string_view value) {
  const char* data = value.data() == nullptr ? "" : value.data();
  bind_error_ |=
      sqlite3_bind_blob64(stmt_, next_parameter_++, data, value.size(), SQLITE_TRANSIENT);
  return *this;
}

Statement& Statement::Int(int64_t value) {
  bind_error_ |= sqlite3_bind_int64(stmt_, next_parameter_++, value);
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  if (bind_error_ != SQLITE_OK) {
    return absl::InternalError(absl::StrCat("cannot bind: ", sqlite3_sql(stmt_)));
  }
  const int rc = sqlite3_step(stmt_);
  if (rc == SQLITE_ROW) {
    return true;
  }
  if (rc == SQLITE_DONE) {
    return false;
  }
  return ErrorOf(db_, rc);
}

absl::Status Statement::Run() {
  while (true) {
    absl::StatusOr<bool> row = Step();
    if (!row.ok() || !*row) {
      Reset();
      return row.status();
    }
  }
}

void Statement::Reset() {
  sqlite3_reset(stmt_);
  sqlite3_clear_bindings(stmt_);
  next_parameter_ = 1;
  bind_error_ = 0;
}

int64_t Statement::ColumnInt(int column) const {
  return sqlite3_column_int64(stmt_, column);
}

std::string Statement::ColumnBytes(int column) const {
  const void* data = sqlite3_column_blob(stmt_, column);
  const int size = sqlite3_column_bytes(stmt_, column);
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
}

Database::~Database() {
  sqlite3_close_v2(db_);
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenWith(const std::string& path,
                                                             int flags,
                                                             const std::string& vfs) {
  std::unique_ptr<Database> database(new Database(path));
  const std::string chosen = !vfs.empty() ? vfs : fault::Enabled() ? FaultVfs() : "";
  int rc = sqlite3_open_v2(path.c_str(), &database->db_, flags | SQLITE_OPEN_NOMUTEX,
                           chosen.empty() ? nullptr : chosen.c_str());
  if (rc == SQLITE_OK) {
    rc =
        sqlite3_create_function_v2(database->db_, "row_crc", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC,
                                   nullptr, &RowCrc, nullptr, nullptr, nullptr);
  }
  if (rc != SQLITE_OK) {
    return absl::Status(CodeOf(rc), absl::StrCat("cannot open ", path, ": ", sqlite3_errstr(rc)));
  }
  sqlite3_extended_result_codes(database->db_, 1);
  // Milliseconds that a statement waits for a lock of another process.
  sqlite3_busy_timeout(database->db_, 5000);
  return database;
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                         const std::string& vfs) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Database> database,
                          OpenWith(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs));
  HEARTH_RETURN_IF_ERROR(database->Execute("PRAGMA journal_mode=WAL"));
  HEARTH_RETURN_IF_ERROR(database->Execute("PRAGMA synchronous=FULL"));
  // A commit that finds this many pages (32 MiB) in the WAL moves them to the database, and waits
  // for that. With SQLite's 1,000 a thousand running jobs, whose rows change each second, pay every
  // second for pages that change again in the next.
  HEARTH_RETURN_IF_ERROR(database->Execute("PRAGMA wal_autocheckpoint=8192"));
  HEARTH_RETURN_IF_ERROR(database->Execute("PRAGMA foreign_keys=OFF"));
  return database;
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenReadOnly(const std::string& path,
                                                                 const std::string& vfs) {
  return OpenWith(path, SQLITE_OPEN_READONLY, vfs);
}

absl::StatusOr<std::vector<std::string>> Database::FindDamage(int max) {
  std::vector<std::string> found;
  absl::StatusOr<Statement> query = Prepare(absl::StrCat("PRAGMA integrity_check(", max, ")"));
  while (query.ok()) {
    const absl::StatusOr<bool> row = query->Step();
    if (!row.ok()) {
      query = row.status();
    } else if (!*row) {
      return found;
    } else if (const std::string line = query->ColumnBytes(0); line != "ok") {
      found.push_back(line);
    }
  }
  if (!absl::IsDataLoss(query.status())) {
    return query.status();
  }
  found.emplace_back(query.status().message());  // too damaged to be checked to the end
  return found;
}

absl::Status Database::BackupTo(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Database> copy,
                          OpenWith(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  HEARTH_RETURN_IF_ERROR(copy->Execute("PRAGMA synchronous=FULL"));
  sqlite3_backup* backup = sqlite3_backup_init(copy->db_, "main", db_, "main");
  if (backup == nullptr) {
    return ErrorOf(copy->db_, sqlite3_errcode(copy->db_));
  }
  // All pages in one step: one read transaction, which a writer in WAL mode does not wait for.
  // Several steps would begin again after each commit of the coordinator.
  const int rc = sqlite3_backup_step(backup, -1);
  const int finished = sqlite3_backup_finish(backup);
  if (rc != SQLITE_DONE) {
    return ErrorOf(copy->db_, finished == SQLITE_OK ? rc : finished);
  }
  // The pages bring the original's WAL mode with them.
  return copy->Execute("PRAGMA journal_mode=DELETE");
}

absl::Status Database::Execute(const std::string& sql) {
  const int rc = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  return rc == SQLITE_OK ? absl::OkStatus() : ErrorOf(db_, rc);
}

absl::StatusOr<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* stmt = nullptr;
  const int rc = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()),
                                    SQLITE_PREPARE_PERSISTENT, &stmt, nullptr);
  if (rc != SQLITE_OK) {
    return ErrorOf(db_, rc);
  }
  return Statement(db_, stmt);
}

}  // namespace hearth::coordinator
