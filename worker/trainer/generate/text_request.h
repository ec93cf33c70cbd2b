// v1::TextRequest and what answers it, in the generator's terms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/tokenize/tokenizer.h"
#include "hearth/v1/job_spec.pb.h"
#include "hearth/v1/text.pb.h"
#include "kernels/sample_tokens/sample_tokens.h"
#include "worker/trainer/generate/text_writer.h"

namespace hearth::trainer {

// How its tokens are drawn; what is not set has the default of the message.
kernels::SamplingRule RuleOf(const v1::TextRequest& text);
// Tokens that it asks for.
int64_t TokensOf(const v1::TextRequest& text);
v1::TextEnd EndOf(TextEnd end);

// The prompt's tokens, at least one: an empty prompt begins as a document does.
// kInvalidArgument: as many as the model learned positions, or one that it does not know.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const std::string& prompt,
                                                  dataset::Tokenizer& tokenizer,
                                                  const v1::ModelSpec& model);

// Valid UTF-8: a model of bytes may write any, a message has characters.
std::string Characters(std::string_view text);

}  // namespace hearth::trainer
