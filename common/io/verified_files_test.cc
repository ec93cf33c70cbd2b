#include "common/io/verified_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/io/faulty_env.h"
#include "common/io/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/fake_clock.h"
#include "tests/support/common/temp_dir.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

// Counts the files that are read for their hash.
class CountingEnv : public FaultyEnv {
 public:
  CountingEnv() : FaultyEnv(Env::Real()) {}
  absl::StatusOr<std::unique_ptr<MappedFile>> Map(const std::string& path) override {
    ++reads;
    return FaultyEnv::Map(path);
  }
  std::atomic<int> reads{0};
};

class FileVerifierTest : public ::testing::Test {
 protected:
  // Changed long enough ago to be remembered.
  RecordedFile Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(dir_, "/", name);
    EXPECT_TRUE(Env::Real().WriteFileAtomically(path, text).ok());
    return {path, {Sha256Hex(text)}};
  }
  absl::Status Verify(const std::vector<RecordedFile>& files, int threads = 1) {
    return FileVerifier(folder_, threads, env_, clock_).Verify(files);
  }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  std::string folder_ = dir_ + "/home/verified";
  CountingEnv env_;
  // A time in the future, so that files written now look old.
  FakeClock clock_{Clock::Real().Now() + absl::Hours(1)};
};

TEST_F(FileVerifierTest, GoodFile_IsReadOnce) {
  const RecordedFile file = Write("a b", "some bytes");  // a space in the name
  EXPECT_TRUE(Verify({file}).ok());
  EXPECT_TRUE(Verify({file}).ok());
  EXPECT_EQ(env_.reads, 1);
}

TEST_F(FileVerifierTest, OtherChecksum_IsReadOnceAndDamageIsFound) {
  RecordedFile file = Write("a", "some bytes");
  file.checksum = *ChecksumOfFile(Env::Real(), file.path, ChecksumKind::kXxh3, 1);
  EXPECT_TRUE(Verify({file}).ok());
  EXPECT_TRUE(Verify({file}).ok());
  EXPECT_EQ(env_.reads, 1);
  Write("a", "some bytez");
  const absl::Status status = Verify({file});
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("a: XXH3 is "));
}

TEST_F(FileVerifierTest, ChangedByte_IsDataLossNamingFileAndBothHashes) {
  RecordedFile file = Write("a", "some bytes");
  EXPECT_TRUE(Verify({file}).ok());
  const std::string recorded = file.checksum.hex;
  const RecordedFile changed = Write("a", "some bytez");
  const absl::Status status = Verify({file});
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(status.message(),
            absl::StrCat(file.path, ": SHA-256 is ", changed.checksum.hex, ", recorded ", recorded,
                         "; copy the file again, or use it as it is: a job's data and model.from "
                         "with data.verify: false, a folder given to hearth-trainer with "
                         "--no-verify"));
  EXPECT_TRUE(absl::IsDataLoss(Verify({file}))) << "a bad file is never remembered as good";
  EXPECT_TRUE(Verify({changed}).ok()) << "by its own hash it is good";
}

TEST_F(FileVerifierTest, ChangeWithRestoredTime_IsNoticed) {
  const RecordedFile file = Write("a", "some bytes");
  EXPECT_TRUE(Verify({file}).ok());
  struct stat before = {};
  ASSERT_EQ(stat(file.path.c_str(), &before), 0);
  {
    auto open = Env::Real().NewWritableFile(file.path);  // the same inode
    ASSERT_TRUE(open.ok());
    ASSERT_TRUE((*open)->Append("some bytez").ok());
  }
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, file.path.c_str(), times, 0), 0);
  EXPECT_TRUE(absl::IsDataLoss(Verify({file})));
}

TEST_F(FileVerifierTest, FileThatIsJustWritten_IsReadAgain) {
  const RecordedFile file = Write("a", "some bytes");
  FakeClock now(Clock::Real().Now());
  const FileVerifier verifier(folder_, 1, env_, now);
  EXPECT_TRUE(verifier.Verify({file}).ok());
  EXPECT_TRUE(verifier.Verify({file}).ok());
  EXPECT_EQ(env_.reads, 2) << "it could have changed within one tick of the file system's clock";
}

TEST_F(FileVerifierTest, AbsentFile_IsPassedOver) {
  EXPECT_TRUE(Verify({{dir_ + "/none", {Sha256Hex("")}}}).ok());
}

TEST_F(FileVerifierTest, DamagedMemory_IsIgnoredAndReplaced) {
  const RecordedFile file = Write("a", "some bytes");
  EXPECT_TRUE(Verify({file}).ok());
  for (const std::string& text :
       {std::string("garbage"), std::string("hearth verified files 1\nx\n\xff 1 2\n"),
        std::string()}) {
    ASSERT_TRUE(Env::Real().WriteFileAtomically(folder_ + "/files", text).ok());
    const int before = env_.reads;
    EXPECT_TRUE(Verify({file}).ok());
    EXPECT_EQ(env_.reads, before + 1);
    EXPECT_TRUE(Verify({file}).ok());
    EXPECT_EQ(env_.reads, before + 1);
  }
}

TEST_F(FileVerifierTest, FolderThatCannotBeWritten_CostsReadingsOnly) {
  const RecordedFile file = Write("a", "some bytes");
  folder_ = file.path + "/below-a-file";
  EXPECT_TRUE(Verify({file}).ok());
  EXPECT_TRUE(Verify({file}).ok());
  EXPECT_EQ(env_.reads, 2);
  folder_.clear();
  EXPECT_TRUE(Verify({file}).ok());
  EXPECT_EQ(env_.reads, 3);
}

TEST_F(FileVerifierTest, SeveralThreadsAndVerifiers_ReadEachFileOnceAndKeepAll) {
  std::vector<RecordedFile> files;
  for (int i = 0; i < 40; ++i) {
    files.push_back(Write(absl::StrCat("f", i), absl::StrCat("text ", i)));
  }
  std::vector<std::thread> users;
  for (int i = 0; i < 4; ++i) {
    users.emplace_back([&] { EXPECT_TRUE(Verify(files, 3).ok()); });
  }
  for (std::thread& user : users) {
    user.join();
  }
  EXPECT_EQ(env_.reads, 40);
  EXPECT_TRUE(Verify(files).ok());
  EXPECT_EQ(env_.reads, 40);
}

TEST_F(FileVerifierTest, OneBadAmongMany_IsNamed) {
  std::vector<RecordedFile> files;
  for (int i = 0; i < 8; ++i) {
    files.push_back(Write(absl::StrCat("f", i), absl::StrCat("text ", i)));
  }
  files[5].checksum.hex = Sha256Hex("another text");
  const absl::Status status = Verify(files, 4);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/f5: SHA-256 is "));
}

TEST_F(FileVerifierTest, Stop_EndsIt) {
  const RecordedFile file = Write("a", "some bytes");
  const std::atomic<bool> stop{true};
  EXPECT_TRUE(absl::IsCancelled(FileVerifier(folder_, 1, env_, clock_).Verify({file}, &stop)));
}

}  // namespace
}  // namespace hearth
