#include "common/dataset/build/text_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode.h"

namespace hearth::dataset {
namespace {

namespace fs = std::filesystem;

void Walk(const fs::path& root, std::vector<TextFile>& files, int64_t* unreadable) {
  std::vector<fs::path> folders = {root};
  while (!folders.empty()) {
    const fs::path folder = std::move(folders.back());
    folders.pop_back();
    std::error_code error;
    fs::directory_iterator it(folder, error);
    if (error) {
      ++*unreadable;
      continue;
    }
    for (; it != fs::directory_iterator(); it.increment(error)) {
      if (error) {
        break;
      }
      std::error_code ignored;
      // Links are not followed: they may lead in a circle, or out of the folder.
      const fs::file_status status = it->symlink_status(ignored);
      if (status.type() == fs::file_type::directory) {
        folders.push_back(it->path());
        continue;
      }
      if (status.type() != fs::file_type::regular) {
        continue;
      }
      const uintmax_t size = it->file_size(ignored);
      if (!ignored) {
        files.push_back({it->path().string(), static_cast<int64_t>(size)});
      }
    }
  }
}

// Adds the paths that match the pattern `input`, or `input` itself if it has no wildcard or exists.
absl::Status Expand(const std::string& input, std::vector<std::string>& paths) {
  std::error_code error;
  if (input.find_first_of("*?[") == std::string::npos ||
      fs::exists(fs::symlink_status(input, error))) {
    paths.push_back(input);
    return absl::OkStatus();
  }
  glob_t found = {};
  // Not thread-safe only with ~ in patterns, which GLOB_TILDE would ask for.
  const int result =
      glob(input.c_str(), GLOB_NOSORT, nullptr, &found);  // NOLINT(concurrency-mt-unsafe)
  for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) {
    paths.emplace_back(found.gl_pathv[i]);
  }
  globfree(&found);
  return result == 0 ? absl::OkStatus()
                     : absl::NotFoundError(absl::StrCat(input, ": no file matches the pattern"));
}

}  // namespace

absl::StatusOr<std::vector<TextFile>> FindFiles(const std::vector<std::string>& inputs,
                                                int64_t* unreadable) {
  std::vector<std::string> paths;
  for (const std::string& input : inputs) {
    HEARTH_RETURN_IF_ERROR(Expand(input, paths));
  }
  std::vector<TextFile> files;
  for (const std::string& input : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(input, error);
    if (error || !fs::exists(status)) {
      return absl::NotFoundError(absl::StrCat(input, ": no such file or folder"));
    }
    if (fs::is_directory(status)) {
      Walk(input, files, unreadable);
    } else if (fs::is_regular_file(status)) {
      const uintmax_t size = fs::file_size(input, error);
      files.push_back({input, error ? 0 : static_cast<int64_t>(size)});
    }
  }
  // Folders list their entries in any order, and two inputs may name one file.
  std::sort(files.begin(), files.end(),
            [](const TextFile& a, const TextFile& b) { return a.path < b.path; });
  files.erase(std::unique(files.begin(), files.end(),
                          [](const TextFile& a, const TextFile& b) { return a.path == b.path; }),
              files.end());
  return files;
}

bool IsText(std::string_view bytes) {
  return bytes.find('\0') == std::string_view::npos &&
         tokenizer::FirstInvalidUtf8(bytes) == bytes.size();
}

}  // namespace hearth::dataset
