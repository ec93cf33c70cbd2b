#include "common/io/available_memory.h"

#include <map>
#include <string>

#include "common/io/faulty_env.h"
#include "gtest/gtest.h"

namespace hearth {
namespace {

// A machine that has these files and no others.
class FileTable : public FaultyEnv {
 public:
  FileTable() : FaultyEnv(Env::Real()) {}
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    const auto it = files.find(path);
    return it == files.end() ? absl::StatusOr<std::string>(absl::NotFoundError(path)) : it->second;
  }

  std::map<std::string, std::string> files;
};

TEST(AvailableMemory, IsWhatTheMachineSays_OrTheControlGroupIfThatIsLess) {
  FileTable machine;
  EXPECT_GT(AvailableMemory(machine), int64_t{1} << 60);
  machine.files["/proc/meminfo"] = "MemTotal:  64 kB\nMemAvailable:   32 kB\n";
  EXPECT_EQ(AvailableMemory(machine), 32768);
  machine.files["/sys/fs/cgroup/memory.max"] = "max\n";
  machine.files["/sys/fs/cgroup/memory.current"] = "10000\n";
  EXPECT_EQ(AvailableMemory(machine), 32768) << "no limit";
  machine.files["/sys/fs/cgroup/memory.max"] = "20000\n";
  EXPECT_EQ(AvailableMemory(machine), 10000);
  machine.files["/sys/fs/cgroup/memory.stat"] = "anon 7000\ninactive_file 2500\n";
  EXPECT_EQ(AvailableMemory(machine), 12500) << "pages of files that can go";
  machine.files["/sys/fs/cgroup/memory.current"] = "30000\n";
  machine.files["/sys/fs/cgroup/memory.stat"] = "";
  EXPECT_EQ(AvailableMemory(machine), 0);
}

TEST(AvailableMemory, OfThisMachine_IsSomething) {
  EXPECT_GT(AvailableMemory(Env::Real()), 1 << 20);
}

}  // namespace
}  // namespace hearth
