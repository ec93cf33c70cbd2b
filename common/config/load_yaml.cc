#include <exception>
#include <sstream>

#include "absl/status/status.h"
#include "common/config/reader.h"
#include "common/config/scalars.h"
#include "yaml-cpp/eventhandler.h"

namespace hearth::config {
namespace {

// Finds where documents begin, and takes nothing else.
class DocumentStarts : public YAML::EventHandler {
 public:
  const std::vector<int>& lines() const { return lines_; }

  void OnDocumentStart(const YAML::Mark& mark) override { lines_.push_back(mark.line + 1); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&,
                const std::string&,
                YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&,
                       const std::string&,
                       YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&,
                  const std::string&,
                  YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  std::vector<int> lines_;
};

// Lines of the first two documents. yaml-cpp 0.7 finds endless empty documents at a ',' outside
// brackets without moving on (YAML::LoadAll then fills the memory), so never read all of them.
std::vector<int> FirstDocuments(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  while (starts.lines().size() < 2 && parser.HandleNextDocument(starts)) {
  }
  return starts.lines();
}

// yaml-cpp quotes single bytes of longer characters.
std::string AsUtf8(std::string text) {
  if (!IsUtf8(text)) {
    for (char& c : text) {
      c = static_cast<unsigned char>(c) < 0x80 ? c : '?';
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<YAML::Node> LoadYaml(std::string_view text, std::vector<ReadError>& errors) {
  const auto fail = [&errors](int line, const std::string& what) {
    errors.push_back({line, "", what});
    return absl::InvalidArgumentError(what);
  };
  if (text.size() > kMaxYamlBytes) {
    return fail(0, "larger than 256 KiB");
  }
  if (!IsUtf8(text)) {
    return fail(0, "is not UTF-8 text");
  }
  try {
    const std::string copy(text);
    const std::vector<int> documents = FirstDocuments(copy);
    if (documents.size() > 1) {
      return fail(documents[1], "not one YAML document: a second one, or a stray ',', begins here");
    }
    return YAML::Load(copy);
  } catch (const YAML::Exception& e) {
    return fail(e.mark.is_null() ? 0 : e.mark.line + 1, "not valid YAML: " + AsUtf8(e.msg));
  } catch (const std::exception& e) {
    return fail(0, std::string("not valid YAML: ") + e.what());
  }
}

}  // namespace hearth::config
