#include "worker/trainer/data/loader.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/trainer/data/permutation.h"

namespace hearth::trainer {
namespace {

// Samples after which the mixture repeats: shares are multiples of 1/65536.
constexpr int64_t kBlock = 65536;

absl::Status CheckOptions(const LoaderOptions& options) {
  if (options.sources.empty()) {
    return absl::InvalidArgumentError("data: no dataset given");
  }
  if (static_cast<int64_t>(options.sources.size()) > kBlock / 2) {
    return absl::InvalidArgumentError("data: too many datasets");
  }
  if (options.sequence_length < 1) {
    return absl::InvalidArgumentError("data.sequence_length: must be >= 1");
  }
  for (const LoaderOptions::Source& source : options.sources) {
    if (!(source.weight > 0) || !std::isfinite(source.weight)) {
      return absl::InvalidArgumentError(
          absl::StrCat(source.path, ": weight ", source.weight, " must be > 0"));
    }
  }
  return absl::OkStatus();
}

// Shares of the block in proportion to the weights, each at least 1, together exactly kBlock.
std::vector<int64_t> Quotas(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> quotas(weights.size());
  int64_t left = kBlock;
  for (size_t i = 0; i < weights.size(); ++i) {
    quotas[i] = std::max<int64_t>(1, std::llround(weights[i] / sum * static_cast<double>(kBlock)));
    left -= quotas[i];
  }
  *std::max_element(quotas.begin(), quotas.end()) += left;  // rounding: at most one half per source
  return quotas;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Loader>> Loader::Open(const LoaderOptions& options, Env& env) {
  HEARTH_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Loader> loader(new Loader);
  loader->sequence_length_ = options.sequence_length;
  loader->vocab_ = options.vocab;
  loader->seed_ = options.seed;
  loader->shuffle_ = options.shuffle;
  std::vector<double> weights;
  for (const LoaderOptions::Source& given : options.sources) {
    Source source;
    HEARTH_ASSIGN_OR_RETURN(source.data, dataset::Dataset::Open(given.path, env));
    const int64_t tokens = source.data->tokens();
    if (tokens <= options.sequence_length) {
      return absl::InvalidArgumentError(absl::StrCat(
          given.path, ": ", tokens, " tokens are fewer than data.sequence_length + 1 = ",
          int64_t{options.sequence_length} + 1));
    }
    if (options.vocab > 0 && source.data->vocab() > options.vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat(given.path, ": vocabulary ", source.data->vocab(),
                       " is larger than model.vocab ", options.vocab));
    }
    source.windows = (tokens - 1) / options.sequence_length;
    loader->tokens_ += tokens;
    loader->largest_vocab_ = std::max(loader->largest_vocab_, source.data->vocab());
    loader->sources_.push_back(std::move(source));
    weights.push_back(given.weight);
  }
  loader->LayOutBlock(weights);
  return loader;
}

// Smooth weighted round-robin: after every prefix of the block each source has had its share to
// within one sample or so.
void Loader::LayOutBlock(const std::vector<double>& weights) {
  if (sources_.size() == 1) {
    sources_[0].quota = 1;
    block_ = {{0, 0}};
    return;
  }
  const std::vector<int64_t> quotas = Quotas(weights);
  for (size_t i = 0; i < quotas.size(); ++i) {
    sources_[i].quota = quotas[i];
  }
  std::vector<int64_t> credit(quotas.size(), 0);
  std::vector<int32_t> taken(quotas.size(), 0);
  block_.reserve(kBlock);
  for (int64_t slot = 0; slot < kBlock; ++slot) {
    for (size_t i = 0; i < quotas.size(); ++i) {
      credit[i] += quotas[i];
    }
    const size_t next =
        static_cast<size_t>(std::max_element(credit.begin(), credit.end()) - credit.begin());
    credit[next] -= kBlock;
    block_.push_back({static_cast<int32_t>(next), taken[next]++});
  }
}

Loader::Location Loader::Locate(int64_t sample) const {
  const int64_t period = static_cast<int64_t>(block_.size());
  const Slot slot = block_[static_cast<size_t>(sample % period)];
  const Source& source = sources_[static_cast<size_t>(slot.source)];
  const int64_t of_source = sample / period * source.quota + slot.rank;
  Location location;
  location.source = slot.source;
  location.pass = of_source / source.windows;
  location.window = of_source % source.windows;
  if (shuffle_) {
    const uint64_t key =
        MixKey(seed_, static_cast<uint64_t>(slot.source), static_cast<uint64_t>(location.pass));
    location.window = static_cast<int64_t>(Permute(static_cast<uint64_t>(location.window),
                                                   static_cast<uint64_t>(source.windows), key));
  }
  return location;
}

std::vector<RecordedFile> Loader::RecordedFiles() const {
  std::map<std::string, RecordedFile> files;
  for (const Source& source : sources_) {
    for (RecordedFile& file : source.data->RecordedFiles()) {
      const std::string path = file.path;
      files.emplace(path, std::move(file));
    }
  }
  std::vector<RecordedFile> out;
  for (auto& [path, file] : files) {
    out.push_back(std::move(file));
  }
  return out;
}

int64_t Loader::SamplesOfSource(int source, int64_t samples) const {
  const int64_t period = static_cast<int64_t>(block_.size());
  int64_t count = samples / period * sources_[static_cast<size_t>(source)].quota;
  // The last slot of the source before the end of the partial block tells its rank there.
  for (int64_t slot = samples % period - 1; slot >= 0; --slot) {
    const Slot& at = block_[static_cast<size_t>(slot)];
    if (at.source == source) {
      return count + at.rank + 1;
    }
  }
  return count;
}

int64_t Loader::PassesBegun(int64_t samples) const {
  int64_t passes = 0;
  for (int i = 0; i < sources(); ++i) {
    const int64_t windows = sources_[static_cast<size_t>(i)].windows;
    passes = std::max(passes, (SamplesOfSource(i, samples) + windows - 1) / windows);
  }
  return passes;
}

absl::Status Loader::Fill(int64_t first, int64_t count, const BatchBuffers& out) const {
  const int64_t T = sequence_length_;
  for (int64_t s = 0; s < count; ++s) {
    const Location at = Locate(first + s);
    const dataset::Dataset& data = *sources_[static_cast<size_t>(at.source)].data;
    const int64_t row = s * T;
    int32_t* tokens = out.tokens + row;
    int32_t* targets = out.targets + row;
    HEARTH_RETURN_IF_ERROR(
        data.Read(at.window * T, absl::MakeSpan(tokens, static_cast<size_t>(T)), vocab_));
    std::copy(tokens + 1, tokens + T, targets);
    HEARTH_RETURN_IF_ERROR(
        data.Read(at.window * T + T, absl::MakeSpan(targets + T - 1, 1), vocab_));
    std::fill_n(out.loss_weight + row, T, 1.0f);
    std::iota(out.position + row, out.position + row + T, 0);
    std::fill_n(out.segment + row, T, 0);
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
