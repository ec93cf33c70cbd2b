// Bytes that grow without being set to zero first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace hearth::dataset {

// What is added has no value until it is written. Not thread-safe.
class ByteBuffer {
 public:
  // Adds `bytes` bytes and returns where they are. Pointers into the buffer end.
  char* Extend(size_t bytes) {
    if (capacity_ - size_ < bytes) {
      Grow(std::max(size_ + bytes, 2 * capacity_));
    }
    char* const added = data_.get() + size_;
    size_ += bytes;
    return added;
  }
  void Append(std::string_view bytes) {
    if (!bytes.empty()) {
      std::memcpy(Extend(bytes.size()), bytes.data(), bytes.size());
    }
  }
  void Shorten(size_t size) { size_ = size; }  // `size` <= size()
  // Empties it, for the next use. Gives the memory back if it is more than `kept` bytes.
  void Clear(size_t kept = size_t{4} << 20) {
    size_ = 0;
    if (capacity_ > kept) {
      data_.reset();
      capacity_ = 0;
    }
  }

  char* data() { return data_.get(); }
  size_t size() const { return size_; }
  std::string_view view() const { return {data_.get(), size_}; }

 private:
  void Grow(size_t capacity) {
    std::unique_ptr<char[]> grown(new char[capacity]);
    if (size_ > 0) {
      std::memcpy(grown.get(), data_.get(), size_);
    }
    data_ = std::move(grown);
    capacity_ = capacity;
  }

  std::unique_ptr<char[]> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace hearth::dataset
