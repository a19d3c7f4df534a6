// Renders the templates of differential.json, whose expected texts are Jinja2's
// own (differential.py). A text of null means that both refuse the template.
#include "ballast/error.h"
#include "formats/json.h"
#include "paths.h"
#include "temp_dir.h"
#include "text/jinja/interpreter.h"

namespace ballast::jinja {
namespace {

TEST(JinjaDifferential, TemplatesRenderAsJinja2RendersThem) {
  const Json data =
      Json::parse(read_text(BALLAST_SOURCE_DIR "/tests/text/jinja/differential.json"));
  ASSERT_GE(data["cases"].size(), 150u);
  for (const Json& each : data["cases"]) {
    const std::string source = each["template"], name = each["context"];
    Json text;
    std::string error;
    try {
      text = render(parse(source), *from_json(data["contexts"][name]).dict(), Budget{10'000'000});
    } catch (const Error& e) {
      error = e.what();
    }
    EXPECT_EQ(text, each["expected"]) << source << '\n' << error;
  }
}

}  // namespace
}  // namespace ballast::jinja
