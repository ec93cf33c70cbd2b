#include "common/spec/gpus/fact_reader.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "common/spec/violations/names.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

// Nodes that are missing throw when they are asked what they are.
bool IsMap(const YAML::Node& node) {
  return node.IsDefined() && node.IsMap();
}

}  // namespace

FactReader::FactReader(const YAML::Node& map, std::string place, std::vector<std::string>& errors)
    : map_(IsMap(map) ? map : YAML::Node(YAML::NodeType::Map)),
      place_(std::move(place)),
      errors_(errors) {
  if (!IsMap(map)) {
    errors_.push_back(spec::Text(place_, ": missing, or not a map"));
  }
}

void FactReader::Fail(std::string_view key, std::string_view text) {
  errors_.push_back(spec::Text(place_, ": ", key, ": ", text));
}

YAML::Node FactReader::Node(const char* key) {
  asked_.emplace_back(key);
  const YAML::Node& map = map_;
  return map[key];
}

bool FactReader::Get(const YAML::Node& node, std::string_view key, double& value) {
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, value) || !std::isfinite(value) ||
      value < 0) {
    Fail(key, "not a finite number >= 0");
    return false;
  }
  return true;
}

double FactReader::Number(const char* key, double otherwise) {
  const YAML::Node node = Node(key);
  double value = otherwise;
  if (node.IsDefined()) {
    Get(node, key, value);
  }
  return value;
}

double FactReader::Needed(const char* key) {
  if (!Node(key).IsDefined()) {
    Fail(key, "missing");
    return 0;
  }
  return Number(key);
}

std::string FactReader::Text(const char* key) {
  const YAML::Node node = Node(key);
  if (!node.IsDefined()) {
    return "";
  }
  if (!node.IsScalar()) {
    Fail(key, "not a text");
    return "";
  }
  return node.Scalar();
}

std::vector<std::string> FactReader::Texts(const char* key) {
  std::vector<std::string> texts;
  const YAML::Node list = Node(key);
  if (!list.IsDefined()) {
    return texts;
  }
  for (const YAML::Node& node : list) {
    if (node.IsScalar()) {
      texts.push_back(node.Scalar());
    }
  }
  if (texts.empty() || texts.size() != list.size()) {
    Fail(key, "not a list of texts");
  }
  return texts;
}

std::vector<std::vector<double>> FactReader::Rows(const char* key, size_t columns) {
  std::vector<std::vector<double>> rows;
  const YAML::Node list = Node(key);
  if (!list.IsDefined()) {
    return rows;
  }
  for (const YAML::Node& node : list) {
    if (!node.IsSequence() || node.size() != columns) {
      Fail(key, spec::Text("a row does not have ", columns, " numbers"));
      continue;
    }
    std::vector<double>& row = rows.emplace_back(columns);
    for (size_t i = 0; i < columns; ++i) {
      Get(node[i], key, row[i]);
    }
  }
  return rows;
}

void FactReader::RefuseOthers() {
  for (const auto& entry : map_) {
    const std::string& key = entry.first.Scalar();
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
      Fail(key, UnknownNameText(key, "key", {asked_.begin(), asked_.end()}));
    }
  }
}

YAML::Node LoadFacts(std::string_view text,
                     const std::string& file,
                     std::vector<std::string>& errors) {
  try {
    YAML::Node node = YAML::Load(std::string(text));
    if (IsMap(node)) {
      return node;
    }
    errors.push_back(Text(file, ": not a map"));
  } catch (const std::exception& error) {
    errors.push_back(Text(file, ": ", error.what()));
  }
  return YAML::Node(YAML::NodeType::Map);
}

}  // namespace hearth::spec
