#include "common/dataset/build/packed_bytes.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
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
#include "common/base/system.h"

namespace hearth::dataset {
namespace {

constexpr size_t kChunk = size_t{256} << 10;
constexpr int64_t kMaxRatio = 300;                // text packs to a tenth; deflate's limit is 1032
constexpr int64_t kFreeBytes = int64_t{1} << 20;  // small files may be above the ratio
constexpr int kMaxZstdWindowLog = 27;             // 128 MiB of memory

class PlainBytes : public PackedBytes {
 public:
  explicit PlainBytes(int file) : file_(file) {}
  ~PlainBytes() override { close(file_); }

  absl::Status AppendChunk(ByteBuffer* out) override {
    const size_t before = out->size();
    char* const to = out->Extend(kChunk);
    ssize_t got = 0;
    do {
      got = read(file_, to, kChunk);
    } while (got < 0 && errno == EINTR);
    out->Shorten(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    position_ += std::max<ssize_t>(got, 0);
    return got >= 0 ? absl::OkStatus()
                    : absl::UnavailableError(absl::StrCat("cannot be read: ", ErrnoText(errno)));
  }

  int64_t Position() override { return position_; }

 private:
  const int file_;
  int64_t position_ = 0;
};

class GzipBytes : public PackedBytes {
 public:
  explicit GzipBytes(gzFile file) : file_(file) { gzbuffer(file_, kChunk); }
  ~GzipBytes() override { gzclose_r(file_); }

  absl::Status AppendChunk(ByteBuffer* out) override {
    const size_t before = out->size();
    char* const to = out->Extend(kChunk);
    const int got = gzread(file_, to, static_cast<unsigned>(kChunk));
    out->Shorten(before + static_cast<size_t>(got > 0 ? got : 0));
    int error = Z_OK;
    gzerror(file_, &error);
    return got >= 0 && (error == Z_OK || error == Z_STREAM_END)
               ? absl::OkStatus()
               : absl::InvalidArgumentError(error == Z_BUF_ERROR ? "gzip data ends early"
                                                                 : "damaged gzip data");
  }

  int64_t Position() override { return gzoffset(file_); }

 private:
  const gzFile file_;
};

class ZstdBytes : public PackedBytes {
 public:
  explicit ZstdBytes(std::FILE* file) : file_(file), stream_(ZSTD_createDStream()), in_(kChunk) {
    HEARTH_CHECK(stream_ != nullptr, "zstd gets memory");
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kMaxZstdWindowLog);
  }
  ~ZstdBytes() override {
    ZSTD_freeDStream(stream_);
    std::fclose(file_);
  }

  absl::Status AppendChunk(ByteBuffer* out) override {
    const size_t before = out->size();
    ZSTD_outBuffer to{out->Extend(kChunk), kChunk, 0};
    while (to.pos == 0) {
      if (input_.pos == input_.size) {
        input_ = {in_.data(), std::fread(in_.data(), 1, in_.size(), file_), 0};
        // The file ends between two frames: in order.
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
    out->Shorten(before + to.pos);
    return absl::OkStatus();
  }

  int64_t Position() override { return std::ftell(file_); }

 private:
  std::FILE* const file_;
  ZSTD_DStream* const stream_;
  std::vector<char> in_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool inside_ = false;  // a frame has begun and not ended
};

}  // namespace

absl::StatusOr<std::unique_ptr<PackedBytes>> PackedBytes::Open(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    return absl::NotFoundError(absl::StrCat(path, ": ", error.message()));
  }
  std::unique_ptr<PackedBytes> bytes;
  if (absl::EndsWith(path, ".zst")) {
    if (std::FILE* file = std::fopen(path.c_str(), "rb"); file != nullptr) {
      bytes = std::make_unique<ZstdBytes>(file);
    }
  } else if (const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC); file >= 0) {
    // Whatever the name says: gzip data are unpacked, and what is none is read as it is.
    uint8_t magic[2] = {};
    const bool is_gzip =
        pread(file, magic, sizeof magic, 0) == sizeof magic && magic[0] == 0x1f && magic[1] == 0x8b;
    if (!is_gzip && absl::EndsWith(path, ".gz") && size > 0) {
      close(file);
      return absl::InvalidArgumentError(absl::StrCat(path, ": not gzip data"));
    }
    if (!is_gzip) {
      bytes = std::make_unique<PlainBytes>(file);
    } else if (gzFile unpacked = gzdopen(file, "rb"); unpacked != nullptr) {
      bytes = std::make_unique<GzipBytes>(unpacked);
    } else {
      close(file);
    }
  }
  if (bytes == nullptr) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be opened"));
  }
  bytes->path_ = path;
  bytes->max_unpacked_ = static_cast<int64_t>(size) * kMaxRatio + kFreeBytes;
  return bytes;
}

absl::Status PackedBytes::Append(ByteBuffer* out) {
  const size_t before = out->size();
  if (absl::Status status = AppendChunk(out); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(path_, ": behind byte ", unpacked_, ": ",
                                                    std::string(status.message())));
  }
  unpacked_ += static_cast<int64_t>(out->size() - before);
  consumed_ = Position();
  if (unpacked_ > max_unpacked_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path_, ": unpacks to more than ", kMaxRatio, " times its size"));
  }
  return absl::OkStatus();
}

}  // namespace hearth::dataset
