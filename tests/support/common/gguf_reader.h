// Reads GGUF files by the published format alone (ggml/docs/gguf.md), to check what was written.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

namespace hearth {

struct GgufFile {
  using Value = std::
      variant<uint64_t, double, bool, std::string, std::vector<std::string>, std::vector<double>>;
  struct Tensor {
    std::vector<uint64_t> dimensions;  // columns first, as in the file
    uint32_t type = 0;
    std::string bytes;
  };

  uint32_t version = 0;
  std::vector<std::string> keys;  // in the order of the file
  std::map<std::string, Value> values;
  std::map<std::string, Tensor> tensors;

  std::string Text(const std::string& key) const {
    const auto* text = std::get_if<std::string>(&At(key));
    return text == nullptr ? "(no text)" : *text;
  }
  uint64_t Integer(const std::string& key) const {
    const auto* value = std::get_if<uint64_t>(&At(key));
    return value == nullptr ? UINT64_MAX : *value;
  }
  double Number(const std::string& key) const {
    const auto* value = std::get_if<double>(&At(key));
    return value == nullptr ? -1e300 : *value;
  }
  bool Flag(const std::string& key) const {
    const auto* value = std::get_if<bool>(&At(key));
    EXPECT_NE(value, nullptr) << key;
    return value != nullptr && *value;
  }
  std::vector<std::string> Texts(const std::string& key) const {
    const auto* value = std::get_if<std::vector<std::string>>(&At(key));
    EXPECT_NE(value, nullptr) << key;
    return value == nullptr ? std::vector<std::string>() : *value;
  }
  std::vector<double> Numbers(const std::string& key) const {
    const auto* value = std::get_if<std::vector<double>>(&At(key));
    EXPECT_NE(value, nullptr) << key;
    return value == nullptr ? std::vector<double>() : *value;
  }

 private:
  const Value& At(const std::string& key) const {
    static const Value none = uint64_t{0};
    const auto found = values.find(key);
    EXPECT_NE(found, values.end()) << key;
    return found == values.end() ? none : found->second;
  }
};

class GgufParser {
 public:
  explicit GgufParser(const std::string& bytes) : bytes_(bytes) {}

  GgufFile Read() {
    GgufFile file;
    EXPECT_EQ(bytes_.substr(0, 4), "GGUF");
    at_ = 4;
    file.version = Take<uint32_t>();
    const auto tensors = Take<uint64_t>();
    const auto pairs = Take<uint64_t>();
    for (uint64_t i = 0; i < pairs && !failed_; ++i) {
      const std::string key = String();
      EXPECT_EQ(file.values.count(key), 0U) << key;
      file.keys.push_back(key);
      file.values[key] = ReadValue();
    }
    struct Info {
      std::string name;
      uint64_t offset;
    };
    std::vector<Info> infos;
    for (uint64_t i = 0; i < tensors && !failed_; ++i) {
      const std::string name = String();
      GgufFile::Tensor& tensor = file.tensors[name];
      const auto dimensions = Take<uint32_t>();
      EXPECT_LE(dimensions, 4U);
      for (uint32_t d = 0; d < dimensions; ++d) {
        tensor.dimensions.push_back(Take<uint64_t>());
      }
      tensor.type = Take<uint32_t>();
      infos.push_back({name, Take<uint64_t>()});
    }
    EXPECT_EQ(file.tensors.size(), tensors);
    const size_t data = (at_ + 31) / 32 * 32;
    for (size_t at = at_; at < data && at < bytes_.size(); ++at) {
      EXPECT_EQ(bytes_[at], '\0');
    }
    uint64_t end = 0;
    for (const Info& info : infos) {
      GgufFile::Tensor& tensor = file.tensors[info.name];
      EXPECT_EQ(info.offset % 32, 0U);
      EXPECT_EQ(info.offset, (end + 31) / 32 * 32) << info.name;
      const uint64_t size = Bytes(tensor);
      EXPECT_LE(data + info.offset + size, bytes_.size()) << info.name;
      tensor.bytes = bytes_.substr(data + info.offset, size);
      end = info.offset + size;
    }
    EXPECT_EQ(data + (end + 31) / 32 * 32, bytes_.size());
    EXPECT_FALSE(failed_);
    return file;
  }

 private:
  static uint64_t Bytes(const GgufFile::Tensor& tensor) {
    uint64_t elements = 1;
    for (const uint64_t dimension : tensor.dimensions) {
      elements *= dimension;
    }
    switch (tensor.type) {
      case 0:
        return elements * 4;
      case 1:
      case 30:
        return elements * 2;
      case 2:
        return elements / 32 * 18;
      case 8:
        return elements / 32 * 34;
      case 40:
        return elements / 64 * 36;
      default:
        ADD_FAILURE() << "tensor type " << tensor.type;
        return 0;
    }
  }

  template <typename T>
  T Take() {
    T value{};
    if (bytes_.size() - at_ < sizeof value) {
      failed_ = true;
      at_ = bytes_.size();
      return value;
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string String() {
    const auto size = Take<uint64_t>();
    if (bytes_.size() - at_ < size) {
      failed_ = true;
      return {};
    }
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  // A number of type `type`, of those that are written.
  double Number(uint32_t type) {
    switch (type) {
      case 0:
        return Take<uint8_t>();
      case 4:
        return Take<uint32_t>();
      case 5:
        return Take<int32_t>();
      case 6:
        return Take<float>();
      default:
        ADD_FAILURE() << "value type " << type;
        failed_ = true;
        return 0;
    }
  }

  GgufFile::Value ReadValue() {
    const auto type = Take<uint32_t>();
    if (type == 4) {
      return uint64_t{Take<uint32_t>()};
    }
    if (type == 7) {
      return Take<uint8_t>() != 0;
    }
    if (type == 8) {
      return String();
    }
    if (type != 9) {
      return Number(type);
    }
    const auto element = Take<uint32_t>();
    const auto count = Take<uint64_t>();
    std::vector<std::string> texts;
    std::vector<double> numbers;
    for (uint64_t i = 0; i < count && !failed_; ++i) {
      if (element == 8) {
        texts.push_back(String());
      } else {
        numbers.push_back(Number(element));
      }
    }
    if (element == 8) {
      return texts;
    }
    return numbers;
  }

  const std::string& bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

inline GgufFile ReadGguf(const std::string& bytes) {
  return GgufParser(bytes).Read();
}

}  // namespace hearth
