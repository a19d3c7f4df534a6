// A library of documents through the C ABI.
#include <nlohmann/json.hpp>
#include <string>

#include "ballast.h"
#include "paths.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

TEST(CLibrary, AddsAsksAndRemoves) {
  const TempDir dir;
  ballast_model* model = nullptr;
  ballast_library* library = nullptr;
  ASSERT_EQ(ballast_model_load(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf", &model), BALLAST_OK);
  const std::string folder = (dir / "library").string();
  ASSERT_EQ(ballast_library_open(model, folder.c_str(), &library), BALLAST_OK);
  const char* paths[] = {BALLAST_SOURCE_DIR "/examples/record.txt"};
  ASSERT_EQ(ballast_library_add(library, paths, 1), BALLAST_OK) << ballast_last_error();
  const char* json = nullptr;
  ASSERT_EQ(ballast_library_documents(library, &json), BALLAST_OK);
  EXPECT_EQ(nlohmann::json::parse(json).at(0).at("name"), "record.txt");

  std::string text;
  ASSERT_EQ(ballast_library_ask(
                library, "What is the register content of line gaudy-dove?", nullptr,
                [](const char* piece, std::size_t length, void* out) {
                  static_cast<std::string*>(out)->append(piece, length);
                  return true;
                },
                &text, &json),
            BALLAST_OK)
      << ballast_last_error();
  const auto answer = nlohmann::json::parse(json);
  EXPECT_EQ(answer.at("supported"), true);
  EXPECT_EQ(answer.at("answer"), text);
  EXPECT_NE(text.find("37211"), std::string::npos) << text;
  EXPECT_EQ(answer.at("citations").at(0).at("document"), "record.txt");

  EXPECT_NE(ballast_library_remove(library, "other.txt"), BALLAST_OK);
  EXPECT_NE(ballast_library_ask(nullptr, "", nullptr, nullptr, nullptr, &json), BALLAST_OK);
  EXPECT_EQ(ballast_library_remove(library, "record.txt"), BALLAST_OK);
  ballast_library_free(library);
  ballast_model_free(model);
}

}  // namespace
}  // namespace ballast
