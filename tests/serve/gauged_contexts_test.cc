// Contexts say what their caches cost.
#include <gmock/gmock.h>

#include "serve/asking.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

using testing::StartsWith;

TEST(ServeGaugedContexts, SayWhatTheirCacheCosts) {
  const TempDir dir;
  serve::ServerOptions options;
  options.cache_dir = dir / "kept";
  Json small, tiny;
  {
    const TestServer server(options);
    const auto read = [&](const Json& cache) {
      const Json made =
          server.post("/v1/contexts", {{"text", document(40)}, {"cache", cache}}).json();
      EXPECT_EQ(server.get("/v1/contexts/" + made["id"].get<std::string>()).json(), made);
      return made;
    };
    small = read({{"bytes", 0.5}});
    tiny = read({{"bytes", "1/32"}});
    EXPECT_LT(small["gauge"]["kl"], tiny["gauge"]["kl"]);
    EXPECT_GT(small["gauge"]["tokens"], 20);
    EXPECT_THAT(tiny["gauge"]["text"].get<std::string>(), StartsWith("much is lost: KL "));
    EXPECT_TRUE(read({{"method", "exact"}})["gauge"].is_null());
    Json asked = chat("What is the number of record 7?");
    asked["context"] = tiny["id"];
    EXPECT_EQ(server.post("/v1/chat/completions", asked).json()["usage"]["cache_kl"],
              tiny["gauge"]["kl"]);
  }
  const TestServer server(options);
  EXPECT_EQ(server.get("/v1/contexts/" + tiny["id"].get<std::string>()).json()["gauge"],
            tiny["gauge"]);
}

}  // namespace
}  // namespace ballast::test
