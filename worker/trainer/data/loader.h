// Samples for training: which tokens the n-th sample of a run holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/dataset.h"
#include "common/dataset/mixture.h"
#include "common/io/env.h"
#include "common/spec/data/sample_tables.h"
#include "worker/trainer/data/best_fit.h"

namespace hearth::trainer {

// Caller's memory, row-major [samples, T].
struct BatchBuffers {
  int32_t* tokens = nullptr;
  int32_t* targets = nullptr;    // the token after
  float* loss_weight = nullptr;  // of each target; 0: it does not count
  int32_t* position = nullptr;   // in the sample, or in the document
  int32_t* start = nullptr;      // position in the sample at which the token's document begins
  int32_t* source = nullptr;     // [samples], where each is from (Location); null: nobody asks
};

// How documents fill samples; best_fit.h chooses for kBestFit.
using spec::Packing;

// Which targets count, apart from those that documents rule out.
enum class LossTokens : uint8_t {
  kAll,
  kMaskedWhereKnown,  // those of the datasets' loss masks; of a dataset without a mask all
  kMasked,            // the same, and at least one dataset must have a mask
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
  Packing packing = Packing::kConcat;
  bool documents = false;  // attention within documents (data.attention)
  LossTokens loss_tokens = LossTokens::kAll;
};

// Sample n = f(options, n), n = 0, 1, ...: independent of ranks, micro-batches and what was read
// before, so a resume needs only the number. dataset::Mixture says which source it is of. Inside a
// source sample k is window k mod W of pass k / W (W windows of T+1 tokens; kConcat: one
// overlapping), permuted per pass when shuffled. Thread-safe; Fill allocates nothing.
//
// What a sample says about documents:
//   kConcat, not `documents`: every target counts, positions are 0 .. T-1, start is 0.
//   else a target counts if its document is that of its token: the first token of a document is
//   nobody's target, as the tokens before it say nothing about it. Padding counts for nothing.
//   kMasked: of those, the ones that the dataset's mask names; with kBestFit each sample has one.
//   documents: positions begin at 0 in each document, and start is where that is. A document that a
//   sample cuts begins where the sample does. Padding is a document of its own.
class Loader {
 public:
  // Errors: those of Dataset::Open and BestFit::Pack; kInvalidArgument: a dataset shorter than T+1
  // tokens, a vocabulary larger than the model's, documents are asked for and a dataset has no end
  // token, or a mask and it has none. kBestFit reads all tokens and keeps 8 bytes for each
  // document.
  static absl::StatusOr<std::unique_ptr<Loader>> Open(const LoaderOptions& options,
                                                      Env& env = Env::Real());

  // Writes samples first .. first + count - 1. kDataLoss: a token not below the vocabulary (file
  // and byte offset).
  absl::Status Fill(int64_t first, int64_t count, const BatchBuffers& out) const;

  struct Location {
    int source = 0;
    int64_t pass = 0;    // from 0
    int64_t window = 0;  // kConcat: tokens [window * T, window * T + T]; kBestFit: BestFit's
  };
  Location Locate(int64_t sample) const;

  // Samples that hold all of the data about once, >= 1: held-out data is not read any further.
  int64_t samples_of_pass() const;

  // The share of all pairs (token, token before it or itself) of a sample that are in one document,
  // measured on the first samples of the run: what attention within documents multiplies. In
  // (0, 1].
  absl::StatusOr<double> SeenShare() const;

  // Passes over source 0 .. n - 1 that have begun after `samples` samples: the largest over the
  // sources. 0 = none.
  int64_t PassesBegun(int64_t samples) const;
  // How often `samples` samples of the run read source i: 0.25 = a quarter of its windows so far.
  double PassesOf(int i, int64_t samples) const;

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
    std::optional<BestFit> packed;  // kBestFit
    int64_t windows = 0;
    bool masked = false;  // the mask says which targets count
  };

  Loader() = default;
  static absl::StatusOr<Source> OpenSource(const LoaderOptions& options,
                                           const std::string& path,
                                           Env& env);
  // One sample, written to the first T elements of each buffer of `out`.
  absl::Status FillConcat(const Source& source, int64_t window, const BatchBuffers& out) const;
  absl::Status FillPacked(const Source& source, int64_t window, const BatchBuffers& out) const;

  int32_t sequence_length_ = 0;
  int32_t vocab_ = 0;
  uint64_t seed_ = 0;
  bool shuffle_ = true;
  bool documents_ = false;
  int64_t tokens_ = 0;
  int32_t largest_vocab_ = 0;
  std::vector<Source> sources_;
  std::unique_ptr<const dataset::Mixture> mixture_;
};

}  // namespace hearth::trainer
