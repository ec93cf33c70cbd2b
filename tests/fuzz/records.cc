#include "absl/strings/str_cat.h"
#include "common/dataset/build/record_reader.h"
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
  for (int i = 0; i < 2000; ++i) {
    auto record = (*reader)->Read();
    if (!record.ok() || !record->has_value()) {
      break;
    }
    taken = (*reader)->parser()->TextOf(**std::move(record)).ok() || taken;
  }
  return taken;
}

}  // namespace hearth::fuzz
