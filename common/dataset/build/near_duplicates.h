// Finds texts that are nearly the same, by MinHash with bands.
//
// A text is the set of its word 5-grams. Its signature has, for each of 128 hash functions, the
// least hash of the set: two signatures agree at a place with the probability J, the Jaccard
// similarity of the sets (Broder 1997, "On the resemblance and containment of documents"). 8 bits
// of each are kept, so that J = (agreeing / 128 - 1/256) / (1 - 1/256) (Li and Koenig 2010, "b-Bit
// Minwise Hashing"); the standard error is sqrt(J (1 - J) / 128), 0.035 at 0.8. Texts are compared
// if they agree in all of the r places of one of b bands: with the probability 1 - (1 - J^r)^b
// (Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4). r is the largest
// number for which this is at least 0.98 at the threshold: 0.8 gives 18 bands of 7.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

namespace hearth::dataset {

using Signature = std::array<uint8_t, 128>;

// Words are runs of ASCII letters, digits and other characters beyond ASCII, in lower case as far
// as ASCII goes; from U+2E80 on (Chinese, Japanese, Korean) each character is one. A text of fewer
// than five words is one set member. Nothing: it has no word. `text`: any bytes. The same on every
// machine.
std::optional<Signature> MakeSignature(std::string_view text);

// The estimate of the Jaccard similarity, 0 .. 1.
double Similarity(const Signature& a, const Signature& b);

// Texts seen so far, 230 to 330 bytes each. The answers depend only on the order of calls. Not
// thread-safe.
class NearDuplicates {
 public:
  // `threshold`: the least similarity of two near duplicates, within [0.5, 1].
  explicit NearDuplicates(double threshold);

  struct Match {
    uint32_t text = 0;  // its number in the order of adding, from 0
    double similarity = 0;
  };
  // The most similar of the texts that the bands find, if it is similar enough (of equals the first
  // one); else nothing, and `signature` is added.
  std::optional<Match> FindOrAdd(const Signature& signature);

  uint32_t size() const { return static_cast<uint32_t>(signatures_.size()); }
  int rows() const { return rows_; }
  int bands() const { return bands_; }

 private:
  // Numbers of texts by the hash of a band; open addressing, kNone in free places.
  using Table = std::vector<uint32_t>;

  uint64_t Hash(const Signature& signature, int band) const;
  bool SameBand(const Signature& a, const Signature& b, int band) const;
  void Insert(uint32_t text, int band);
  void Grow();

  const double threshold_;
  int rows_ = 1;  // places of a band
  int bands_ = 1;
  std::deque<Signature> signatures_;
  std::vector<Table> tables_;  // by band, all of the same size
};

}  // namespace hearth::dataset
