// Samples for training: which tokens the n-th sample of a run holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/dataset.h"
#include "common/io/env.h"

namespace hearth::trainer {

// Caller's memory, row-major [samples, T].
struct BatchBuffers {
  int32_t* tokens = nullptr;
  int32_t* targets = nullptr;    // the token after
  float* loss_weight = nullptr;  // 1 for every target of pretraining
  int32_t* position = nullptr;   // 0 .. T-1
  int32_t* segment = nullptr;    // 0: a sample is one segment
};

struct LoaderOptions {
  struct Source {
    std::string path;
    double weight = 1;
  };
  std::vector<Source> sources;  // at least one
  int32_t sequence_length = 0;  // T
  int32_t vocab = 0;            // of the model; a token not below it is an error
  uint64_t seed = 0;
  bool shuffle = true;
};

// Sample n = f(options, n), n = 0, 1, ...: independent of ranks, micro-batches and what was read
// before, so a resume needs the number alone. Shares of the sources are exact in every 65536
// samples and spread evenly within. Inside a source sample k is window k mod W of pass k / W (W
// windows of T+1 tokens, one overlapping), permuted per pass when shuffled. Thread-safe; Fill
// allocates nothing.
class Loader {
 public:
  // Errors: those of Dataset::Open; kInvalidArgument: a dataset shorter than T+1 tokens, a
  // vocabulary larger than the model's.
  static absl::StatusOr<std::unique_ptr<Loader>> Open(const LoaderOptions& options,
                                                      Env& env = Env::Real());

  // Writes samples first .. first + count - 1. kDataLoss: a token not below the vocabulary (file
  // and byte offset).
  absl::Status Fill(int64_t first, int64_t count, const BatchBuffers& out) const;

  struct Location {
    int source = 0;
    int64_t pass = 0;    // from 0
    int64_t window = 0;  // tokens [window * T, window * T + T]
  };
  Location Locate(int64_t sample) const;

  // Passes over source 0 .. n - 1 that have begun after `samples` samples: the largest over the
  // sources. 0 = none.
  int64_t PassesBegun(int64_t samples) const;

  int64_t tokens() const { return tokens_; }                // of all sources together
  int32_t largest_vocab() const { return largest_vocab_; }  // recorded by the datasets, 0 = none
  int32_t sequence_length() const { return sequence_length_; }
  // All sources, each once.
  std::vector<RecordedFile> RecordedFiles() const;
  const dataset::Dataset& source(int i) const { return *sources_[i].data; }
  int sources() const { return static_cast<int>(sources_.size()); }

 private:
  struct Source {
    std::unique_ptr<dataset::Dataset> data;
    int64_t windows = 0;
    int64_t quota = 0;  // samples of each block
  };
  struct Slot {
    int32_t source = 0;
    int32_t rank = 0;  // among this source's slots of the block
  };

  Loader() = default;
  void LayOutBlock(const std::vector<double>& weights);
  int64_t SamplesOfSource(int source, int64_t samples) const;

  int32_t sequence_length_ = 0;
  int32_t vocab_ = 0;
  uint64_t seed_ = 0;
  bool shuffle_ = true;
  int64_t tokens_ = 0;
  int32_t largest_vocab_ = 0;
  std::vector<Source> sources_;
  std::vector<Slot> block_;  // one period of the mixture; a single slot when there is one source
};

}  // namespace hearth::trainer
