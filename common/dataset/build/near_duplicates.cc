#include "common/dataset/build/near_duplicates.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/status_macros.h"

namespace hearth::dataset {
namespace {

constexpr int kPlaces = static_cast<int>(Signature().size());
constexpr int kShingleWords = 5;
constexpr int kMaxRows = 32;
constexpr double kFound = 0.98;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr size_t kFirstTable = 1024;  // a power of two
// Texts with the same band, beyond which no more are kept for it: boilerplate costs no quadratic
// time, and the other bands still find its texts.
constexpr int kMaxSameBand = 16;
constexpr uint32_t kFirstIdeograph = 0x2E80;

// SplitMix64.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Hash functions of 64 bits, of whose value the upper half counts: x -> a x + b mod 2^64, a odd.
struct HashFunctions {
  std::array<uint64_t, kPlaces> a;
  std::array<uint64_t, kPlaces> b;
};

const HashFunctions& Functions() {
  static const HashFunctions functions = [] {
    HashFunctions out{};
    for (size_t i = 0; i < out.a.size(); ++i) {
      out.a[i] = Mix(2 * i) | 1;
      out.b[i] = Mix(2 * i + 1);
    }
    return out;
  }();
  return functions;
}

// Takes words, makes 5-grams of them, and keeps the least hashes.
class MinHash {
 public:
  MinHash() { least_.fill(std::numeric_limits<uint32_t>::max()); }

  void AddWord(uint64_t word) {
    last_[static_cast<size_t>(words_ % kShingleWords)] = word;
    ++words_;
    if (words_ >= kShingleWords) {
      AddShingle(kShingleWords);
    }
  }

  std::optional<Signature> Finish() {
    if (words_ == 0) {
      return std::nullopt;
    }
    if (words_ < kShingleWords) {
      AddShingle(words_);
    }
    Signature signature;
    // The low byte alone is kept. Other hashes agree in it once in 256, which Similarity takes off.
    for (size_t i = 0; i < signature.size(); ++i) {
      signature[i] = static_cast<uint8_t>(least_[i]);
    }
    return signature;
  }

 private:
  // Takes the last `count` words.
  void AddShingle(int64_t count) {
    uint64_t hash = static_cast<uint64_t>(count);
    for (int64_t i = words_ - count; i < words_; ++i) {
      hash = hash * 0x9FB21C651E98DF25 + last_[static_cast<size_t>(i % kShingleWords)];
    }
    hash = Mix(hash);
    const HashFunctions& functions = Functions();
    for (size_t i = 0; i < least_.size(); ++i) {
      const uint32_t value = static_cast<uint32_t>((functions.a[i] * hash + functions.b[i]) >> 32);
      least_[i] = std::min(least_[i], value);
    }
  }

  std::array<uint32_t, kPlaces> least_;
  std::array<uint64_t, kShingleWords> last_{};  // words, as in a ring
  int64_t words_ = 0;
};

bool IsWordByte(unsigned char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}

// The character at `at` if it is a word of its own, 0 if not; its bytes.
size_t IdeographBytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  if (byte(0) >= 0xF0 && at + 4 <= text.size()) {
    return 4;
  }
  if (byte(0) >= 0xE0 && at + 3 <= text.size()) {
    const uint32_t code =
        (uint32_t{byte(0)} & 15) << 12 | (uint32_t{byte(1)} & 63) << 6 | (uint32_t{byte(2)} & 63);
    return code >= kFirstIdeograph ? 3 : 0;
  }
  return 0;
}

// FNV-1a.
constexpr uint64_t kFnvStart = 0xCBF29CE484222325;

uint64_t FnvStep(uint64_t hash, unsigned char byte) {
  return (hash ^ byte) * 0x100000001B3;
}

}  // namespace

std::optional<Signature> MakeSignature(std::string_view text) {
  MinHash hashes;
  size_t at = 0;
  while (at < text.size()) {
    const size_t ideograph = IdeographBytes(text, at);
    uint64_t hash = kFnvStart;
    const size_t begin = at;
    if (ideograph > 0) {
      for (; at < begin + ideograph; ++at) {
        hash = FnvStep(hash, static_cast<unsigned char>(text[at]));
      }
    } else {
      while (at < text.size() && IsWordByte(static_cast<unsigned char>(text[at])) &&
             IdeographBytes(text, at) == 0) {
        const unsigned char c = static_cast<unsigned char>(text[at]);
        hash = FnvStep(hash, c >= 'A' && c <= 'Z' ? static_cast<unsigned char>(c + 32) : c);
        ++at;
      }
    }
    if (at > begin) {
      hashes.AddWord(hash);
    } else {
      ++at;
    }
  }
  return hashes.Finish();
}

double Similarity(const Signature& a, const Signature& b) {
  int same = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    same += a[i] == b[i] ? 1 : 0;
  }
  constexpr double kByChance = 1.0 / 256;
  return std::max(0.0, (static_cast<double>(same) / kPlaces - kByChance) / (1 - kByChance));
}

NearDuplicates::NearDuplicates(double threshold) : threshold_(threshold) {
  HEARTH_CHECK(threshold >= 0.5 && threshold <= 1, "the threshold is within [0.5, 1]");
  // More rows to a band mean fewer texts that share one by accident. So the most rows with which a
  // pair just at the threshold is still found (1 - (1 - t^rows)^bands, the curve of LSH).
  for (int rows = 1; rows <= kMaxRows; ++rows) {
    const int bands = kPlaces / rows;
    if (1 - std::pow(1 - std::pow(threshold, rows), bands) >= kFound) {
      rows_ = rows;
      bands_ = bands;
    }
  }
  tables_.assign(static_cast<size_t>(bands_), Table(kFirstTable, kNone));
}

uint64_t NearDuplicates::Hash(const Signature& signature, int band) const {
  const size_t rows = static_cast<size_t>(rows_);
  const size_t first = static_cast<size_t>(band) * rows;
  uint64_t hash = kFnvStart;
  for (size_t row = 0; row < rows; ++row) {
    hash = FnvStep(hash, signature[first + row]);
  }
  return Mix(hash);
}

bool NearDuplicates::SameBand(const Signature& a, const Signature& b, int band) const {
  const size_t rows = static_cast<size_t>(rows_);
  const size_t first = static_cast<size_t>(band) * rows;
  return std::memcmp(a.data() + first, b.data() + first, rows) == 0;
}

std::optional<NearDuplicates::Match> NearDuplicates::FindOrAdd(const Signature& signature) {
  std::optional<Match> best;
  for (int band = 0; band < bands_; ++band) {
    const Table& table = tables_[static_cast<size_t>(band)];
    const size_t mask = table.size() - 1;
    for (size_t at = Hash(signature, band) & mask; table[at] != kNone; at = (at + 1) & mask) {
      const Signature& other = signatures_[table[at]];
      if (!SameBand(signature, other, band)) {
        continue;
      }
      const double similarity = Similarity(signature, other);
      if (similarity >= threshold_ &&
          (!best.has_value() || similarity > best->similarity ||
           (similarity == best->similarity && table[at] < best->text))) {
        best = Match{table[at], similarity};
      }
    }
  }
  if (best.has_value()) {
    return best;
  }
  HEARTH_CHECK(signatures_.size() < kNone, "fewer texts than 32 bits can number");
  const uint32_t text = size();
  signatures_.push_back(signature);
  if (signatures_.size() > tables_[0].size() / 4 * 3) {
    // Inserts all texts, this one as well.
    Grow();
  } else {
    for (int band = 0; band < bands_; ++band) {
      Insert(text, band);
    }
  }
  return std::nullopt;
}

void NearDuplicates::Insert(uint32_t text, int band) {
  Table& table = tables_[static_cast<size_t>(band)];
  const Signature& signature = signatures_[text];
  const size_t mask = table.size() - 1;
  size_t at = Hash(signature, band) & mask;
  int same = 0;
  for (; table[at] != kNone; at = (at + 1) & mask) {
    same += SameBand(signature, signatures_[table[at]], band) ? 1 : 0;
    if (same == kMaxSameBand) {
      return;
    }
  }
  table[at] = text;
}

// One band after the other, so that little is there twice.
void NearDuplicates::Grow() {
  for (int band = 0; band < bands_; ++band) {
    Table& table = tables_[static_cast<size_t>(band)];
    const size_t wanted = table.size() * 2;
    table = Table();
    table.assign(wanted, kNone);
    for (uint32_t text = 0; text < size(); ++text) {
      Insert(text, band);
    }
  }
}

}  // namespace hearth::dataset
