#include "evidence/verify_testing.h"

#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {

std::filesystem::path Demo() {
  return std::filesystem::path(SIGNET_SOURCE_DIR) / "models/demo";
}

std::filesystem::path Tiny(const std::string& name) {
  const std::filesystem::path folder = TemporaryFolder() / ("verify_" + name);
  if (!std::filesystem::exists(folder)) {
    ValueOrDie(WriteTinyCheckpoint(name, folder));
  }
  return folder;
}

evidence::VerifyRequest RequestFor(const std::filesystem::path& model,
                                   const std::vector<std::string>& meshes,
                                   int64_t positions) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 21; ++i) {
    prompt.push_back(static_cast<int32_t>((i * 2654435761u >> 8) % 250));
  }
  evidence::VerifyRequest request{
      .model = model.string(),
      .paths = {},
      .options = {.context = 256, .page_tokens = 8, .prefill_chunks = {8, 16}},
      .sides = {},
      .prompt = prompt,
      .positions = positions,
      .threads = 2,
      .fault = {}};
  for (const std::string& mesh : meshes) {
    request.sides.push_back({.mesh = mesh, .devices = {}});
  }
  return request;
}

}  // namespace signet::testing
