// Rows of the token table, and of the position table of models that learn positions. The first
// layer's input is its output: it has no buffer of its own.
#pragma once

namespace hearth::spec {

struct Block;

extern const Block kEmbeddingBlock;

}  // namespace hearth::spec
