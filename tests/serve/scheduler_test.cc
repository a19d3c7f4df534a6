// Who is let in when, and who makes room.
#include "serve/scheduling/scheduler.h"

#include <gmock/gmock.h>
#include <malloc.h>

#include <atomic>

#include "serve/client.h"

namespace {
std::atomic<std::size_t> refused_size = 0;  ///< of the next allocation of a matrix that fails
}

// In place of the C library's, for this program.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) {
  std::size_t refused = size;
  if (size > 0 && refused_size.compare_exchange_strong(refused, 0)) return nullptr;
  return ::memalign(alignment, size);
}

namespace ballast::test {
namespace {

using testing::HasSubstr;

Json ask(const std::string& prompt, int most = 8) {
  return {{"prompt", prompt}, {"temperature", 0}, {"max_tokens", most}, {"ignore_eos", true}};
}
/// A stream that only ends when its client leaves.
std::unique_ptr<Raw> endless(const TestServer& server, const std::string& key) {
  Json body = ask("The sky is", 100000);
  body["stream"] = true;
  auto raw = std::make_unique<Raw>(server.port());
  const std::string text = body.dump();
  raw->write(fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {}\r\nContent-Length: {}"
      "\r\n\r\n{}",
      key, text.size(), text));
  EXPECT_THAT(raw->read("data: "), HasSubstr("data: "));
  return raw;
}
void wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(condition());
}

TEST(Scheduler, ClientsTakeTurns) {
  serve::ServerOptions options;
  options.slots = 1;
  options.keys = {"a", "b"};
  const TestServer server(options);
  auto queued = [&] {
    const std::string all = server.get("/metrics", {{"X-Api-Key", "b"}}).body;
    return std::stoi(all.substr(all.find("\nballast_requests_queued ") + 25));
  };
  auto first = endless(server, "a");
  std::mutex mutex;
  std::vector<std::string> order;
  std::vector<std::thread> threads;
  const std::vector<std::string> keys = {"a", "a", "a", "b"};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(server.post("/v1/completions", ask("The sky is"), {{"X-Api-Key", keys[i]}}).status,
                200);
      const std::scoped_lock lock(mutex);
      order.push_back(keys[i]);
    });
    if (keys[i] == "a") wait_for([&] { return queued() == static_cast<int>(i) + 1; });
  }
  wait_for([&] {
    const std::scoped_lock lock(mutex);
    return queued() == 4 || !order.empty();
  });
  first.reset();
  for (std::thread& thread : threads) thread.join();
  // b came last and is served next, as a had the turn before.
  EXPECT_TRUE(order[0] == "b" || order[1] == "b") << testing::PrintToString(order);
}

TEST(Scheduler, OneClientDoesNotFillTheQueue) {
  serve::ServerOptions options;
  options.slots = 1;
  options.queue = 2;
  options.keys = {"a", "b"};
  const TestServer server(options);
  const auto first = endless(server, "a");
  std::vector<std::unique_ptr<Raw>> all;
  const std::string body = ask("Grass is", 100000).dump();
  for (int i = 0; i < 3; ++i) {
    all.push_back(std::make_unique<Raw>(server.port()));
    all.back()->write(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: "
                    "a\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body));
  }
  EXPECT_EQ(server.post("/v1/completions", ask("The sky is"), {{"X-Api-Key", "b"}}).status, 200);
}

TEST(Scheduler, EndlessStreamsOfOneClientLeaveSlotsToOthers) {
  serve::ServerOptions options;
  options.slots = 2;
  options.keys = {"a", "b", "c"};
  const TestServer server(options);
  const auto first = endless(server, "a"), second = endless(server, "a");
  for (const char* key : {"b", "c", "b"}) {
    EXPECT_EQ(server.post("/v1/completions", ask("The sky is", 50), {{"X-Api-Key", key}}).status,
              200);
  }
  // So do streams that are as endless: each begins, though there are more than slots.
  const auto third = endless(server, "b"), fourth = endless(server, "c");
  EXPECT_EQ(server.post("/v1/completions", ask("Grass is", 50), {{"X-Api-Key", "b"}}).status, 200);
}

TEST(Scheduler, LaterPromptsOfARequestWaitForTheFirst) {
  serve::ServerOptions options;
  options.slots = 2;
  const TestServer server(options);
  Json body = ask("", 10000000);
  body["prompt"] = {"The sky is", "Grass is"};
  body["stream"] = true;
  body["cache"] = {
      {"method", "streaming-llm:budget=64"}, {"protocol", "stream"}, {"positions", "rolling"}};
  const Raw raw(server.port());
  raw.write(post_text("/v1/completions", body.dump()));
  std::atomic<bool> over = false;
  std::thread reader([&] {
    while (!over) raw.read("data: ");
  });
  wait_for([&] { return server.metric("streams") == 2; });
  wait_for([&] { return server.metric("streams") == 1; });
  over = true;
  reader.join();
}

/// A server whose memory holds one and a half of these requests.
struct Tight {
  explicit Tight(int most) {
    CacheOptions cache;
    cache.key_type = cache.value_type = StorageType::bf16;
    const Model& model = TestServer::mini();
    serve::ServerOptions options;
    options.memory = serve::Scheduler::own_memory(model, options.slots) +
                     model.estimate(cache, 10, static_cast<std::size_t>(most)).cache * 3 / 2;
    server.emplace(options);
  }
  std::optional<TestServer> server;
};

TEST(Scheduler, ARequestWaitsForMemory) {
  const int positions = static_cast<int>(TestServer::mini().config().max_positions);
  const Tight tight(positions);
  const TestServer& server = *tight.server;
  auto first = endless(server, "");  // up to all positions
  int status = 0;
  Json body = ask("Grass is", positions * 3 / 4);
  body["stop"] = {" ", "e", "\n"};  // memory is taken for all those tokens; a few will do
  std::thread second([&] { status = server.post("/v1/completions", body).status; });
  wait_for([&] { return server.metric("requests_queued") == 1; });
  EXPECT_EQ(server.metric("streams"), 1);  // of 16 places
  EXPECT_LE(server.metric("memory_taken_bytes"), server.metric("memory_limit_bytes"));
  first.reset();
  second.join();
  EXPECT_EQ(status, 200);
}

TEST(Scheduler, KeptBeginningsMakeRoom) {
  const Tight tight(1000);
  const TestServer& server = *tight.server;
  EXPECT_EQ(server.post("/v1/completions", ask("The sky is", 1000)).status, 200);
  wait_for([&] { return server.metric("prefixes") == 1; });  // kept once the answer is sent
  EXPECT_EQ(server.post("/v1/completions", ask("Grass is", 1000)).status, 200);
  wait_for([&] { return server.metric("prefixes") == 1; });
  const Reply never = server.post("/v1/completions", ask("Water is", 4000));
  EXPECT_EQ(never.status, 400);
  EXPECT_EQ(never.code(), "insufficient_memory");
}

TEST(Scheduler, MemoryThatEndsInAStepEndsItsAnswersAlone) {
  const TestServer server;
  auto stream = endless(server, ""), other = endless(server, "");
  const std::size_t logits = 2 * TestServer::mini().config().vocabulary * sizeof(float);
  refused_size = (logits + kAlignment - 1) / kAlignment * kAlignment;  // those of two answers
  EXPECT_THAT(stream->read("insufficient_memory"), HasSubstr("insufficient_memory"));
  EXPECT_EQ(refused_size, 0);
  EXPECT_EQ(server.post("/v1/completions", ask("Grass is")).status, 200);
}

TEST(Scheduler, StepsThatWouldTakeTooLongAreRefusedBeforeTheyAreShared) {
  const TestServer server;
  auto other = endless(server, "");
  Json body = ask("The sky is", 800);
  body["cache"] = {{"method", "attention-matching:budget=400,step=1"}, {"protocol", "stream"}};
  const Reply reply = server.post("/v1/completions", body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.code(), "invalid_value");
  EXPECT_THAT(reply.body, HasSubstr("every 1 tokens is too slow; give step=32 or more"));
  const double steps = server.metric("decode_steps_total");
  wait_for([&] { return server.metric("decode_steps_total") > steps; });  // the other goes on
}

TEST(Scheduler, SecondReadingsOfAStreamYieldBetweenLayers) {
  serve::ServerOptions options;
  options.patience = 0;  // a turn ends with each layer
  const TestServer server(options);
  std::string text;
  for (int i = 0; i < 30; ++i) text += fmt::format("record {}: number {}.\n", i, i * 7919 % 9973);
  Json body = ask(text, 100);
  body["cache"] = {{"bytes", "64K"}, {"method", "replay:chunk=32"}, {"protocol", "stream"}};
  const Reply alone = TestServer().post("/v1/completions", body);
  ASSERT_EQ(alone.status, 200) << alone.body;
  const std::size_t prompt = alone.json()["usage"]["prompt_tokens"];
  ASSERT_GT(prompt, 200u);

  auto other = endless(server, "");
  const double steps = server.metric("decode_steps_total");
  const double pauses = server.metric("replay_pauses_total");
  const Reply reply = server.post("/v1/completions", body);
  // Full chunks of the prompt are read again, its rest, and full chunks of the answer. Each layer
  // is prepared and then read.
  const std::size_t readings = prompt / 32 + 1 + 99 / 32;
  ASSERT_NE(prompt % 32, 0u);
  const double paused = server.metric("replay_pauses_total") - pauses;
  EXPECT_EQ(paused, static_cast<double>(readings * 2 * TestServer::mini().config().layers));
  EXPECT_GE(server.metric("decode_steps_total") - steps, paused);  // of the other stream
  EXPECT_EQ(reply.json()["choices"], alone.json()["choices"]);

  // Choices have sequences of their own, which are read again one after the other.
  body["n"] = 2;
  const Json choices = server.post("/v1/completions", body).json()["choices"];
  ASSERT_EQ(choices.size(), 2u);
  for (const Json& choice : choices) {
    EXPECT_EQ(choice["text"], alone.json()["choices"][0]["text"]);
  }
}

}  // namespace
}  // namespace ballast::test
