#include "common/dataset/packed_lines.h"

#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::dataset {
namespace {

constexpr size_t kChunk = size_t{256} << 10;
constexpr int64_t kMaxRatio = 300;                // text packs to a tenth; deflate's limit is 1032
constexpr int64_t kFreeBytes = int64_t{1} << 20;  // small files may be above the ratio
constexpr int kMaxZstdWindowLog = 27;             // 128 MiB of memory

}  // namespace

class PackedLines::Source {
 public:
  virtual ~Source() = default;
  // Appends some bytes to `out`; none at the end.
  virtual absl::Status Append(std::string* out) = 0;
};

// zlib passes plain files through as they are.
class PackedLines::GzipSource : public Source {
 public:
  explicit GzipSource(gzFile file) : file_(file) { gzbuffer(file_, kChunk); }
  ~GzipSource() override { gzclose_r(file_); }

  absl::Status Append(std::string* out) override {
    const size_t before = out->size();
    out->resize(before + kChunk);
    const int got = gzread(file_, out->data() + before, static_cast<unsigned>(kChunk));
    out->resize(before + static_cast<size_t>(got > 0 ? got : 0));
    int error = Z_OK;
    gzerror(file_, &error);
    return got >= 0 && (error == Z_OK || error == Z_STREAM_END)
               ? absl::OkStatus()
               : absl::InvalidArgumentError(error == Z_BUF_ERROR ? "gzip data ends early"
                                                                 : "damaged gzip data");
  }

 private:
  const gzFile file_;
};

class PackedLines::ZstdSource : public Source {
 public:
  explicit ZstdSource(std::FILE* file) : file_(file), stream_(ZSTD_createDStream()), in_(kChunk) {
    HEARTH_CHECK(stream_ != nullptr, "zstd gets memory");
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kMaxZstdWindowLog);
  }
  ~ZstdSource() override {
    ZSTD_freeDStream(stream_);
    std::fclose(file_);
  }

  absl::Status Append(std::string* out) override {
    const size_t before = out->size();
    out->resize(before + kChunk);
    ZSTD_outBuffer to{out->data() + before, kChunk, 0};
    while (to.pos == 0) {
      if (input_.pos == input_.size) {
        input_ = {in_.data(), std::fread(in_.data(), 1, in_.size(), file_), 0};
        if (input_.size == 0 && !inside_) {
          break;
        }
      }
      const bool at_end = input_.size == 0;  // what zstd still holds back comes without input
      const size_t result = ZSTD_decompressStream(stream_, &to, &input_);
      if (ZSTD_isError(result) != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("damaged zstd data: ", ZSTD_getErrorName(result)));
      }
      inside_ = result != 0;
      if (at_end && to.pos == 0) {
        return absl::InvalidArgumentError("zstd data ends early");
      }
    }
    out->resize(before + to.pos);
    return absl::OkStatus();
  }

 private:
  std::FILE* const file_;
  ZSTD_DStream* const stream_;
  std::vector<char> in_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool inside_ = false;  // a frame has begun and not ended
};

PackedLines::PackedLines(std::string path, int64_t packed_bytes, int64_t max_line_bytes)
    : path_(std::move(path)),
      max_unpacked_(packed_bytes * kMaxRatio + kFreeBytes),
      max_line_(static_cast<size_t>(max_line_bytes)) {}

PackedLines::~PackedLines() = default;

absl::StatusOr<std::unique_ptr<PackedLines>> PackedLines::Open(const std::string& path,
                                                               int64_t max_line_bytes) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return absl::NotFoundError(absl::StrCat(path, ": ", error.message()));
  }
  std::unique_ptr<PackedLines> lines(
      new PackedLines(path, static_cast<int64_t>(size), max_line_bytes));
  if (absl::EndsWith(path, ".zst")) {
    if (std::FILE* file = std::fopen(path.c_str(), "rb"); file != nullptr) {
      lines->source_ = std::make_unique<ZstdSource>(file);
    }
  } else if (gzFile file = gzopen(path.c_str(), "rb"); file != nullptr) {
    lines->source_ = std::make_unique<GzipSource>(file);
  }
  if (lines->source_ == nullptr) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be opened"));
  }
  return lines;
}

absl::Status PackedLines::Fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t before = buffer_.size();
  if (absl::Status status = source_->Append(&buffer_); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(path_, ": behind line ", line_number_, ": ",
                                                    std::string(status.message())));
  }
  end_ = buffer_.size() == before;
  unpacked_ += static_cast<int64_t>(buffer_.size() - before);
  if (unpacked_ > max_unpacked_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path_, ": unpacks to more than ", kMaxRatio, " times its size"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PackedLines::Next> PackedLines::Read(std::string* line) {
  bool too_long = false;
  size_t searched = 0;  // of the bytes from at_ on: these have no line end
  while (true) {
    const size_t line_end = buffer_.find('\n', at_ + searched);
    if (line_end != std::string::npos || end_) {
      const size_t end = line_end == std::string::npos ? buffer_.size() : line_end;
      if (line_end == std::string::npos && end == at_ && !too_long) {
        return Next::kEnd;
      }
      too_long = too_long || end - at_ > max_line_;
      if (!too_long) {
        line->assign(buffer_, at_, end - at_);
        if (!line->empty() && line->back() == '\r') {
          line->pop_back();
        }
      }
      at_ = line_end == std::string::npos ? end : end + 1;
      ++line_number_;
      return too_long ? Next::kTooLong : Next::kLine;
    }
    if (buffer_.size() - at_ > max_line_) {
      too_long = true;
      at_ = buffer_.size();
    }
    searched = buffer_.size() - at_;
    HEARTH_RETURN_IF_ERROR(Fill());
  }
}

}  // namespace hearth::dataset
