#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/dataset/build/record_reader.h"
#include "common/dataset/build/text_files.h"
#include "common/dataset/byte_buffer.h"
#include "common/tokenizer/checked_json.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/targets.h"

namespace hearth::fuzz {

// A file of text, JSON lines or CSV, plain or packed; the first byte says which.
bool Records(std::string_view bytes) {
  if (bytes.empty()) {
    return false;
  }
  const auto formats = dataset::InputFormats();
  const auto choice = static_cast<unsigned char>(bytes.front());
  const dataset::InputFormat& format = formats[choice % formats.size()];
  const char* const packed[] = {"", ".gz", ".zst"};
  const std::string path =
      ScratchFile(absl::StrCat("file", std::string(format.name_endings.front()),
                               packed[choice / formats.size() % 3]),
                  bytes.substr(1));
  const auto reader = dataset::RecordReader::Open(path, format, "text", 1000);
  if (!reader.ok()) {
    return false;
  }
  bool taken = false;
  dataset::ByteBuffer buffer;
  dataset::TextSpace space;
  for (int i = 0; i < 2000; ++i) {
    const auto record = (*reader)->Read(&buffer);
    if (!record.ok() || !record->has_value()) {
      break;
    }
    const std::string line(buffer.view().substr((*record)->begin, (*record)->size));
    const auto text = (*reader)->parser()->TextOf(**record, &buffer, &space);
    if (text.ok() && text->is_text) {
      HEARTH_CHECK(dataset::IsText(text->text), "it is text");
      const auto json = tokenizer::ParseCheckedJson(line, "line");
      HEARTH_CHECK(json.ok() && json->at("text").get<std::string>() == text->text,
                   "found without a tree, it is what the tree has");
    }
    taken = text.ok() || taken;
    if (i % 3 == 0) {
      (*reader)->Leave(&buffer);
      buffer.Clear();
    }
  }
  return taken;
}

}  // namespace hearth::fuzz
