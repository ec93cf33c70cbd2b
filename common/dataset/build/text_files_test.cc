#include "common/dataset/build/text_files.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/common/temp_dir.h"

namespace hearth::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(IsText, Utf8_IsRecognised) {
  using namespace std::literals;
  for (const auto good : {""sv, "plain\n"sv, "ü€🙂"sv, "\xf4\x8f\xbf\xbf"sv}) {
    EXPECT_TRUE(IsText(good)) << good;
  }
  for (const auto bad : {"a\0b"sv, "\xff"sv, "caf\xe9"sv, "\xe2\x82"sv, "\xc0\x80"sv,
                         "\xed\xa0\x80"sv, "\xf4\x90\x80\x80"sv, "\x80"sv, "\xe0\x80\x80"sv}) {
    EXPECT_FALSE(IsText(bad)) << bad;
  }
}

TEST(FindFiles, Pattern_MatchesFilesAndFolders) {
  const TempDir temp;
  const std::string& root = temp.path();
  std::filesystem::create_directories(root + "/part-1");
  for (const char* name : {"a.md", "b.txt", "c.md", "part-1/x", "odd[1].txt", "odd1.txt"}) {
    std::ofstream(root + "/" + name) << "text";
  }
  int64_t unreadable = 0;
  const auto names = [&](const std::string& input) {
    std::vector<std::string> found;
    const auto files = FindFiles({root + "/" + input}, &unreadable);
    EXPECT_TRUE(files.ok()) << files.status();
    for (const TextFile& file : *files) {
      found.push_back(file.path.substr(root.size() + 1));
    }
    return found;
  };
  EXPECT_THAT(names("*.md"), ElementsAre("a.md", "c.md"));
  EXPECT_THAT(names("[bp]*"), ElementsAre("b.txt", "part-1/x"));
  EXPECT_THAT(names("odd[1].txt"), ElementsAre("odd[1].txt")) << "a file's name is no pattern";
  EXPECT_THAT(std::string(FindFiles({root + "/*.zip"}, &unreadable).status().message()),
              HasSubstr("*.zip: no file matches"));
}

}  // namespace
}  // namespace hearth::dataset
