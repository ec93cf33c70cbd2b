// Whose folder it is, what is done with what a start does not know, and damage.
#include "coordinator/store/data_dir.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/store/check.h"
#include "coordinator/store/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"
#include "tests/support/coordinator/stored_effects.h"

namespace hearth::coordinator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kStamp = "2026-11-18T11-06-40Z";
// SQL that makes the store one of version 2, which had neither tokens nor an audit log.
constexpr const char* kBackToVersion2 =
    "DROP TABLE tokens; DROP TABLE audit; UPDATE meta SET value = 2, crc = row_crc('meta', key, 2) "
    "WHERE key = 'schema_version'; PRAGMA user_version = 2";

// A job's row, an event, a step and a log line with cursor `n`, and a worker and a request.
class DataDirTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Store>> TryOpen(bool restore = false) {
    return Store::Open({.data_dir = dir_, .restore = restore, .now = kStoreTime});
  }

  std::unique_ptr<Store> Open(bool restore = false) {
    auto store = TryOpen(restore);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? std::move(*store) : nullptr;
  }

  // Commits records `first`..`last` of each job, one commit for all jobs of a number.
  static void Fill(Store& store,
                   const std::vector<std::string>& jobs,
                   int64_t first,
                   int64_t last) {
    for (int64_t n = first; n <= last; ++n) {
      std::vector<Effects> batch;
      for (const std::string& job : jobs) {
        batch.push_back(StoredEffects(job, n));
      }
      ASSERT_TRUE(store.Commit(batch).ok());
    }
  }

  // A store with jobs a and b of `last` records each, part of them in files.
  void Make(int64_t last) {
    auto store = Open();
    ASSERT_NE(store, nullptr);
    Fill(*store, {"a", "b"}, 1, last - 1);
    ASSERT_TRUE(store->Flush().ok());
    Fill(*store, {"a", "b"}, last, last);
  }

  static int64_t CountRecords(const Store& store, const std::string& job_id) {
    const auto log = store.Find(job_id, StreamKind::kHistory);
    SegmentLog::ReadState state;
    return log == nullptr ? 0 : static_cast<int64_t>(log->Read(state, 1 << 20)->records.size());
  }

  void Execute(const std::string& sql) {
    auto database = Database::Open(dir_ + "/store.db");
    ASSERT_TRUE(database.ok()) << database.status();
    const absl::Status status = (*database)->Execute(sql);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Overwrites bytes of a file of the data dir.
  void WriteAt(const std::string& name, size_t offset, const std::string& bytes) {
    std::string content = *Env::Real().ReadFile(dir_ + name);
    content.replace(offset, bytes.size(), bytes);
    ASSERT_TRUE(Env::Real().WriteFileAtomically(dir_ + name, content).ok());
  }

  // The entry of job b in the index of the table jobs becomes one of job c.
  void SpoilIndexOfJobs() {
    int64_t page = 0;
    {
      auto database = Database::Open(dir_ + "/store.db");
      auto query = (*database)->Prepare(
          "SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = 'jobs'");
      ASSERT_TRUE(query.ok() && query->Step().value_or(false)) << query.status();
      page = query->ColumnInt(0);
    }
    constexpr size_t kPageBytes = 4096;
    const std::string content = *Env::Real().ReadFile(dir_ + "/store.db");
    const size_t at = content.rfind('b', static_cast<size_t>(page) * kPageBytes - 1);
    ASSERT_GE(at, static_cast<size_t>(page - 1) * kPageBytes);
    WriteAt("/store.db", at, "c");
  }

  // The job's row says that its history goes no further than that.
  void SetHistoryCursor(const std::string& job_id, int64_t cursor) {
    auto database = Database::Open(dir_ + "/store.db");
    v1::JobRecord record;
    {
      auto query = (*database)->Prepare("SELECT record FROM jobs WHERE job_id = ?");
      ASSERT_TRUE(query.ok() && query->Text(job_id).Step().value_or(false)) << query.status();
      ASSERT_TRUE(record.ParseFromString(query->ColumnBytes(0)));
    }
    record.set_history_cursor(cursor);
    auto put = (*database)->Prepare(PutRowSql("jobs"));
    ASSERT_TRUE(put.ok()) << put.status();
    const absl::Status written = put->Text(job_id)
                                     .Text(record.job().spec().name())
                                     .Int(record.job().state())
                                     .Int(record.job().epoch())
                                     .Int(record.job().revision())
                                     .Blob(record.SerializeAsString())
                                     .Run();
    ASSERT_TRUE(written.ok()) << written;
  }

  void Touch(const std::string& path, const std::string& text = "x") {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }

  std::string Kept(const std::string& name) {
    return absl::StrCat(dir_, "/quarantine/", kStamp, "/", name);
  }

  // The check finds `kind` and says `said`; the repair does what the kind's row promises and says
  // `done`; afterwards `of_b` records of job b can be read.
  void ExpectMended(const std::string& kind,
                    const std::string& said,
                    const std::string& done,
                    int64_t of_b) {
    SCOPED_TRACE(kind);
    const auto before = CheckDataDir(dir_);
    ASSERT_TRUE(before.ok()) << before.status();
    const auto found = std::find_if(before->findings.begin(), before->findings.end(),
                                    [&](const Finding& f) { return f.kind->name == kind; });
    ASSERT_NE(found, before->findings.end()) << absl::StrJoin(before->damage(), "; ");
    EXPECT_THAT(found->text, HasSubstr(said));
    EXPECT_TRUE(std::all_of(found->text.begin(), found->text.end(), absl::ascii_isprint))
        << found->text;
    const auto repaired = RepairDataDir(dir_, kStoreTime);
    if (found->kind->mend == Mend::kByPerson) {
      EXPECT_EQ(repaired.status().code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(repaired.status().message(), HasSubstr(found->kind->how));
      return;
    }
    ASSERT_TRUE(repaired.ok()) << repaired.status();
    EXPECT_THAT(absl::StrJoin(repaired->done, "; "), HasSubstr(done));
    EXPECT_THAT(repaired->after.damage(), IsEmpty());
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(store->Load().ok());
    EXPECT_EQ(CountRecords(*store, "b"), of_b);
  }

  const TempDir temp_;
  const std::string root_ = temp_.path();
  std::string dir_ = root_ + "/data";
};

TEST_F(DataDirTest, Marker_IsReadAsWrittenAndEveryDamageIsSeen) {
  const std::string text = MarkerText({0x1234, 7});
  const auto marker = ParseMarker(text);
  ASSERT_TRUE(marker.ok());
  EXPECT_EQ(marker->id, 0x1234);
  EXPECT_EQ(marker->generation, 7);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string bad = text;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(ParseMarker(bad).ok()) << i;
    EXPECT_FALSE(ParseMarker(text.substr(0, i)).ok()) << i;
  }
}

TEST_F(DataDirTest, Admit_EveryFolder_AsItsTableSays) {
  const struct {
    const char* what;
    bool marker, damaged, database, jobs, others;
    bool plain, restore;  // admitted
  } rows[] = {
      {"empty", false, false, false, false, false, true, true},
      {"foreign", false, false, false, false, true, false, false},
      {"jobs alone", false, false, false, true, false, false, false},
      {"an earlier build's", false, false, true, true, true, true, true},
      {"ours", true, false, true, true, true, true, true},
      {"store.db missing", true, false, false, true, false, false, true},
      {"marker damaged", false, true, true, true, false, false, true},
      {"marker damaged, store.db missing", false, true, false, true, false, false, false},
  };
  for (const auto& row : rows) {
    FolderState folder;
    if (row.marker) {
      folder.marker = Marker{1, 1};
    }
    folder.marker_damaged = row.damaged;
    folder.has_database = row.database;
    folder.has_jobs = row.jobs;
    if (row.others) {
      folder.others = {"thesis"};
    }
    EXPECT_EQ(AdmitFolder(folder, "/d", false).ok(), row.plain) << row.what;
    EXPECT_EQ(AdmitFolder(folder, "/d", true).ok(), row.restore) << row.what;
  }
}

TEST_F(DataDirTest, Open_ForeignFolder_IsRefusedAndUntouched) {
  Touch(dir_ + "/thesis/chapter1.tex");
  for (const bool restore : {false, true}) {
    const auto store = TryOpen(restore);
    ASSERT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(store.status().message()), HasSubstr("thesis"));
  }
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/thesis/chapter1.tex"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/LOCK"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/jobs"));
}

TEST_F(DataDirTest, Open_FreshFileSystem_IsTaken) {
  std::filesystem::create_directories(dir_ + "/lost+found");
  EXPECT_NE(Open(), nullptr);
}

TEST_F(DataDirTest, Load_UnknownEntriesUnderJobs_AreSetAsideAndNamed) {
  Make(3);
  Touch(dir_ + "/jobs/my-thesis/chapter1.tex", "words");
  Touch(dir_ + "/jobs/note.txt");
  auto store = Open();
  const auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->set_aside, 2);
  EXPECT_THAT(state->warnings, Contains(HasSubstr("my-thesis")));
  EXPECT_THAT(state->warnings, Contains(HasSubstr("note.txt")));
  EXPECT_EQ(*Env::Real().ReadFile(Kept("jobs/my-thesis/chapter1.tex")), "words");
  EXPECT_TRUE(std::filesystem::exists(Kept("jobs/note.txt")));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/jobs/my-thesis"));
  EXPECT_EQ(CountRecords(*store, "a"), 3);
}

TEST_F(DataDirTest, Delete_JobWithAForeignFileInItsFolder_SetsThatAside) {
  Make(3);
  Touch(dir_ + "/jobs/a/notes.txt", "words");
  auto store = Open();
  ASSERT_TRUE(store->Load().ok());
  Effects deletion;
  deletion.job_deletes = {"a"};
  ASSERT_TRUE(store->Commit({&deletion, 1}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/jobs/a"));
  EXPECT_EQ(*Env::Real().ReadFile(Kept("jobs/a/notes.txt")), "words");
  EXPECT_FALSE(std::filesystem::exists(Kept("jobs/a/history")));
}

TEST_F(DataDirTest, Open_StoreMissing_IsRefusedUntilRestoreKeepsTheFiles) {
  Make(3);
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::filesystem::remove(dir_ + "/store.db" + suffix);
  }
  const auto refused = TryOpen();
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--restore"));
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/jobs/a/history"));
  auto store = Open(true);
  const auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->core.jobs, IsEmpty());
  EXPECT_THAT(state->warnings, Contains(HasSubstr("jobs/a")));
  EXPECT_TRUE(std::filesystem::exists(Kept("jobs/a/history")));
  EXPECT_TRUE(std::filesystem::exists(Kept("jobs/b/log")));
  EXPECT_GT(store->generation(), 1'000'000'000) << "above what workers have seen";
  const int64_t generation = store->generation();
  store.reset();
  EXPECT_EQ(Open()->generation(), generation + 1);
}

// Yesterday's store.db over today's folder: refused, then opened with what is newer kept aside.
TEST_F(DataDirTest, Open_OlderStorePutBack_IsRefusedUntilRestoreKeepsWhatIsNewer) {
  Make(3);
  std::filesystem::copy_file(dir_ + "/store.db", root_ + "/copy");
  {
    auto store = Open();
    ASSERT_TRUE(store->Load().ok());
    Fill(*store, {"a", "b"}, 4, 5);
    Fill(*store, {"newer"}, 6, 7);
    ASSERT_TRUE(store->Flush().ok());
  }
  std::filesystem::copy_file(root_ + "/copy", dir_ + "/store.db",
                             std::filesystem::copy_options::overwrite_existing);
  const auto refused = TryOpen();
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("has seen 2"));
  auto store = Open(true);
  const auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_GT(store->generation(), 2);
  ASSERT_EQ(state->core.jobs.size(), 2u);
  EXPECT_THAT(state->warnings, Contains(HasSubstr("jobs/newer")));
  EXPECT_THAT(state->warnings, Contains(HasSubstr("records up to 5")));
  EXPECT_TRUE(std::filesystem::exists(Kept("jobs/newer/history")));
  EXPECT_TRUE(std::filesystem::exists(Kept("jobs/a/history/00000000000000000001.seg")));
  EXPECT_EQ(CountRecords(*store, "a"), 3);
  Fill(*store, {"a"}, 4, 4);  // and it goes on
  EXPECT_EQ(CountRecords(*store, "a"), 4);
}

TEST_F(DataDirTest, Open_StoreOfAnotherFolder_IsRefused) {
  Make(3);
  const std::string first = dir_;
  dir_ = root_ + "/other";
  Make(3);
  for (const char* suffix : {"-wal", "-shm"}) {
    std::filesystem::remove(dir_ + "/store.db" + suffix);
  }
  std::filesystem::copy_file(first + "/store.db", dir_ + "/store.db",
                             std::filesystem::copy_options::overwrite_existing);
  const auto refused = TryOpen();
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("another folder"));
  EXPECT_NE(Open(true), nullptr);
}

// As version 1 wrote it, with files behind the recorded position as a crash of that version left
// them.
TEST_F(DataDirTest, Open_FolderOfAnEarlierBuild_IsTakenOverWithAllItHas) {
  const std::string record = [] {
    v1::JobRecord out;
    out.mutable_job()->set_job_id("old");
    out.mutable_job()->set_revision(5);
    out.set_history_cursor(2);
    return out.SerializeAsString();
  }();
  std::string segment;
  for (int64_t n = 1; n <= 2; ++n) {
    v1::StepReport step;
    step.set_step(n);
    PutFrame(segment, n, kStepRecord, step.SerializeAsString());
  }
  Touch(dir_ + "/jobs/old/history/00000000000000000001.seg", segment);
  Touch(dir_ + "/LOCK");
  Execute(absl::StrCat(
      R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (
  job_id TEXT PRIMARY KEY, name TEXT NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, revision INTEGER NOT NULL,
  record BLOB NOT NULL);
CREATE TABLE events (
  job_id TEXT NOT NULL, revision INTEGER NOT NULL, event BLOB NOT NULL, PRIMARY KEY (job_id, revision)) WITHOUT ROWID;
CREATE TABLE requests (request_id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE workers (worker_id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE kv (
  job_id TEXT NOT NULL, epoch INTEGER NOT NULL, key TEXT NOT NULL, record BLOB NOT NULL,
  PRIMARY KEY (job_id, epoch, key));
CREATE TABLE files (
  job_id TEXT NOT NULL, stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, tail_first INTEGER NOT NULL,
  tail_bytes INTEGER NOT NULL, dropped INTEGER NOT NULL, PRIMARY KEY (job_id, stream)) WITHOUT ROWID;
INSERT INTO meta VALUES ('schema_version', 1), ('generation', 3), ('revision', 5);
INSERT INTO files VALUES ('old', 0, 1, 2, 1, )sql",
      segment.size(), ", 0); INSERT INTO jobs VALUES ('old', '', 1, 1, 5, x'",
      absl::BytesToHexString(record), "')"));
  const auto before = CheckDataDir(dir_);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_THAT(before->damage(), IsEmpty());

  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->generation(), 4);
  const auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->warnings, IsEmpty());
  ASSERT_EQ(state->core.jobs.size(), 1u);
  EXPECT_EQ(state->core.last_revision, 5);
  EXPECT_EQ(CountRecords(*store, "old"), 2);
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/.hearth-data"));
  store.reset();
  store = Open();
  EXPECT_EQ(store->generation(), 5);
  EXPECT_EQ(store->Load()->core.jobs.size(), 1u);
}

// The store of version 2 had neither tokens nor an audit log.
TEST_F(DataDirTest, Open_AStoreOfVersion2_IsMigratedWithAllItHas) {
  Make(4);
  Execute(kBackToVersion2);
  const auto before = CheckDataDir(dir_);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_THAT(before->damage(), IsEmpty());
  {
    auto store = Open();
    ASSERT_NE(store, nullptr);
    const auto state = store->Load();
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_THAT(state->warnings, IsEmpty());
    EXPECT_EQ(state->core.jobs.size(), 2u);
    EXPECT_THAT(state->core.tokens, IsEmpty());
    EXPECT_EQ(CountRecords(*store, "a"), 4);
    Effects effects;
    effects.token_puts.emplace_back().mutable_token()->set_name("olga");
    effects.audit.emplace_back().set_number(1);
    ASSERT_TRUE(store->Commit({&effects, 1}).ok());
  }
  const auto after = CheckDataDir(dir_);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_THAT(after->damage(), IsEmpty());
  auto store = Open();
  ASSERT_NE(store, nullptr);
  const auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(state->core.tokens.size(), 1u);
  EXPECT_EQ(state->core.tokens[0].token().name(), "olga");
  EXPECT_EQ(state->audit.size(), 1u);
}

TEST_F(DataDirTest, Commit_OfTheAuditLog_KeepsTheNewestOfEachKind) {
  StoreOptions options;
  options.data_dir = dir_;
  options.audit_records = 3;
  options.audit_refusals = 2;
  auto store = Store::Open(options);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Load().ok());
  Effects effects;
  for (int64_t number = 1; number <= 256; ++number) {
    v1::AuditRecord& record = effects.audit.emplace_back();
    record.set_number(number);
    record.set_outcome(number <= 6 ? "OK" : "UNAUTHENTICATED");
  }
  ASSERT_TRUE((*store)->Commit({&effects, 1}).ok());
  store->reset();
  store = Store::Open(options);
  const auto state = (*store)->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  std::vector<int64_t> numbers;
  for (const v1::AuditRecord& record : state->audit) {
    numbers.push_back(record.number());
  }
  EXPECT_THAT(numbers, testing::ElementsAre(4, 5, 6, 255, 256));
}

// One row each way; everything else works.
TEST_F(DataDirTest, Load_OneBadRow_IsSetAsideNamedAndTheRestServes) {
  const struct {
    const char* sql;
    const char* named;
    size_t jobs;
  } rows[] = {
      {"UPDATE jobs SET record = x'0a' WHERE job_id = 'a'", "job a", 1},
      {"UPDATE jobs SET state = state + 1 WHERE job_id = 'a'", "job a", 1},
      {"UPDATE events SET event = x'ff' WHERE job_id = 'a' AND revision = 2", "job a", 2},
      {"UPDATE files SET last = 77 WHERE job_id = 'a' AND stream = 0", "job a", 2},
      {"UPDATE requests SET record = x'ff' WHERE request_id = 'request-2'", "requests", 2},
      {"UPDATE workers SET record = x'ff' WHERE worker_id = 'w1'", "workers", 2},
      {"UPDATE meta SET value = 1 WHERE key = 'revision'", "meta", 2},
      {"UPDATE meta SET value = 99 WHERE key = 'generation'", "meta", 2},
      {"UPDATE meta SET value = 99 WHERE key = 'schema_version'", "meta", 2},
      {"UPDATE journal SET records = substr(records, 1, length(records) - 1)", "journal", 2},
  };
  for (const auto& row : rows) {
    std::filesystem::remove_all(dir_);
    Make(4);
    Execute(row.sql);
    const auto report = CheckDataDir(dir_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->damage(), Contains(HasSubstr(row.named))) << row.sql;
    auto store = Open();
    ASSERT_NE(store, nullptr) << row.sql;
    EXPECT_EQ(store->generation(), 2) << row.sql;
    const auto state = store->Load();
    ASSERT_TRUE(state.ok()) << row.sql << ": " << state.status();
    EXPECT_GE(state->set_aside, 1) << row.sql;
    EXPECT_THAT(state->warnings, Contains(HasSubstr(row.named))) << row.sql;
    EXPECT_EQ(state->core.jobs.size(), row.jobs) << row.sql;
    EXPECT_EQ(state->core.last_revision, 4) << row.sql;
    EXPECT_EQ(state->core.jobs.back().job().job_id(), "b") << row.sql;
    Fill(*store, {"b"}, 5, 6);
    ASSERT_TRUE(store->Flush().ok()) << row.sql;
    store.reset();
    const auto mended = CheckDataDir(dir_);
    EXPECT_THAT(mended->damage(), IsEmpty())
        << row.sql << ": " << absl::StrJoin(mended->damage(), "; ");
  }
}

TEST_F(DataDirTest, Load_LostJob_KeepsItsHistoryAside) {
  Make(4);
  Execute("UPDATE jobs SET record = x'0a' WHERE job_id = 'a'");
  auto store = Open();
  ASSERT_TRUE(store->Load().ok());
  EXPECT_EQ(store->Find("a", StreamKind::kHistory), nullptr);
  const auto kept = SegmentLog::Rebuild(Env::Real(), Kept("jobs/a/history"), INT64_MAX);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->end, 4) << "with what only the journal had";
  // A job of the same name begins from nothing.
  Fill(*store, {"a"}, 5, 5);
  EXPECT_EQ(CountRecords(*store, "a"), 1);
  store.reset();
  store = Open();
  const auto state = store->Load();
  EXPECT_EQ(state->core.jobs.size(), 2u);
  EXPECT_EQ(CountRecords(*store, "a"), 1);
  EXPECT_THAT(state->warnings, IsEmpty());
}

// Bytes of store.db changed at random, forty times or until five have hit something: a start
// refuses, or says what is damaged and serves the rest, or has all that there was.
TEST_F(DataDirTest, Open_RandomlyDamagedStore_IsNeverSilent) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  RecordProperty("seed", absl::StrCat(seed));
  std::mt19937_64 random(seed);
  Make(40);
  const std::string whole = *Env::Real().ReadFile(dir_ + "/store.db");
  std::filesystem::rename(dir_, root_ + "/whole");
  int refused = 0;
  int named = 0;
  for (int round = 0; round < 40 || (refused + named < 5 && round < 400); ++round) {
    std::filesystem::remove_all(dir_);
    std::filesystem::copy(root_ + "/whole", dir_, std::filesystem::copy_options::recursive);
    std::string bytes = whole;
    const size_t at = random() % bytes.size();
    const size_t length =
        std::min<size_t>(bytes.size() - at, 1 + random() % (round % 4 == 0 ? 4096 : 8));
    for (size_t i = 0; i < length; ++i) {
      bytes[at + i] = static_cast<char>(random());
    }
    ASSERT_TRUE(Env::Real().WriteFileAtomically(dir_ + "/store.db", bytes).ok());
    const std::string what = absl::StrCat("round ", round, ": ", length, " bytes at ", at);
    const auto report = CheckDataDir(dir_);
    const bool found = !report.ok() || !report->damage().empty();
    auto store = TryOpen();
    if (!store.ok()) {
      EXPECT_TRUE(found) << what << ": " << store.status();
      ++refused;
      continue;
    }
    const auto state = (*store)->Load();
    ASSERT_TRUE(state.ok()) << what << ": " << state.status();
    if (!state->warnings.empty()) {
      EXPECT_TRUE(found) << what << ": " << state->warnings.front();
      ++named;
      continue;
    }
    EXPECT_FALSE(found) << what << ": " << (report.ok() ? report->damage().front() : "");
    ASSERT_EQ(state->core.jobs.size(), 2u) << what;
    EXPECT_EQ(state->core.jobs[0].job().step(), 40) << what;
    EXPECT_EQ(state->core.jobs[1].job().step(), 40) << what;
    EXPECT_EQ(state->events.size(), 80u) << what;
    EXPECT_EQ(state->core.requests.size(), 40u) << what;
    EXPECT_EQ(state->core.workers.size(), 40u) << what;
    EXPECT_EQ(CountRecords(**store, "a"), 40) << what;
  }
  EXPECT_GT(refused + named, 4) << "refused " << refused << ", named " << named;
}

TEST_F(DataDirTest, Check_SegmentFile_NamesTheJobAndTheOffset) {
  Make(4);
  const std::string path = dir_ + "/jobs/b/history/00000000000000000001.seg";
  std::string bytes = *Env::Real().ReadFile(path);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(Env::Real().WriteFileAtomically(path, bytes).ok());
  const auto report = CheckDataDir(dir_);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->damage().size(), 1u) << absl::StrJoin(report->damage(), "; ");
  EXPECT_THAT(report->damage()[0], HasSubstr("job b"));
  EXPECT_THAT(report->damage()[0], HasSubstr("offset"));
}

TEST_F(DataDirTest, Check_WholeFolder_FindsNothingAndChangesNothing) {
  Make(4);
  const std::string before = *Env::Real().ReadFile(dir_ + "/store.db");
  const auto report = CheckDataDir(dir_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->damage(), IsEmpty());
  EXPECT_EQ(report->jobs, 2);
  EXPECT_EQ(report->files, 4);
  EXPECT_EQ(*Env::Real().ReadFile(dir_ + "/store.db"), before);
  EXPECT_EQ(CheckDataDir(root_ + "/absent").status().code(), absl::StatusCode::kFailedPrecondition);
  auto store = Open();
  EXPECT_EQ(CheckDataDir(dir_).status().code(), absl::StatusCode::kFailedPrecondition);
}

// Damages a folder in each way that a check knows; says what it finds and what then mends it.
TEST_F(DataDirTest, CheckAndRepair_EachKind_AsItsRowSays) {
  const std::string segment = "/jobs/b/history/00000000000000000001.seg";
  const auto spoil = [&](size_t from_end, size_t cut) {
    std::string bytes = *Env::Real().ReadFile(dir_ + segment);
    bytes[bytes.size() - from_end] ^= 1;
    bytes.resize(bytes.size() - cut);
    ASSERT_TRUE(Env::Real().WriteFileAtomically(dir_ + segment, bytes).ok());
  };
  const struct {
    const char* kind;
    std::function<void()> damage;
    const char* said;  // by the check
    const char* done;  // by the repair; "" = it refuses
    int64_t of_b;      // records of job b that can be read afterwards
  } rows[] = {
      {"row_damaged", [&] { Execute("UPDATE events SET event = x'ff' WHERE job_id = 'a'"); },
       "row of job a in table events", "kept in the table", 40},
      {"journal_damaged", [&] { Execute("UPDATE journal SET records = x'ff01'"); },
       "of the journal is damaged", "row 40 of the journal", 39},
      {"records_missing", [&] { spoil(3, 5); }, "job b: ", "1 recorded entries are missing", 39},
      {"records_damaged", [&] { spoil(3, 0); }, "damaged at offset", "were cut out", 39},
      {"records_damaged", [&] { spoil(400, 0); }, "damaged at offset", "were cut out", 39},
      {"unknown_folder", [&] { Touch(dir_ + "/jobs/my-\xff\n/x"); },
       "my-\\xff\\x0a belongs to no job", "moved to", 40},
      {"history_behind", [&] { Execute("DELETE FROM journal"); }, "its row says 40", "are missing",
       39},
      {"not_ours", [&] { Touch(dir_ + "/thesis"); }, "thesis is not the store's", "", 40},
      {"marker_damaged", [&] { Touch(dir_ + "/.hearth-data"); }, ".hearth-data is damaged", "", 0},
      {"store_missing", [&] { std::filesystem::resize_file(dir_ + "/store.db", 0); },
       "is missing or empty", "", 0},
      {"older_store",
       [&] {
         ASSERT_TRUE(WriteMarker(Env::Real(), dir_, {.id = 5, .generation = 9}).ok());
         Execute("UPDATE meta SET value = 5, crc = row_crc('meta', key, 5) WHERE key = 'data_id'");
       },
       "is of generation 1, the folder has seen 9", "", 0},
      {"foreign_store",
       [&] { ASSERT_TRUE(WriteMarker(Env::Real(), dir_, {.id = 5, .generation = 1}).ok()); },
       "belongs to another folder", "", 0},
      {"no_marker",
       [&] {
         std::filesystem::remove(dir_ + "/.hearth-data");
         Execute("UPDATE meta SET value = 0, crc = row_crc('meta', key, 0) WHERE key = 'data_id'");
       },
       "has no marker", "", 40},
      {"store_damaged", [&] { WriteAt("/store.db", 36, std::string("\0\0\0\7", 4)); },
       "but should be 7", "", 0},  // SQLite counts the free pages; the header says 7
      {"store_unreadable", [&] { WriteAt("/store.db", 0, "a file of text, "); }, "not a database",
       "", 0},
      {"index_damaged", [&] { SpoilIndexOfJobs(); }, "missing from index",
       "its indexes were made again", 40},
      {"history_ahead", [&] { SetHistoryCursor("b", 30); }, "goes to record 40, its row says 30",
       "records up to", 30},
      {"set_aside", [&] { Touch(dir_ + "/quarantine/2020-01-01/jobs/x"); }, "set files aside", "",
       40},
      {"old_schema", [&] { Execute(kBackToVersion2); }, "store of version 2", "", 40},
  };
  std::set<std::string_view> damaged;
  for (const auto& row : rows) {
    std::filesystem::remove_all(dir_);
    Make(40);
    row.damage();
    ExpectMended(row.kind, row.said, row.done, row.of_b);
    damaged.insert(row.kind);
  }
  for (const FindingKind& kind : FindingKinds()) {
    EXPECT_TRUE(damaged.contains(kind.name)) << kind.name << " has no row in this test";
  }
}

}  // namespace
}  // namespace hearth::coordinator
