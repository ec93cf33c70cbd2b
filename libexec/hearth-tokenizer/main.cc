// sentencepiece over stdin and stdout.
//
// Request: uint32 length (little-endian) of what follows, one byte of operation, payload. Reply:
// uint32 length, one byte (0 = done, else an error code as in gRPC), payload or error text. End of
// input ends the process.
//   'L' model bytes                      -> int32 vocab, int32 eos
//   'E' text                             -> int32 ids
//   'D' int32 ids                        -> text
//   'B' int32 vocab, model type          -> nothing; begins a training
//   'S' sentences, one a line            -> no reply
//   'T' nothing                          -> model bytes
// common/dataset/tokenize/tokenizer_process.cc is the other side.
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sentencepiece_processor.h"
#include "sentencepiece_trainer.h"

namespace {

constexpr uint32_t kMaxFrame = 256u << 20;
constexpr uint8_t kInvalidArgument = 3;
constexpr uint8_t kInternal = 13;

// call(p, n), which moves some of n bytes at p, until all have moved; false: an error or the end.
template <typename Byte, typename Call>
bool MoveAll(Byte* p, size_t n, const Call& call) {
  while (n > 0) {
    const ssize_t moved = call(p, n);
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved <= 0) {
      return false;
    }
    p += moved;
    n -= static_cast<size_t>(moved);
  }
  return true;
}

bool ReadFull(void* to, size_t n) {
  return MoveAll(static_cast<char*>(to), n,
                 [](char* p, size_t left) { return read(STDIN_FILENO, p, left); });
}

bool WriteFull(const void* from, size_t n) {
  return MoveAll(static_cast<const char*>(from), n,
                 [](const char* p, size_t left) { return write(STDOUT_FILENO, p, left); });
}

struct Reply {
  uint8_t code = 0;
  std::string payload;
};

bool Send(const Reply& reply) {
  const uint32_t size = static_cast<uint32_t>(reply.payload.size()) + 1;
  return WriteFull(&size, sizeof size) && WriteFull(&reply.code, 1) &&
         WriteFull(reply.payload.data(), reply.payload.size());
}

Reply FromStatus(const sentencepiece::util::Status& status) {
  return {static_cast<uint8_t>(status.code()), status.message()};
}

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

class Server {
 public:
  // False when there is nothing to answer.
  bool Handle(char op, const std::string& payload, Reply* reply) {
    switch (op) {
      case 'L':
        *reply = Load(payload);
        return true;
      case 'E':
        *reply = Encode(payload);
        return true;
      case 'D':
        *reply = Decode(payload);
        return true;
      case 'B':
        *reply = BeginTraining(payload);
        return true;
      case 'S':
        AddSentences(payload);
        return false;
      case 'T':
        *reply = Train();
        return true;
      default:
        *reply = {kInvalidArgument, "unknown operation"};
        return true;
    }
  }

 private:
  Reply Load(const std::string& model) {
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) {
      return {kInvalidArgument, std::string("not a sentencepiece model: ") + status.message()};
    }
    const int32_t numbers[2] = {processor_.GetPieceSize(), processor_.eos_id()};
    return {0, std::string(reinterpret_cast<const char*>(numbers), sizeof numbers)};
  }

  Reply Encode(const std::string& text) {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok()) {
      return FromStatus(status);
    }
    static_assert(sizeof(int) == sizeof(int32_t));
    return {0, std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int))};
  }

  Reply Decode(const std::string& payload) {
    std::vector<int> ids(payload.size() / sizeof(int));
    std::memcpy(ids.data(), payload.data(), ids.size() * sizeof(int));
    for (const int id : ids) {
      if (id < 0 || id >= processor_.GetPieceSize()) {
        return {kInvalidArgument, "token " + std::to_string(id) + " is not below the vocabulary " +
                                      std::to_string(processor_.GetPieceSize())};
      }
    }
    std::string text;
    const auto status = processor_.Decode(ids, &text);
    if (!status.ok()) {
      return FromStatus(status);
    }
    return {0, std::move(text)};
  }

  Reply BeginTraining(const std::string& payload) {
    if (payload.size() < sizeof(int32_t)) {
      return {kInvalidArgument, "short request"};
    }
    std::memcpy(&vocab_, payload.data(), sizeof vocab_);
    model_type_ = payload.substr(sizeof vocab_);
    lines_.clear();
    return {};
  }

  void AddSentences(const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      size_t end = text.find('\n', at);
      if (end == std::string::npos) {
        end = text.size();
      }
      if (end > at) {
        lines_.push_back(text.substr(at, end - at));
      }
      at = end + 1;
    }
  }

  Reply Train() {
    // One thread: the order of the sums of unigram training must not depend on the machine.
    const std::unordered_map<std::string, std::string> options = {
        {"vocab_size", std::to_string(vocab_)},
        {"model_type", model_type_},
        {"byte_fallback", "true"},
        {"normalization_rule_name", "identity"},
        {"add_dummy_prefix", "false"},
        {"remove_extra_whitespaces", "false"},
        {"split_digits", "true"},
        {"character_coverage", "0.9995"},
        {"max_sentence_length", "65536"},
        {"input_sentence_size", "0"},
        {"shuffle_input_sentence", "false"},
        {"num_threads", "1"},
        {"minloglevel", "2"},
    };
    Sentences sentences(lines_);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(options, &sentences, &model);
    lines_.clear();
    if (!status.ok()) {
      // "./src/file.cc(660) [condition] text": only the text is for people.
      std::string text = status.message();
      const size_t bracket = text.find("] ");
      if (bracket != std::string::npos) {
        text = text.substr(bracket + 2);
      }
      return {kInvalidArgument, std::move(text)};
    }
    return {0, std::move(model)};
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> lines_;
  int32_t vocab_ = 0;
  std::string model_type_ = "bpe";
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || std::strcmp(argv[1], "serve") != 0) {
    const char text[] =
        "usage: hearth-tokenizer serve\n"
        "sentencepiece over stdin and stdout; started by jobctl dataset and hearth-trainer "
        "sample.\n";
    return write(STDERR_FILENO, text, sizeof text - 1) < 0 ? 1 : 2;
  }
  Server server;
  uint32_t size = 0;
  while (ReadFull(&size, sizeof size)) {
    if (size == 0 || size > kMaxFrame) {
      return 1;
    }
    char op = 0;
    std::string payload(size - 1, '\0');
    if (!ReadFull(&op, 1) || !ReadFull(payload.data(), payload.size())) {
      return 1;
    }
    Reply reply;
    bool answer = true;
    try {
      answer = server.Handle(op, payload, &reply);
    } catch (const std::exception& e) {
      reply = {kInternal, e.what()};
    }
    if (answer && !Send(reply)) {
      return 1;
    }
  }
  return 0;
}
