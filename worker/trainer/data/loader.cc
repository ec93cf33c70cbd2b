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

absl::Status CheckOptions(const LoaderOptions& options) {
  if (options.sources.empty()) {
    return absl::InvalidArgumentError("data: no dataset given");
  }
  if (static_cast<int64_t>(options.sources.size()) > dataset::Mixture::kPeriod / 2) {
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

// Weight i is that of token first + i as a target.
void KeepCounted(const dataset::Dataset& data, int64_t first, absl::Span<float> weights) {
  data.VisitMask(first, static_cast<int64_t>(weights.size()), [&](int64_t i, uint8_t mask) {
    if ((mask & dataset::kMaskCounts) == 0) {
      weights[static_cast<size_t>(i)] = 0.0f;
    }
  });
}

}  // namespace

absl::StatusOr<Loader::Source> Loader::OpenSource(const LoaderOptions& options,
                                                  const std::string& path,
                                                  Env& env) {
  Source source;
  HEARTH_ASSIGN_OR_RETURN(source.data, dataset::Dataset::Open(path, env));
  const dataset::Dataset& data = *source.data;
  const bool packs = options.packing == Packing::kBestFit;
  if (options.vocab > 0 && data.vocab() > options.vocab) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": vocabulary ", data.vocab(),
                                                   " is larger than model.vocab ", options.vocab));
  }
  source.masked = options.loss_tokens != LossTokens::kAll && data.has_mask();
  if ((packs || options.documents) && !data.info().has_documents()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": records no end token (eos in dataset.json), so the ends of its documents "
                     "are not known; ",
                     "data.packing: concat and data.attention: causal need none"));
  }
  if (packs) {
    HEARTH_ASSIGN_OR_RETURN(
        source.packed, BestFit::Pack(data, int64_t{options.sequence_length} + 1, source.masked));
    source.windows = source.packed->windows();
    return source;
  }
  if (data.tokens() <= options.sequence_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", data.tokens(), " tokens are fewer than data.sequence_length + 1 = ",
        int64_t{options.sequence_length} + 1));
  }
  // T inputs and their targets are T + 1 tokens: the last one is also the first of the next window.
  source.windows = (data.tokens() - 1) / options.sequence_length;
  return source;
}

absl::StatusOr<std::unique_ptr<Loader>> Loader::Open(const LoaderOptions& options, Env& env) {
  HEARTH_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Loader> loader(new Loader);
  loader->sequence_length_ = options.sequence_length;
  loader->vocab_ = options.vocab;
  loader->seed_ = options.seed;
  loader->shuffle_ = options.shuffle;
  loader->documents_ = options.documents;
  std::vector<double> weights;
  for (const LoaderOptions::Source& given : options.sources) {
    HEARTH_ASSIGN_OR_RETURN(Source source, OpenSource(options, given.path, env));
    loader->tokens_ += source.data->tokens();
    loader->largest_vocab_ = std::max(loader->largest_vocab_, source.data->vocab());
    loader->sources_.push_back(std::move(source));
    weights.push_back(given.weight);
  }
  const bool masked = std::any_of(loader->sources_.begin(), loader->sources_.end(),
                                  [](const Source& source) { return source.masked; });
  if (options.loss_tokens == LossTokens::kMasked && !masked) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.sources.front().path, ": has no loss mask"));
  }
  loader->mixture_ = std::make_unique<const dataset::Mixture>(weights);
  return loader;
}

Loader::Location Loader::Locate(int64_t sample) const {
  const dataset::Mixture::Place place = mixture_->At(sample);
  const Source& source = sources_[static_cast<size_t>(place.source)];
  Location location;
  location.source = place.source;
  // A sample's place follows from its number alone; no state is kept from sample to sample.
  location.pass = place.sample / source.windows;
  location.window = place.sample % source.windows;
  if (shuffle_) {
    // A key for each source and pass: every pass has another order, and any sample can be found
    // without those before it, on which a resume and several ranks rely.
    const uint64_t key =
        MixKey(seed_, static_cast<uint64_t>(place.source), static_cast<uint64_t>(location.pass));
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

int64_t Loader::PassesBegun(int64_t samples) const {
  int64_t passes = 0;
  for (int i = 0; i < sources(); ++i) {
    const int64_t windows = sources_[static_cast<size_t>(i)].windows;
    passes = std::max(passes, (mixture_->SamplesOf(i, samples) + windows - 1) / windows);
  }
  return passes;
}

double Loader::PassesOf(int i, int64_t samples) const {
  return static_cast<double>(mixture_->SamplesOf(i, samples)) /
         static_cast<double>(sources_[static_cast<size_t>(i)].windows);
}

int64_t Loader::samples_of_pass() const {
  if (!sources_[0].packed.has_value()) {
    return std::max<int64_t>(1, (tokens_ - 1) / sequence_length_);
  }
  return std::accumulate(sources_.begin(), sources_.end(), int64_t{0},
                         [](int64_t sum, const Source& source) { return sum + source.windows; });
}

absl::StatusOr<double> Loader::SeenShare() const {
  constexpr int64_t kSamples = 64;
  const auto length = static_cast<size_t>(sequence_length_);
  std::vector<int32_t> words(4 * length);
  std::vector<float> weights(length);
  const BatchBuffers sample = {words.data(),
                               words.data() + length,
                               weights.data(),
                               words.data() + 2 * length,
                               words.data() + 3 * length,
                               nullptr};
  int64_t seen = 0;
  int64_t all = 0;
  for (int64_t s = 0; s < kSamples; ++s) {
    HEARTH_RETURN_IF_ERROR(Fill(s, 1, sample));
    for (int64_t i = 0; i < sequence_length_; ++i) {
      seen += i + 1 - sample.start[i];
      all += i + 1;
    }
  }
  return static_cast<double>(seen) / static_cast<double>(all);
}

absl::Status Loader::FillConcat(const Source& source,
                                int64_t window,
                                const BatchBuffers& out) const {
  const int64_t T = sequence_length_;
  const dataset::Dataset& data = *source.data;
  HEARTH_RETURN_IF_ERROR(
      data.Read(window * T, absl::MakeSpan(out.tokens, static_cast<size_t>(T)), vocab_));
  // Targets are the inputs one token later; only the last one has to be read.
  std::copy(out.tokens + 1, out.tokens + T, out.targets);
  HEARTH_RETURN_IF_ERROR(data.Read(window * T + T, absl::MakeSpan(out.targets + T - 1, 1), vocab_));
  std::fill_n(out.loss_weight, T, 1.0f);
  std::fill_n(out.start, T, 0);
  // The token after an end token begins another document, so it is no target of this one.
  const auto follow = [&](int64_t i, bool ends) {
    out.loss_weight[i] = ends ? 0.0f : 1.0f;
    if (i + 1 < T) {
      out.start[i + 1] = ends ? static_cast<int32_t>(i + 1) : out.start[i];
    }
  };
  if (documents_ && data.has_mask()) {
    data.VisitMask(window * T, T, [&follow](int64_t i, uint8_t mask) {
      follow(i, (mask & dataset::kMaskEnds) != 0);
    });
  } else if (documents_) {
    for (int64_t i = 0; i < T; ++i) {
      follow(i, out.tokens[i] == data.info().eos);
    }
  }
  if (source.masked) {
    KeepCounted(data, window * T + 1, absl::MakeSpan(out.loss_weight, static_cast<size_t>(T)));
  }
  return absl::OkStatus();
}

absl::Status Loader::FillPacked(const Source& source,
                                int64_t window,
                                const BatchBuffers& out) const {
  const int64_t T = sequence_length_;
  const int32_t end = std::max(source.data->info().eos, 0);  // what padding is made of
  std::fill_n(out.loss_weight, T, 1.0f);
  int64_t at = 0;
  for (const Piece& piece : source.packed->Window(window)) {
    const auto first = static_cast<int64_t>(piece.first);
    const auto tokens = static_cast<int64_t>(piece.tokens);
    // The last of T + 1 tokens is a target alone.
    const int64_t inputs = std::min(tokens, T - at);
    const int64_t last = at + inputs - 1;
    HEARTH_RETURN_IF_ERROR(source.data->Read(
        first, absl::MakeSpan(out.tokens + at, static_cast<size_t>(inputs)), vocab_));
    std::copy(out.tokens + at + 1, out.tokens + last + 1, out.targets + at);
    if (inputs < tokens) {
      HEARTH_RETURN_IF_ERROR(
          source.data->Read(first + inputs, absl::MakeSpan(out.targets + last, 1), vocab_));
    } else {
      // The piece ends with its document inside the window: nothing comes after it.
      out.targets[last] = end;
      out.loss_weight[last] = 0.0f;
    }
    if (source.masked) {
      const int64_t targets = std::min(inputs, tokens - 1);
      KeepCounted(*source.data, first + 1,
                  absl::MakeSpan(out.loss_weight + at, static_cast<size_t>(targets)));
    }
    std::fill_n(out.start + at, inputs, static_cast<int32_t>(at));
    at += inputs;
  }
  // What is left is padding: a document of its own, without targets that count.
  std::fill(out.tokens + at, out.tokens + T, end);
  std::fill(out.targets + at, out.targets + T, end);
  std::fill(out.loss_weight + at, out.loss_weight + T, 0.0f);
  std::fill(out.start + at, out.start + T, static_cast<int32_t>(at));
  return absl::OkStatus();
}

absl::Status Loader::Fill(int64_t first, int64_t count, const BatchBuffers& out) const {
  const int64_t T = sequence_length_;
  for (int64_t s = 0; s < count; ++s) {
    const Location at = Locate(first + s);
    const Source& source = sources_[static_cast<size_t>(at.source)];
    const int64_t row = s * T;
    const BatchBuffers sample = {out.tokens + row,   out.targets + row, out.loss_weight + row,
                                 out.position + row, out.start + row,   nullptr};
    HEARTH_RETURN_IF_ERROR(source.packed.has_value() ? FillPacked(source, at.window, sample)
                                                     : FillConcat(source, at.window, sample));
    if (out.source != nullptr) {
      out.source[s] = at.source;
    }
    if (!documents_) {
      std::fill_n(sample.start, T, 0);
    }
    for (int64_t i = 0; i < T; ++i) {
      sample.position[i] = static_cast<int32_t>(i) - sample.start[i];
    }
  }
  return absl::OkStatus();
}

}  // namespace hearth::trainer
