// tokenizer.json files for tests, and a second BPE that is as plain as the definition.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/unicode.h"
#include "nlohmann/json.hpp"

namespace hearth::tokenizer {

// Merges that are made of random letters, spaces and bytes; all in one tokenizer.json with the
// tokens in the order of their ids.
struct TestTokenizer {
  std::vector<std::string> tokens;                          // bytes by id
  std::vector<std::pair<std::string, std::string>> merges;  // bytes

  explicit TestTokenizer(int merge_count, uint32_t seed = 1) {
    for (int b = 0; b < 256; ++b) {
      tokens.emplace_back(1, static_cast<char>(b));
    }
    std::mt19937 random(seed);
    std::set<std::string> known(tokens.begin(), tokens.end());
    const std::string common = "aeeettooiinnsrhld  '\xc3\xa9\xe4\xb8\xad";
    while (static_cast<int>(merges.size()) < merge_count) {
      const auto pick = [&] {
        return random() % 3 == 0 && tokens.size() > 256
                   ? tokens[256 + random() % (tokens.size() - 256)]
                   : std::string(1, common[random() % common.size()]);
      };
      const std::string left = pick();
      const std::string right = pick();
      if (left.size() + right.size() > 12 || !known.insert(left + right).second) {
        continue;
      }
      merges.emplace_back(left, right);
      tokens.push_back(left + right);
    }
  }

  nlohmann::json Json(const nlohmann::json& pre_tokenizer) const {
    nlohmann::json json = {{"version", "1.0"},          {"truncation", nullptr},
                           {"padding", nullptr},        {"added_tokens", nlohmann::json::array()},
                           {"normalizer", nullptr},     {"pre_tokenizer", pre_tokenizer},
                           {"post_processor", nullptr}, {"decoder", {{"type", "ByteLevel"}}}};
    nlohmann::json model = {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", false}};
    for (size_t i = 0; i < tokens.size(); ++i) {
      model["vocab"][NameOfBytes(tokens[i])] = i;
    }
    model["merges"] = nlohmann::json::array();
    for (const auto& [left, right] : merges) {
      model["merges"].push_back(NameOfBytes(left) + " " + NameOfBytes(right));
    }
    json["model"] = model;
    return json;
  }

  // The best merge of the piece, the leftmost of equals, again and again.
  std::vector<int32_t> Encode(const std::string& piece) const {
    std::map<std::pair<std::string, std::string>, size_t> ranks;
    for (size_t i = 0; i < merges.size(); ++i) {
      ranks[merges[i]] = i;
    }
    std::vector<std::string> parts;
    for (const char c : piece) {
      parts.emplace_back(1, c);
    }
    while (true) {
      size_t best = ranks.size();
      size_t at = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto it = ranks.find({parts[i], parts[i + 1]});
        if (it != ranks.end() && it->second < best) {
          best = it->second;
          at = i;
        }
      }
      if (best == ranks.size()) {
        break;
      }
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    std::map<std::string, int32_t> ids;
    for (size_t i = 0; i < tokens.size(); ++i) {
      ids[tokens[i]] = static_cast<int32_t>(i);
    }
    std::vector<int32_t> out;
    for (const std::string& part : parts) {
      out.push_back(ids.at(part));
    }
    return out;
  }
};

inline nlohmann::json ByteLevelJson(bool use_regex = true) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// A Split by `pattern`, then ByteLevel, as Llama-3 and Qwen files have it.
inline nlohmann::json SplitJson(std::string_view pattern) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            ByteLevelJson(false)}}};
}

// Letters, digits, signs, white space and marks of many scripts, in short runs of one kind.
inline std::string RandomText(std::mt19937& random, size_t characters) {
  static const std::vector<std::vector<uint32_t>> pools = {
      {'a', 'e', 'n', 's', 't', 'd', 'm', 'l', 'v', 'r', 'S', 'T', 'Z', 0x17f, 0x212a},
      {'0', '1', '9', 0x663, 0xb2, 0x2167, 0xbd, 0x96a},
      {' ', ' ', ' ', '\t', '\n', '\r', 0xa0, 0x85, 0x2003, 0x3000, 0x180e, 0x1f, 0x200b, 0xb},
      {'\'', '\'', '.', ',', '<', '|', '>', '"', '_', 0x2019, 0x20ac, 0x1f600, 0x200d, 0xfe0f},
      {0xe9, 0x65, 0x301, 0x327, 0x323, 0x928, 0x93c, 0x94d, 0x915, 0x9c7, 0x9be, 0x1100, 0x1161},
      {0x4e2d, 0x6587, 0x3042, 0xac00, 0x11a8, 0x5d0, 0x627, 0x212b, 0xfb01, 0x1e9b, 0x20000},
  };
  std::string text;
  for (size_t i = 0; i < characters;) {
    const auto& pool = pools[random() % pools.size()];
    for (size_t run = 1 + random() % 5; run > 0; --run, ++i) {
      uint32_t c = pool[random() % pool.size()];
      if (random() % 40 == 0) {
        do {
          c = random() % 0x32000;
        } while (c >= 0xd800 && c < 0xe000);
      }
      AppendUtf8(c, &text);
    }
  }
  return text;
}

}  // namespace hearth::tokenizer
