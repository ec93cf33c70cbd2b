// What only workers know of a job's data and model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hearth/v1/agent.pb.h"

namespace hearth::spec {

// A path of a job and the tokenizer that it records.
struct PathTokenizer {
  std::string field;  // as in FieldViolation
  std::string path;
  int32_t vocab = 0;             // of the dataset or model, 0 = not recorded
  v1::TokenizerFacts tokenizer;  // without kind: none is recorded
};

// A dataset of a job, and whether it says which tokens count.
struct PathMask {
  std::string field;  // as in FieldViolation
  std::string path;
  bool has_mask = false;
};

// What lives on the workers.
struct DataFacts {
  int32_t vocab = 0;         // largest vocabulary of the datasets, 0 = unknown
  int64_t train_tokens = 0;  // 0 = unknown
  // Empty: not to be compared.
  std::vector<PathTokenizer> datasets = {};
  std::optional<PathTokenizer> model = std::nullopt;
  std::vector<PathMask> masks = {};  // of all datasets
};

}  // namespace hearth::spec
