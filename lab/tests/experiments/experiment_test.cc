// A whole experiment, the example of lab/README.md, and what calls it.
#include "experiments/experiment.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "experiments/attention/kv_parameters.h"
#include "experiments/attention/norms.h"
#include "experiments/variants.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;

struct LongestKeys {
  KvParameters source;
  void describe(Parameters& p) { source.describe(p); }
};

Result measure(LongestKeys given, Work& work) {
  const auto source = given.source.open(work.label());
  const auto layers = given.source.selected_layers(*source);
  const auto heads = given.source.selected_kv_heads(*source);
  Result out;
  out.experiment = "longest-keys";
  out.title = "Longest keys, " + describe(*source, layers.size(), heads.size());
  out.columns = {{"layer", "layer"}, {"norm", "norm", Unit::number}};
  ResultLog& log =
      work.log({{"experiment", out.experiment}, {"source", given.source.identity(*source)}});
  for (std::size_t l = 0; l < layers.size(); ++l) {
    out.rows.push_back(log.find_or_make(fmt::format("layer {}", layers[l]), [&] {
      return Json{{"layer", source->layer_number(layers[l])},
                  {"norm", measure_norms(*source, layers[l], heads).key.largest}};
    }));
    work.part(l, layers.size())(1);
  }
  return out;
}

Experiment longest_keys_experiment() {
  return experiment("longest-keys", "The longest key of each layer", "",
                    "  ballast eval longest-keys qkv.safetensors", &measure);
}

const Json kStream = {{"synth", true}, {"tokens", 64}, {"layers", 3}, {"dim", 8}};

TEST(Experiment, IsAFunctionOfItsParameters) {
  Experiment::Call call = longest_keys_experiment().call();
  Json values = kStream;
  values["select_layers"] = "0,2";
  std::vector<double> seen;
  Work work("eval longest-keys",
            {.command = "ballast …", .advance = [&](double done) { seen.push_back(done); }});
  const Result result = run_experiment(call, values, work);
  ASSERT_EQ(result.rows.size(), 2u);
  EXPECT_EQ(result.rows[1].at("layer"), 2);
  EXPECT_GT(result.rows[1].at("norm"), 1.0);
  EXPECT_EQ(result.rows[1].at("command"), "ballast …");
  EXPECT_EQ(seen, (std::vector<double>{0.5, 1}));
  // Parameters of another call have their defaults again.
  EXPECT_EQ(longest_keys_experiment().call().parameters.all()[0].given, false);
}

TEST(Experiment, GoesOnFromItsFindings) {
  const TempDir dir;
  const auto log = dir / "r.json.progress";
  for (const bool again : {false, true}) {
    std::vector<std::string> notes;
    Work work("eval longest-keys", {.log = log, .quiet = true, .note = [&](std::string_view note) {
                                      notes.emplace_back(note);
                                    }});
    Experiment::Call call = longest_keys_experiment().call();
    EXPECT_EQ(run_experiment(call, kStream, work).rows.size(), 3u);
    EXPECT_EQ(notes.size(), again ? 1u : 0u);
    if (again) work.finish();
    EXPECT_EQ(std::filesystem::exists(log), !again);
  }
}

struct Everything {
  bool flag = false;
  std::size_t count = 3;
  double share = 0.5;
  std::string text, model;
  std::vector<std::size_t> counts = {1, 2};
  std::vector<std::string> files, caches;
  VariantParameters variants;

  Parameters parameters() {
    Parameters p;
    p.add_model(model);
    p.add("FILE", files, "Files");
    p.add("--flag", flag, "A flag");
    p.add("-c,--count", count, "A number", {.least = 1, .most = 9});
    p.add("--share,--part", share, "A part");
    p.add("--text", text, "A text", {.needed = true});
    p.add("--counts", counts, "Numbers");
    p.add("--caches", caches, "Sizes", {.separated = true});
    return p;
  }
};

TEST(Parameters, TakeEachKindOfValue) {
  Everything e;
  Parameters p = e.parameters();
  p.set({{"flag", true},
         {"count", 4},
         {"part", 0.25},
         {"text", 7},
         {"counts", "5,6"},
         {"files", {"a", "b"}},
         {"caches", {"1/4", "256M"}},
         {"model", nullptr}});
  p.check();
  EXPECT_TRUE(e.flag);
  EXPECT_EQ(e.count, 4u);
  EXPECT_EQ(e.share, 0.25);
  EXPECT_EQ(e.text, "7");
  EXPECT_EQ(e.counts, (std::vector<std::size_t>{5, 6}));
  EXPECT_EQ(e.files, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(e.caches, (std::vector<std::string>{"1/4", "256M"}));
}

TEST(Parameters, NameWhatIsWrong) {
  const auto error = [](const Json& values) {
    Everything e;
    Parameters p = e.parameters();
    return error_of([&] {
      p.set(values);
      p.check();
    });
  };
  EXPECT_EQ(error({{"cuont", 4}}), "unknown option --cuont; did you mean --count?");
  EXPECT_EQ(error({{"count", 10}}), "--count: 10 is not a whole number from 1 to 9");
  EXPECT_EQ(error({{"count", -1}}), "--count: -1 is not a whole number from 1 to 9");
  EXPECT_EQ(error({{"counts", {1, 2.5}}}), "--counts: 2.5 is not a whole number from 0");
  EXPECT_EQ(error({{"counts", Json::array()}}), "--counts: expected at least one value");
  EXPECT_EQ(error({{"count", {1, 2}}}), "--count: expected one value");
  EXPECT_EQ(error({{"share", "half"}}), "--share: 'half' is not a number");
  EXPECT_EQ(error({{"flag", 1}}), "--flag: expected True or False, not 1");
  EXPECT_EQ(error({{"count", 4}}), "--text is required");
}

TEST(Parameters, SayTheCommandOfACall) {
  Everything e;
  const Parameters p = e.parameters();
  EXPECT_EQ(command_of("all", p,
                       {{"files", {"a b", "c"}},
                        {"model", "m.gguf"},
                        {"flag", true},
                        {"question_later", false},
                        {"counts", {1, 2}},
                        {"text", "it's"}}),
            "ballast eval all 'a b' c -m m.gguf --flag --counts 1,2 --text 'it'\\''s'");
}

TEST(Parameters, SplitMethods) {
  const auto split = [](std::vector<std::string> texts) { return split_methods(texts); };
  EXPECT_EQ(split({"exact,balancekv:rate=0.25,block=128;h2o", "uniform"}),
            (std::vector<std::string>{"exact", "balancekv:rate=0.25,block=128", "h2o", "uniform"}));
}

}  // namespace
}  // namespace ballast
