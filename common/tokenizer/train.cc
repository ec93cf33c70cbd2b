#include "common/tokenizer/train.h"

#include <algorithm>
#include <queue>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/scanner.h"
#include "nlohmann/json.hpp"

namespace hearth::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kBytes = 256;

const ScannerRow& Llama3() {
  const auto rows = Scanners();
  return *std::find_if(rows.begin(), rows.end(),
                       [](const ScannerRow& row) { return row.kind == ScannerKind::kLlama3; });
}

}  // namespace

void PieceCounts::Add(std::string_view text) {
  Scanner<ScannerKind::kLlama3> scanner(text);
  for (std::string_view piece = scanner.Next(); !piece.empty(); piece = scanner.Next()) {
    if (piece.size() <= kMaxPiece) {
      ++counts_[absl::string_view(piece.data(), piece.size())];
    }
  }
}

void PieceCounts::Add(const PieceCounts& other) {
  for (const auto& [piece, count] : other.counts_) {
    counts_[piece] += count;
  }
}

class Trainer {
 public:
  explicit Trainer(const PieceCounts& counts) {
    // The order of the ids of bytes is that of their characters, as the tokenizers library has it.
    for (int32_t b = 0; b < kBytes; ++b) {
      names_.push_back(NameOfBytes(std::string(1, static_cast<char>(b))));
    }
    std::sort(names_.begin(), names_.end());
    std::vector<int32_t> id_of_byte(kBytes);
    for (int32_t id = 0; id < kBytes; ++id) {
      ids_.emplace(names_[static_cast<size_t>(id)], id);
      id_of_byte[static_cast<uint8_t>((*BytesOfName(names_[static_cast<size_t>(id)]))[0])] = id;
    }
    std::vector<std::pair<std::string_view, int64_t>> sorted(counts.counts_.begin(),
                                                             counts.counts_.end());
    // The map's order changes from run to run; training must not.
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [piece, count] : sorted) {
      Piece entry{{}, count};
      for (const char c : piece) {
        entry.tokens.push_back(id_of_byte[static_cast<uint8_t>(c)]);
      }
      pieces_.push_back(std::move(entry));
    }
    for (uint32_t i = 0; i < pieces_.size(); ++i) {
      const std::vector<int32_t>& tokens = pieces_[i].tokens;
      for (size_t k = 0; k + 1 < tokens.size(); ++k) {
        Change({tokens[k], tokens[k + 1]}, pieces_[i].count, i);
      }
    }
    PushChanged();
  }

  // Learns merges until there are `count` tokens. Returns how many there are.
  size_t Learn(size_t count) {
    while (names_.size() < count && !queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto it = pairs_.find(top.pair);
      if (it == pairs_.end() || it->second.count != top.count) {
        continue;  // a later entry has the count of now
      }
      if (top.count < 2) {
        break;
      }
      Apply(top.pair, std::move(it->second.pieces));
    }
    return names_.size();
  }

  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& merges() const { return merges_; }

 private:
  using Pair = std::pair<int32_t, int32_t>;

  struct Piece {
    std::vector<int32_t> tokens;
    int64_t count = 0;
  };
  struct PairState {
    int64_t count = 0;
    std::vector<uint32_t> pieces;  // where it occurs or occurred; ascending, may repeat
  };
  struct Candidate {
    int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {  // the top is the best
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void Change(Pair pair, int64_t by, uint32_t piece) {
    PairState& state = pairs_[pair];
    state.count += by;
    if (by > 0 && (state.pieces.empty() || state.pieces.back() != piece)) {
      state.pieces.push_back(piece);
    }
    changed_.push_back(pair);
  }

  void PushChanged() {
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const Pair& pair : changed_) {
      const auto it = pairs_.find(pair);
      if (it->second.count > 0) {
        queue_.push({it->second.count, pair});
      } else {
        pairs_.erase(it);
      }
    }
    changed_.clear();
  }

  void Apply(Pair pair, std::vector<uint32_t> where) {
    const std::string& left = names_[static_cast<size_t>(pair.first)];
    const std::string& right = names_[static_cast<size_t>(pair.second)];
    merges_.push_back(absl::StrCat(left, " ", right));
    std::string name = absl::StrCat(left, right);
    // Two pairs may give the same token: a + bc and ab + c.
    const auto [it, is_new] = ids_.try_emplace(name, static_cast<int32_t>(names_.size()));
    const int32_t merged = it->second;
    if (is_new) {
      names_.push_back(std::move(name));
    }
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    for (const uint32_t i : where) {
      ApplyToPiece(pair, merged, i);
    }
    PushChanged();
    pairs_.erase(pair);
  }

  void ApplyToPiece(Pair pair, int32_t merged, uint32_t i) {
    Piece& piece = pieces_[i];
    std::vector<int32_t>& tokens = piece.tokens;
    size_t to = 0;
    for (size_t from = 0; from < tokens.size(); ++from, ++to) {
      if (from + 1 >= tokens.size() || tokens[from] != pair.first ||
          tokens[from + 1] != pair.second) {
        tokens[to] = tokens[from];
        continue;
      }
      Change(pair, -piece.count, i);
      if (to > 0) {
        // The token before may be the merge just made; the pair with it was counted with `first`.
        Change({tokens[to - 1], pair.first}, -piece.count, i);
        Change({tokens[to - 1], merged}, piece.count, i);
      }
      if (from + 2 < tokens.size()) {
        Change({pair.second, tokens[from + 2]}, -piece.count, i);
        Change({merged, tokens[from + 2]}, piece.count, i);
      }
      tokens[to] = merged;
      ++from;
    }
    tokens.resize(to);
  }

  std::vector<std::string> names_;  // of tokens, by id
  absl::flat_hash_map<std::string, int32_t> ids_;
  std::vector<std::string> merges_;  // "left right"
  std::vector<Piece> pieces_;
  absl::flat_hash_map<Pair, PairState> pairs_;
  std::vector<Pair> changed_;
  std::priority_queue<Candidate> queue_;
};

absl::StatusOr<std::string> TrainBpe(const PieceCounts& counts, int32_t vocab) {
  if (vocab <= kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the vocabulary is ", vocab, ", must be at least ", kBytes + 1));
  }
  Trainer trainer(counts);
  const auto wanted = static_cast<size_t>(vocab) - 1;
  if (const size_t learned = trainer.Learn(wanted); learned < wanted) {
    return absl::InvalidArgumentError(absl::StrCat("the text gives a vocabulary of ", learned + 1,
                                                   " at most, ", vocab, " are asked for"));
  }
  const Json level = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", Llama3().pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json end = {{"id", vocab - 1}, {"content", kEndOfText}, {"single_word", false},
                    {"lstrip", false}, {"rstrip", false},       {"normalized", false},
                    {"special", true}};
  // The vocabulary is written by hand: it has to stand in the order of its ids.
  std::string text = absl::StrCat(
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
      "  \"added_tokens\": [",
      end.dump(), "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ",
      Json{{"type", "Sequence"}, {"pretokenizers", Json::array({split, level})}}.dump(),
      ",\n  \"post_processor\": null,\n  \"decoder\": ", level.dump(),
      ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": "
      "null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
      "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
      "    \"vocab\": {");
  for (size_t i = 0; i < trainer.names().size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "\n      " : ",\n      ", Json(trainer.names()[i]).dump(), ": ",
                    i);
  }
  absl::StrAppend(&text, "\n    },\n    \"merges\": [");
  for (size_t i = 0; i < trainer.merges().size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "\n      " : ",\n      ", Json(trainer.merges()[i]).dump());
  }
  absl::StrAppend(&text, "\n    ]\n  }\n}\n");
  return text;
}

std::string TrainedTokenizerConfig() {
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"eos_token", kEndOfText},
                       {"add_prefix_space", false},
                       {"clean_up_tokenization_spaces", false}};
  return config.dump(2) + "\n";
}

}  // namespace hearth::tokenizer
