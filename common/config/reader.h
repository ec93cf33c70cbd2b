// From YAML nodes to protobuf messages, guided by the message's descriptor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "yaml-cpp/yaml.h"

namespace hearth::config {

struct ReadError {
  int line = 0;      // 1-based, 0 = unknown
  std::string path;  // "" = the whole document
  std::string text;
};

// Parses one YAML document. Refuses what is not UTF-8, longer than 1 MiB or more than one document; no exception leaves it.
absl::StatusOr<YAML::Node> LoadYaml(std::string_view text, std::vector<ReadError>& errors);

// Fills messages from nodes, appending to `errors` and going on where it can.
class Reader {
 public:
  // `errors` outlives the reader.
  explicit Reader(std::vector<ReadError>& errors) : errors_(errors) {}

  // `node` is a map of the message's fields (or a shorthand of its type).
  void ReadMessage(const YAML::Node& node,
                   const std::string& path,
                   google::protobuf::Message& message);

  // Sets one field, maps and lists included; what it held before is gone.
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
  void Fail(const YAML::Node& node, const std::string& path, std::string text);
  void ReadMap(const YAML::Node& node,
               const std::string& path,
               google::protobuf::Message& message,
               const google::protobuf::FieldDescriptor& field);
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
  // The key of a map entry; false (and an error) when it is no scalar or was there before.
  bool ReadKey(const YAML::Node& key,
               const std::string& path,
               std::vector<std::pair<std::string, int>>& seen,
               std::string& text);

  std::vector<ReadError>& errors_;
};

// "unknown key; did you mean micro_batch_size?", with the path of a field of that name elsewhere in the file if there is one.
std::string UnknownKeyText(std::string_view key, const google::protobuf::Descriptor& descriptor);

}  // namespace hearth::config
