// What a batch of documents becomes on its way into datasets.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "common/dataset/byte_buffer.h"
#include "common/dataset/dataset_writer.h"

namespace hearth::dataset {

struct Encoded {
  static constexpr size_t kMaxOutputs = 2;  // training and validation

  // The state of the build behind a document, to be saved once the writes before it are done.
  struct SavePoint {
    size_t documents = 0;  // of the batch, up to it
    std::array<size_t, kMaxOutputs> writes{};
    std::string state;
  };

  ByteBuffer packed;  // tokens as shards have them, of one document after the other
  ByteBuffer mask;    // of conversations: a byte for each token
  size_t taken = 0;   // of the documents, as many as --max-tokens lets in
  std::array<DatasetWriter::Writes, kMaxOutputs> writes;
  std::vector<SavePoint> saves;

  void Clear() {
    packed.Clear();
    mask.Clear();
    taken = 0;
    for (DatasetWriter::Writes& list : writes) {
      list.clear();
    }
    saves.clear();
  }
};

}  // namespace hearth::dataset
