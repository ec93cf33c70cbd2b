#include "worker/trainer/data/background_check.h"

#include <cstdlib>

#include "common/io/faulty_env.h"
#include "common/io/sha256.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::trainer {
namespace {

// Its files are read only when Open() was called.
class SlowEnv : public FaultyEnv {
 public:
  SlowEnv() : FaultyEnv(Env::Real()) {}
  absl::StatusOr<std::unique_ptr<MappedFile>> Map(const std::string& path) override {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&open_));
    return FaultyEnv::Map(path);
  }
  void Open() {
    absl::MutexLock lock(&mu_);
    open_ = true;
  }

 private:
  absl::Mutex mu_;
  bool open_ = false;
};

class BackgroundCheckTest : public ::testing::Test {
 protected:
  BackgroundCheckTest() { EXPECT_TRUE(Env::Real().WriteFileAtomically(dir_ + "/a", "text").ok()); }

  const TempDir temp_;
  const std::string dir_ = temp_.path();
  SlowEnv env_;
};

TEST_F(BackgroundCheckTest, SlowFile_DelaysNobodyAndIsToldLater) {
  BackgroundCheck check(FileVerifier("", 1, env_),
                        {RecordedFile{dir_ + "/a", {Sha256Hex("other")}}}, Clock::Real());
  EXPECT_TRUE(check.Wait(absl::ZeroDuration()).ok());
  EXPECT_TRUE(check.status().ok());
  EXPECT_FALSE(check.done());
  env_.Open();
  EXPECT_TRUE(absl::IsDataLoss(check.Wait(absl::InfiniteDuration())));
  EXPECT_TRUE(check.done());
  EXPECT_TRUE(absl::IsDataLoss(check.status()));
}

TEST_F(BackgroundCheckTest, GoodFile_IsOk) {
  env_.Open();
  BackgroundCheck check(FileVerifier("", 1, env_), {RecordedFile{dir_ + "/a", {Sha256Hex("text")}}},
                        Clock::Real());
  EXPECT_TRUE(check.Wait(absl::InfiniteDuration()).ok());
  EXPECT_TRUE(check.done());
}

}  // namespace
}  // namespace hearth::trainer
