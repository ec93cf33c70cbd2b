#include "tests/fuzz/scratch.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/status_macros.h"

namespace hearth::fuzz {
namespace {

class Folder {
 public:
  Folder() {
    const bool memory = access("/dev/shm", W_OK) == 0;
    path_ = memory ? "/dev/shm/hearth-fuzz-XXXXXX" : "/tmp/hearth-fuzz-XXXXXX";
    HEARTH_CHECK(mkdtemp(path_.data()) != nullptr, path_.c_str());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::string ScratchFile(const std::string& name, std::string_view bytes) {
  static Folder folder;
  std::string path = folder.path() + "/" + name;
  std::error_code failure;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failure);
  HEARTH_CHECK(!failure, path.c_str());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  HEARTH_CHECK(out.good(), path.c_str());
  return path;
}

}  // namespace hearth::fuzz
