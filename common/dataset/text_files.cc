#include "common/dataset/text_files.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"

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

}  // namespace

absl::StatusOr<std::vector<TextFile>> FindFiles(const std::vector<std::string>& inputs,
                                                int64_t* unreadable) {
  std::vector<TextFile> files;
  for (const std::string& input : inputs) {
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
  std::sort(files.begin(), files.end(),
            [](const TextFile& a, const TextFile& b) { return a.path < b.path; });
  files.erase(std::unique(files.begin(), files.end(),
                          [](const TextFile& a, const TextFile& b) { return a.path == b.path; }),
              files.end());
  return files;
}

bool IsText(std::string_view bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  const auto* end = p + bytes.size();
  while (p < end) {
    const uint8_t c = *p++;
    if (c == 0) {
      return false;
    }
    if (c < 0x80) {
      continue;
    }
    const int more = c >= 0xf0 && c <= 0xf4  ? 3
                     : c >= 0xe0 && c < 0xf0 ? 2
                     : c >= 0xc2 && c < 0xe0 ? 1
                                             : 0;
    if (more == 0 || end - p < more) {
      return false;
    }
    uint32_t rune = c & (0x3f >> more);
    for (int i = 0; i < more; ++i, ++p) {
      if ((*p & 0xc0) != 0x80) {
        return false;
      }
      rune = rune << 6 | (*p & 0x3f);
    }
    if (more == 2 && (rune < 0x800 || (rune >= 0xd800 && rune < 0xe000))) {
      return false;
    }
    if (more == 3 && (rune < 0x10000 || rune > 0x10ffff)) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<std::string> Gunzip(std::string_view packed, int64_t max_bytes) {
  z_stream stream = {};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) {
    return absl::InternalError("zlib: no memory");
  }
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  absl::Status status;
  std::vector<char> buffer(size_t{1} << 16);
  while (status.ok()) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    text.append(buffer.data(), buffer.size() - stream.avail_out);
    if (static_cast<int64_t>(text.size()) > max_bytes) {
      status = absl::ResourceExhaustedError("unpacks to too much");
    } else if (result == Z_STREAM_END) {
      if (stream.avail_in == 0 || inflateReset(&stream) != Z_OK) {
        break;  // else the next member
      }
    } else if (result != Z_OK) {
      status = absl::InvalidArgumentError("damaged gzip data");
    } else if (stream.avail_in == 0 && stream.avail_out != 0) {
      status = absl::InvalidArgumentError("gzip data ends early");
    }
  }
  inflateEnd(&stream);
  if (!status.ok()) {
    return status;
  }
  return text;
}

absl::StatusOr<std::string> Unzstd(std::string_view packed, int64_t max_bytes) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                          &ZSTD_freeDStream);
  if (stream == nullptr) {
    return absl::InternalError("zstd: no memory");
  }
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  std::string text;
  std::vector<char> buffer(ZSTD_DStreamOutSize());
  size_t result = 0;
  ZSTD_outBuffer out{};
  do {
    out = {buffer.data(), buffer.size(), 0};
    result = ZSTD_decompressStream(stream.get(), &out, &in);
    if (ZSTD_isError(result) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("damaged zstd data: ", ZSTD_getErrorName(result)));
    }
    text.append(buffer.data(), out.pos);
    if (static_cast<int64_t>(text.size()) > max_bytes) {
      return absl::ResourceExhaustedError("unpacks to too much");
    }
  } while (in.pos < in.size || (result != 0 && out.pos > 0));
  if (result != 0) {
    return absl::InvalidArgumentError("zstd data ends early");
  }
  return text;
}

}  // namespace hearth::dataset
