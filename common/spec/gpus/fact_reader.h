// Reads the tables of facts that are built into the programs (configs/gpus.yaml,
// configs/calibration): strict, and every fault with its place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "yaml-cpp/yaml.h"

namespace hearth::spec {

// One map of such a file. Not thread-safe.
class FactReader {
 public:
  // `place` is put before errors: "gpus.yaml: H200". `errors` outlives the reader.
  FactReader(const YAML::Node& map, std::string place, std::vector<std::string>& errors);

  // A finite number >= 0; `otherwise` where the key is missing.
  double Number(const char* key, double otherwise = 0);
  // The same, and missing is an error.
  double Needed(const char* key);
  std::string Text(const char* key);
  std::vector<std::string> Texts(const char* key);
  // Rows of `columns` finite numbers each, none negative.
  std::vector<std::vector<double>> Rows(const char* key, size_t columns);
  // A map or list within; undefined where the key is missing.
  YAML::Node Node(const char* key);
  // Call it last: an error for each key that nobody asked for.
  void RefuseOthers();

 private:
  void Fail(std::string_view key, std::string_view text);
  bool Get(const YAML::Node& node, std::string_view key, double& value);

  YAML::Node map_;
  const std::string place_;
  std::vector<std::string>& errors_;
  std::vector<std::string> asked_;
};

// The document, a map; an error and an undefined node for anything else.
YAML::Node LoadFacts(std::string_view text,
                     const std::string& file,
                     std::vector<std::string>& errors);

}  // namespace hearth::spec
