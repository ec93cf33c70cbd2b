#include "common/dataset/build/near_duplicates.h"

#include <algorithm>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace hearth::dataset {
namespace {

constexpr uint32_t kSeed = 20;

using Words = std::vector<int>;

std::string TextOf(const Words& words) {
  return absl::StrJoin(words, " ",
                       [](std::string* out, int word) { absl::StrAppend(out, "w", word); });
}

// The exact similarity.
double Jaccard(const Words& a, const Words& b) {
  const auto shingles = [](const Words& words) {
    std::set<Words> out;
    for (size_t i = 0; i + 5 <= words.size(); ++i) {
      out.emplace(words.begin() + static_cast<int64_t>(i),
                  words.begin() + static_cast<int64_t>(i) + 5);
    }
    return out;
  };
  const std::set<Words> x = shingles(a);
  const std::set<Words> y = shingles(b);
  std::vector<Words> both;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
  const double common = static_cast<double>(both.size());
  return common / (static_cast<double>(x.size() + y.size()) - common);
}

class Planted {
 public:
  Planted() : random_(kSeed) { std::cerr << "seed " << kSeed << "\n"; }

  Words Document() {
    Words words(150 + random_() % 300);
    for (int& word : words) {
      word = static_cast<int>(random_() % 3000);
    }
    return words;
  }

  // With `changes` words exchanged for others.
  Words Copy(Words words, size_t changes) {
    for (size_t i = 0; i < changes; ++i) {
      words[random_() % words.size()] = static_cast<int>(3000 + random_() % 3000);
    }
    return words;
  }

 private:
  std::mt19937 random_;
};

TEST(NearDuplicates, PlantedCopies_AreFoundAndOthersKept) {
  Planted planted;
  NearDuplicates index(0.8);
  EXPECT_EQ(index.bands(), 18);
  EXPECT_EQ(index.rows(), 7);
  std::vector<Words> originals;
  for (int i = 0; i < 3000; ++i) {
    originals.push_back(planted.Document());
    ASSERT_FALSE(index.FindOrAdd(*MakeSignature(TextOf(originals.back()))).has_value()) << i;
  }
  int near = 0;
  int near_found = 0;
  int far = 0;
  int far_found = 0;
  int wrong_text = 0;
  double error = 0;
  constexpr size_t kCopies = 600;  // a copy of the index each takes its time
  for (size_t i = 0; i < kCopies; ++i) {
    const Words copy = planted.Copy(originals[i], 1 + i % 24);
    const double exact = Jaccard(originals[i], copy);
    const Signature signature = *MakeSignature(TextOf(copy));
    error += Similarity(signature, *MakeSignature(TextOf(originals[i]))) - exact;
    NearDuplicates one = index;  // what it adds is not for the next one
    const auto match = one.FindOrAdd(signature);
    wrong_text += match.has_value() && match->text != i ? 1 : 0;
    if (exact >= 0.88) {
      ++near;
      near_found += match.has_value() ? 1 : 0;
    } else if (exact <= 0.7) {
      ++far;
      far_found += match.has_value() ? 1 : 0;
    }
  }
  std::cerr << "recall " << near_found << " of " << near << " with J >= 0.88, wrongly dropped "
            << far_found << " of " << far << " with J <= 0.7, mean error " << error / kCopies
            << "\n";
  ASSERT_GT(near, 80);
  ASSERT_GT(far, 100);
  EXPECT_GE(near_found, near * 98 / 100);
  EXPECT_LE(far_found, far / 50);
  EXPECT_EQ(wrong_text, 0);
  EXPECT_NEAR(error / kCopies, 0, 0.01) << "the estimate has no bias";
}

TEST(NearDuplicates, Boilerplate_IsKeptInBoundedChains) {
  // Texts that share most of their bands and are still unlike enough: none is lost to the limit.
  NearDuplicates index(0.95);
  Planted planted;
  const Words base = planted.Document();
  int added = 0;
  for (int i = 0; i < 200; ++i) {
    added += index.FindOrAdd(*MakeSignature(TextOf(planted.Copy(base, 12)))).has_value() ? 0 : 1;
  }
  EXPECT_GT(added, 190);
  EXPECT_EQ(index.size(), static_cast<uint32_t>(added));
}

TEST(MakeSignature, CaseAndSpaces_CountNothing) {
  const std::string text = "The quick brown fox jumps over the lazy dog, twice.";
  const std::string other = "the QUICK brown\n\tfox -- jumps over the lazy dog twice";
  EXPECT_EQ(MakeSignature(text), MakeSignature(other));
  EXPECT_NE(MakeSignature(text),
            MakeSignature("the quick brown fox jumps over the lazy cat twice"));
}

TEST(MakeSignature, ShortTexts_AreOneMember) {
  EXPECT_FALSE(MakeSignature("").has_value());
  EXPECT_FALSE(MakeSignature(" ... \n").has_value());
  EXPECT_EQ(MakeSignature("one two"), MakeSignature("One, two!"));
  EXPECT_LT(Similarity(*MakeSignature("one two"), *MakeSignature("two one")), 0.1);
}

TEST(MakeSignature, ChineseWithoutSpaces_HasAWordACharacter) {
  const std::string a = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳";
  const std::string b = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阴";
  EXPECT_GT(Similarity(*MakeSignature(a), *MakeSignature(b)), 0.8);
  EXPECT_EQ(Similarity(*MakeSignature(a), *MakeSignature(a)), 1);
}

TEST(MakeSignature, RandomBytes_NeverCrash) {
  std::mt19937 random(kSeed);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 40, '\0');
    for (char& c : text) {
      c = static_cast<char>(random());
    }
    MakeSignature(text);
  }
}

// The same numbers on every machine: a dataset does not depend on where it was built.
TEST(MakeSignature, Value_IsFixed) {
  const Signature signature = *MakeSignature("the quick brown fox jumps over the lazy dog");
  uint64_t hash = 0xCBF29CE484222325;
  for (const uint8_t byte : signature) {
    hash = (hash ^ byte) * 0x100000001B3;
  }
  EXPECT_EQ(hash, 17426807297026550991U);
}

}  // namespace
}  // namespace hearth::dataset
