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

TEST(ServeGaugedContexts, TakeTheSmallestCacheThatCostsLittle) {
  const TestServer server;
  const Json automatic = {{"bytes", "auto"}};
  const Json made =
      server.post("/v1/contexts", {{"text", document(60)}, {"cache", automatic}}).json();
  if (made["gauge"].is_null()) {
    EXPECT_THAT(made["cache"].get<std::string>(), StartsWith("exact"));
  } else {
    EXPECT_LE(made["gauge"]["kl"], 0.01);
    EXPECT_LT(made["cache_bytes"], made["exact_bytes"]);
  }
  EXPECT_EQ(server
                .post("/v1/contexts",
                      {{"text", "A"}, {"cache", {{"bytes", "auto"}, {"method", "replay"}}}})
                .status,
            400);
  EXPECT_EQ(server
                .post("/v1/contexts",
                      {{"text", "A"}, {"cache", {{"bytes", "auto"}, {"protocol", "stream"}}}})
                .status,
            400);
}

// The first turn's cache is chosen; later turns go on from it and say the same.
TEST(ServeGaugedContexts, SessionsKeepWhatWasChosenForTheirFirstTurn) {
  const TestServer server;
  const Json session = server.post("/v1/sessions", {{"cache", {{"bytes", "auto"}}}}).json();
  Json body = chat(document(60));
  body["session"] = session["id"];
  const Reply first = server.post("/v1/chat/completions", body);
  ASSERT_EQ(first.status, 200) << first.body;
  body["messages"].push_back({{"role", "assistant"}, {"content", text_of(first)}});
  body["messages"].push_back({{"role", "user"}, {"content", "And record 7?"}});
  const Json usage = server.post("/v1/chat/completions", body).json()["usage"];
  EXPECT_GT(usage["cached_tokens"], 100);
  const Json before = first.json()["usage"];
  EXPECT_EQ(usage.contains("cache_kl"), before.contains("cache_kl"));
  if (usage.contains("cache_kl")) {
    EXPECT_EQ(usage["cache_kl"], before["cache_kl"]);
    EXPECT_LE(usage["cache_kl"], 0.01);
  }
}

}  // namespace
}  // namespace ballast::test
