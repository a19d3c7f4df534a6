// What is measured, not how long it takes.
#include "experiments/speed/speed.h"

#include <gmock/gmock.h>

#include "experiments/data/random_model.h"
#include "experiments/speed/peer.h"
#include "experiments/speed/scale.h"
#include "experiments/speed/throughput.h"
#include "experiments/speed/timed_batch.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;

constexpr std::size_t kPositions = 400;

class Speed : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    write_random_model(
        parse_random_model("layers=2,width=64,heads=4,kv=2,head=32,hidden=96,vocabulary=300,"
                           "positions=400,type=f16"),
        *dir_ / "model.gguf");
    model_ = new Model(*dir_ / "model.gguf");
  }
  static void TearDownTestSuite() {
    delete model_;
    delete dir_;
  }
  static std::vector<Policy> policies(std::initializer_list<const char*> texts) {
    std::vector<Policy> out;
    for (const char* text : texts) out.push_back(Policy::parse(text));
    return out;
  }
  static TempDir* dir_;
  static Model* model_;
};
TempDir* Speed::dir_ = nullptr;
Model* Speed::model_ = nullptr;

const Machine kMachine{.threads = 2,
                       .read_bandwidth = 1e9,
                       .f32_flops = 2e9,
                       .bf16_flops = 0,
                       .bf16_tiles_refused = ""};

TEST(MachineLimits, AreFound) {
  const Machine m = measure_machine();
  EXPECT_GE(m.threads, 1u);
  EXPECT_GT(m.read_bandwidth, 1e6);
  EXPECT_LT(m.read_bandwidth, 1e13);
  EXPECT_GT(m.f32_flops, 1e6);
  EXPECT_GE(m.flops(), m.f32_flops);
  EXPECT_GE(m.flops(), m.bf16_flops);
  EXPECT_GE(m.flops(), m.int16_flops);
}

TEST_F(Speed, CostsAreThoseOfTheSizes) {
  const ModelCost cost = cost_of(*model_);
  // Query and output 128 × 64, key and value 64 × 64, three of 96 × 64; two layers.
  const double matrices = 2.0 * (2 * 128 * 64 + 2 * 64 * 64 + 3 * 96 * 64);
  EXPECT_EQ(cost.layer_flops, 2 * matrices);
  EXPECT_EQ(cost.output_flops, 2.0 * 300 * 64);
  EXPECT_EQ(cost.key_flops, 2.0 * 2 * 4 * 32);
  EXPECT_EQ(cost.value_flops, 2.0 * 2 * 4 * 32);
  const double norms = 4.0 * 64 * 5;
  EXPECT_EQ(cost.weight_bytes, 2 * matrices + 2.0 * 300 * 64 + norms);
  EXPECT_EQ(cost.prompt_flops(3), 3 * cost.layer_flops + cost.output_flops + 6 * 2.0 * 2 * 4 * 64);
}

TEST_F(Speed, TilesHaveAFloorOfTheirOwn) {
  ModelCost cost{.layer_flops = 100, .output_flops = 7, .key_flops = 1, .value_flops = 1};
  cost.tile_flops = 80;
  cost.int8_flops = 320;
  Machine machine = kMachine;
  const auto floor = [&](StorageType keys, StorageType values) {
    return cost.prompt_floor(3, machine, keys, values);
  };
  constexpr auto kF32 = StorageType::f32, kBf16 = StorageType::bf16;
  EXPECT_DOUBLE_EQ(floor(kBf16, kBf16), (300.0 + 7 + 12) / 2e9);
  machine.int8_tile_flops = 32e9;
  EXPECT_DOUBLE_EQ(floor(kF32, kBf16), (60.0 + 7 + 12) / 2e9 + 960 / 32e9);
  machine.bf16_tile_flops = 16e9;
  EXPECT_DOUBLE_EQ(floor(kF32, kBf16), (60.0 + 7 + 6) / 2e9 + 960 / 32e9 + 6 / 16e9);
  EXPECT_DOUBLE_EQ(floor(StorageType::int8, StorageType::int8),
                   67.0 / 2e9 + (960 + 6 * 4 + 6 * 2) / 32e9);
  EXPECT_DOUBLE_EQ(floor(StorageType::q4, StorageType::int4), 73.0 / 2e9 + (960 + 6) / 32e9);
}

TEST_F(Speed, AttendedBytesAreThoseOfTheEntries) {
  CacheOptions options;
  options.key_type = StorageType::f16;
  options.value_type = StorageType::int8;
  options.expected_tokens = 100;
  TimedBatch batch(*model_, options);
  batch.read(40);
  EXPECT_EQ(attended_bytes(batch.cache()), 40.0 * 2 * 2 * (64 + 34));
}

TEST_F(Speed, MeasuresEveryMethodAtEveryLength) {
  SpeedOptions options;
  options.prompts = {20, 64};
  options.generate = 5;
  options.policies = policies({"exact", "streaming-llm:budget=16,sink=2"});
  std::vector<double> done;
  const std::vector<SpeedRow> rows =
      measure_speed(*model_, options, kMachine, [&](double d) { done.push_back(d); });
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.size(), 4u);
  EXPECT_NEAR(done.back(), 1.0, 1e-9);
  const ModelCost cost = cost_of(*model_);
  for (std::size_t i = 0; i < 4; ++i) {
    const SpeedRow& r = rows[i];
    EXPECT_EQ(r.method, options.policies[i / 2].to_string());
    EXPECT_EQ(r.prompt, options.prompts[i % 2]);
    EXPECT_EQ(r.generated, 5u);
    EXPECT_GT(r.prompt_seconds, 0);
    EXPECT_GE(r.compress_seconds, 0);
    EXPECT_GT(r.decode_seconds, 0);
    EXPECT_DOUBLE_EQ(r.prompt_floor, cost.prompt_flops(r.prompt) / 2e9);
    EXPECT_GE(r.decode_floor, 5 * cost.weight_bytes / 1e9);
    EXPECT_GE(r.exact_bytes, r.cache_bytes / 2);
  }
  EXPECT_EQ(rows[0].entries, 25u);
  EXPECT_EQ(rows[1].entries, 69u);
  EXPECT_LE(rows[3].entries, 16u + 5u);
  EXPECT_LT(rows[3].cache_bytes, rows[1].cache_bytes);
  EXPECT_LT(rows[3].decode_floor, rows[1].decode_floor);
}

TEST_F(Speed, SequencesOfABatchAreCopies) {
  CacheOptions options;
  options.policy = Policy::parse("balancekv:budget=32,sink=2,window=8");
  options.expected_tokens = 70;
  TimedBatch batch(*model_, options);
  batch.read(60);
  batch.finish_prompt();
  const std::size_t bytes = batch.cache().bytes().total();
  batch.copy_to(3);
  batch.generate(10);
  EXPECT_EQ(batch.size(), 3u);
  EXPECT_EQ(batch.cache().tokens(), 70u);
  EXPECT_EQ(batch.cache().bytes().total(), bytes);  // the room was there
}

TEST_F(Speed, ACopyHasRoomForWhatIsExpected) {
  CacheOptions options;
  options.expected_tokens = 70;
  TimedBatch batch(*model_, options);
  batch.read(60);
  Cache copy = batch.cache().clone();
  const std::size_t bytes = batch.cache().bytes().total();
  EXPECT_LT(copy.bytes().total(), bytes);
  copy.reserve(copy.options().expected_tokens);
  EXPECT_EQ(copy.bytes().total(), bytes);
  Engine engine(*model_);
  Sequence sequence(*model_, std::move(copy));
  std::vector<float> logits(300);
  for (Token token = 0; token < 10; ++token) engine.decode(sequence, token, logits);
  EXPECT_EQ(sequence.cache().bytes().total(), bytes);
}

TEST_F(Speed, RefusesWhatCannotBe) {
  SpeedOptions options;
  const auto measure = [&] { measure_speed(*model_, options, kMachine); };
  EXPECT_THAT(error_of(measure), HasSubstr("no method"));
  options.policies = policies({"exact"});
  options.prompts = {kPositions - 10};
  options.generate = 11;
  EXPECT_THAT(error_of(measure), HasSubstr("390 tokens and 11 generated"));
  options.generate = 0;
  EXPECT_THAT(error_of(measure), HasSubstr("0 tokens generated"));
  options.generate = 2;
  options.prompts = {0};
  EXPECT_THAT(error_of(measure), HasSubstr("0 tokens"));
}

TEST_F(Speed, ThroughputFitsIntoItsMemory) {
  ThroughputOptions options;
  options.prompts = {96, 160};
  options.generate = 8;
  options.policies = policies({"exact", "streaming-llm:budget=32,sink=2"});
  options.most_batch = 6;
  options.repeat = 2;
  const MemoryEstimate e = model_->estimate({}, 8);
  const std::size_t fixed = e.weights + e.scratch + 3 * 300 * sizeof(float);
  const std::size_t exact = (160 + 8) * 2 * 2 * 2 * 32 * sizeof(float);
  // Three sequences of 168 tokens, a little less than four.
  options.memory = {fixed + 4 * exact - 1, fixed};
  std::size_t runs = 0;
  double done = 0;
  const std::vector<ThroughputRow> rows = measure_throughput(*model_, options, [&](double part) {
    ++runs;
    EXPECT_GT(part, done);
    done = part;
  });
  EXPECT_EQ(runs, 16u);  // each of eight rows twice
  EXPECT_EQ(done, 1.0);
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0].memory, options.memory[0]);
  EXPECT_EQ(rows[0].prompt, 96u);
  EXPECT_EQ(rows[2].prompt, 160u);
  EXPECT_EQ(rows[2].method, "exact");
  EXPECT_EQ(rows[2].sequence_bytes, exact);
  EXPECT_EQ(rows[2].batch, 3u);
  EXPECT_EQ(rows[3].batch, 6u);  // as many as were allowed
  EXPECT_LT(rows[3].sequence_bytes, exact / 3);
  EXPECT_EQ(rows[3].reading_bytes, exact);
  EXPECT_FALSE(rows[2].capped || rows[2].extrapolated());
  EXPECT_TRUE(rows[3].capped);
  EXPECT_NEAR(rows[3].rate(), 6 * 8 / (rows[3].prompt_seconds + rows[3].decode_seconds), 1e-6);
  for (const ThroughputRow& row : std::span(rows).subspan(4)) {
    EXPECT_EQ(row.memory, fixed);
    EXPECT_EQ(row.batch, 0u);
    EXPECT_EQ(row.rate(), 0.0);
  }
}

TEST_F(Speed, ThroughputReadsEveryPromptUnlessToldOtherwise) {
  ThroughputOptions options;
  options.prompts = {160};
  options.generate = 1;
  options.policies = policies({"exact"});
  options.most_batch = 8;
  options.memory = {std::size_t{64} << 20};
  const ThroughputRow all = measure_throughput(*model_, options)[0];
  EXPECT_FALSE(all.extrapolated());
  EXPECT_EQ(all.batch, 8u);
  EXPECT_EQ(all.prompts_read, 8u);
  options.read_once = true;
  const ThroughputRow once = measure_throughput(*model_, options)[0];
  EXPECT_TRUE(once.extrapolated());
  EXPECT_EQ(once.prompts_read, 1u);
  options.most_batch = 1;
  EXPECT_FALSE(measure_throughput(*model_, options)[0].extrapolated());
}

TEST_F(Speed, BatchesReadTextsOfTheirOwn) {
  TimedBatch batch(*model_, {});
  batch.read(40);
  batch.finish_prompt();
  EXPECT_GT(batch.add_read(40), 0);
  EXPECT_EQ(batch.size(), 2u);
  EXPECT_NE(made_up_tokens(40, 300, 0), made_up_tokens(40, 300, 1));
  EXPECT_GT(batch.generate(3), 0);
}

TEST_F(Speed, ScaleDoublesItsLengths) {
  ScaleOptions options;
  options.from = 32;
  options.to = 256;
  options.generate = 4;
  options.policies = policies({"exact", "h2o:budget=24,sink=2"});
  const std::vector<ScaleRow> rows = measure_scale(*model_, options);
  ASSERT_EQ(rows.size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(rows[i].tokens, 32u << i % 4);
    EXPECT_GT(rows[i].prompt_rate, 0);
    EXPECT_GT(rows[i].token_seconds, 0);
    EXPECT_TRUE(i < 4 ? rows[i].entries == rows[i].tokens : rows[i].entries <= 24u) << i;
    EXPECT_TRUE(i < 4 || rows[i].cache_bytes == rows[4].cache_bytes) << i;
  }
  options.seconds = 1e-9;
  EXPECT_EQ(measure_scale(*model_, options).size(), 2u);
  options.generate = 16;
  EXPECT_THAT(error_of([&] { measure_scale(*model_, options); }), HasSubstr("twice"));
}

TEST(Peers, AreRunAndUnderstood) {
  const TempDir dir;
  write_text(dir / "peer", R"(echo "$@" >&2
    echo '{"name": "other 1.0", "results": [{"prompt": 8, "generated": 4,
           "prompt_seconds": 0.5, "decode_seconds": 2}]}'
    [ "$*" = "--model it's --prompt 8,16 --generate 4 --threads 2" ])");
  const std::string command = "sh " + (dir / "peer").string() + " 2>/dev/null";
  const Peer peer =
      run_peer("set --; peer() { " + command + " \"$@\"; }; peer", "it's", {8, 16}, 4, 2);
  EXPECT_EQ(peer.name, "other 1.0");
  ASSERT_NE(peer.find(8), nullptr);
  EXPECT_EQ(peer.find(8)->token_seconds(), 0.5);
  EXPECT_EQ(peer.find(16), nullptr);
}

TEST(Peers, TheLeastTimesOfSeveralRunsCount) {
  Peer peer{"other", {{8, 4, 3, 5}, {16, 4, 7, 9}, {32, 4, 1, 1}}};
  peer.keep_least({"other", {{16, 4, 8, 2}, {8, 4, 2, 6}, {64, 4, 1, 1}}});
  ASSERT_EQ(peer.rows.size(), 3u);
  EXPECT_EQ(peer.find(8)->prompt_seconds, 2);
  EXPECT_EQ(peer.find(8)->decode_seconds, 5);
  EXPECT_EQ(peer.find(16)->prompt_seconds, 7);
  EXPECT_EQ(peer.find(16)->decode_seconds, 2);
  EXPECT_EQ(peer.find(32)->prompt_seconds, 1);

  std::vector<SpeedRow> rows(2), more(2);
  rows[0].prompt_seconds = rows[1].compress_seconds = rows[1].decode_seconds = 3;
  more[0].prompt_seconds = more[1].compress_seconds = 2;
  more[1].decode_seconds = 4;
  keep_least(rows, more);
  EXPECT_EQ(rows[0].prompt_seconds, 2);
  EXPECT_EQ(rows[1].compress_seconds, 2);
  EXPECT_EQ(rows[1].decode_seconds, 3);
}

TEST(Peers, ThatFailAreErrors) {
  const auto complaint = [](const std::string& command) {
    return error_of([&] { run_peer(command, "m", {8}, 4, 2); });
  };
  EXPECT_THAT(complaint("false"), HasSubstr("'false' failed"));
  EXPECT_THAT(complaint("true"), HasSubstr("no results"));
  EXPECT_THAT(complaint("echo '{\"name\": 3}' #"), HasSubstr("no results"));
  EXPECT_THAT(complaint("echo '{\"name\": \"x\", \"results\": [{\"prompt\": 8, \"generated\": 4, "
                        "\"prompt_seconds\": 0, \"decode_seconds\": 2}]}' #"),
              HasSubstr("prompt_seconds is 0"));
}

}  // namespace
}  // namespace ballast
