// From YAML nodes to protobuf messages, guided by the message's descriptor.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "yaml-cpp/yaml.h"

namespace hearth::config {

inline constexpr size_t kMaxYamlBytes = 256 << 10;

struct ReadError {
  int line = 0;      // 1-based, 0 = unknown
  std::string path;  // "" = the whole document
  std::string text;
};

// Parses one YAML document. Refuses what is not UTF-8, longer than kMaxYamlBytes or more than one
// document; no exception leaves it.
absl::StatusOr<YAML::Node> LoadYaml(std::string_view text, std::vector<ReadError>& errors);

// Fills messages from nodes, appends to `errors` and continues where it can.
class Reader {
 public:
  // `errors` outlives the reader.
  explicit Reader(std::vector<ReadError>& errors) : errors_(errors) {}

  // `node` is a map of the message's fields (or a shorthand of its type).
  void ReadMessage(const YAML::Node& node,
                   const std::string& path,
                   google::protobuf::Message& message);

  // Sets one field, also maps and lists; replaces what it held.
  void ReadField(const YAML::Node& node,
                 const std::string& path,
                 google::protobuf::Message& message,
                 const google::protobuf::FieldDescriptor& field);

  // Sets one entry of a map field.
  void ReadMapEntry(const YAML::Node& node,
                    const std::string& path,
                    google::protobuf::Message& message,
                    const google::protobuf::FieldDescriptor& field,
                    const std::string& key);

 private:
  // Counts one more key or element; false (and an error, once) when there are too many of them or
  // of errors.
  bool Budget(const YAML::Node& node, const std::string& path);
  bool Exhausted() const;
  void Fail(const YAML::Node& node, const std::string& path, std::string text);
  // Calls read(node of the key, node of the value, key) for each entry of a map, in order, until
  // the budget is used up; keys that cannot be read are errors. `fields`: the message of which the
  // keys are fields; null = keys of any name.
  template <typename Read>
  void ReadEntries(const YAML::Node& node,
                   const std::string& path,
                   const google::protobuf::Descriptor* fields,
                   const Read& read);
  // False (and an error) for a key without a value.
  bool HasValue(const YAML::Node& key, const YAML::Node& value, const std::string& path);
  void ReadMap(const YAML::Node& node,
               const std::string& path,
               google::protobuf::Message& message,
               const google::protobuf::FieldDescriptor& field);
  // For a key that the map does not hold yet.
  void AddMapEntry(const YAML::Node& node,
                   const std::string& path,
                   google::protobuf::Message& message,
                   const google::protobuf::FieldDescriptor& field,
                   const std::string& key);
  void ReadList(const YAML::Node& node,
                const std::string& path,
                google::protobuf::Message& message,
                const google::protobuf::FieldDescriptor& field);
  void ReadElement(const YAML::Node& node,
                   const std::string& path,
                   google::protobuf::Message& message,
                   const google::protobuf::FieldDescriptor& field);
  void ReadScalar(const YAML::Node& node,
                  const std::string& path,
                  google::protobuf::Message& message,
                  const google::protobuf::FieldDescriptor& field);
  // The key of a map entry; false (and an error) when it is not a scalar or was there before.
  bool ReadKey(const YAML::Node& key,
               const std::string& path,
               const google::protobuf::Descriptor* fields,
               std::unordered_map<std::string, int>& seen,
               std::string& text);

  std::vector<ReadError>& errors_;
  int entries_ = 0;
};

}  // namespace hearth::config
