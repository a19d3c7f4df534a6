#include "experiments/papers/paper_rows.h"

#include <cmath>
#include <numbers>

namespace ballast {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

PaperClaim less(std::string text, std::string metric, std::string better, std::string worse,
                double paper_better, double paper_worse, std::string by = "method") {
  return {std::move(text),   std::move(metric), true,         std::move(by),
          std::move(better), std::move(worse),  paper_better, paper_worse};
}

PaperClaim more(std::string text, std::string metric, std::string better, std::string worse,
                double paper_better, double paper_worse, std::string by = "method") {
  return {std::move(text),   std::move(metric), false,        std::move(by),
          std::move(better), std::move(worse),  paper_better, paper_worse};
}

/// Times of a machine that does other things, too, are level within a tenth.
PaperClaim timed(PaperClaim claim) {
  claim.tolerance = 0.1;
  return claim;
}

/// `metric` of every row that `by` names `which` is above `bound`.
PaperClaim above(std::string text, std::string metric, std::string which, double bound,
                 std::string by) {
  PaperClaim out;
  out.text = std::move(text);
  out.metric = std::move(metric);
  out.by = std::move(by);
  out.better = std::move(which);
  out.bound = bound;
  out.least_first = out.metric == "error";
  return out;
}

PaperClaim below(std::string text, std::string metric, std::string which, double bound,
                 std::string by) {
  PaperClaim out =
      above(std::move(text), std::move(metric), std::move(which), bound, std::move(by));
  out.lower = true;
  return out;
}

/// The two are level.
PaperClaim level(std::string text, std::string metric, std::string one, std::string other,
                 double paper_one, double paper_other, std::string by = "method") {
  return {std::move(text),  std::move(metric), false,       std::move(by), std::move(one),
          std::move(other), paper_one,         paper_other, kNone,         true};
}

// LongBench's English tasks and code, as BalanceKV's Table 1 has them.
std::vector<std::string> longbench(bool e) {
  std::vector<std::string> out;
  for (const char* task :
       {"qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "gov_report", "multi_news", "trec",
        "triviaqa", "samsum", "passage_count", "passage_retrieval_en", "lcc", "repobench-p"}) {
    out.push_back(std::string("longbench/") + task + (e ? "_e.jsonl" : ".jsonl"));
    if (e) out.push_back(std::string("longbench/") + task + ".jsonl");
  }
  return out;
}

std::vector<PaperRow> balancekv() {
  return {
      {"theorem-3.1",
       "Theorem 3.1",
       "memory",
       {{"methods", "balancekv;uniform"},
        {"lengths", "4096,16384"},
        {"dim", "8"},
        {"query-norm", "4"},
        {"key-norm", "4"}},
       {},
       {less("the error of BalanceKV falls faster with memory (slope)", "slope", "balancekv",
             "uniform", -1, -0.5)}},
      {"algorithm-1",
       "Theorem 3.1, Algorithm 1 itself",
       "memory",
       {{"methods", "balancekv:mode=theory;uniform"},
        {"lengths", "4096,16384"},
        {"dim", "4"},
        {"query-norm", "0.7"},
        {"key-norm", "0.7"}},
       {},
       {less("keys and queries of length 0.7, 4 dimensions: the error falls faster (slope)",
             "slope", "balancekv:mode=theory", "uniform", -1, -0.5),
        less("and is smaller at 2,048 entries", "error_at_2048", "balancekv:mode=theory", "uniform",
             kNone, kNone)}},
      {"algorithm-1-norms",
       "Algorithm 1 at real norms",
       "memory",
       {{"methods", "balancekv:mode=theory;uniform"}, {"lengths", "4096,16384"}},
       {},
       {less("keys and queries of length 15, 128 dimensions: the error falls faster (slope)",
             "slope", "balancekv:mode=theory", "uniform", -1, -0.5),
        less("and is smaller at 2,048 entries", "error_at_2048", "balancekv:mode=theory", "uniform",
             kNone, kNone)}},
      {"theorem-3.2",
       "Theorem 3.2",
       "attention",
       {{"files", "{index}"},
        {"methods", "balancekv;balancekv-stream;clustergen;kcenter;h2o;snapkv;uniform"},
        {"rates", "0.5,0.25,0.125,0.0625"}},
       {},
       {above("no method is small and right: every error above 1/2", "error", "*", 0.5, "method")}},
      {"figure-1",
       "Figure 1",
       "attention",
       {{"files", "{prompts}"},
        {"methods", "balancekv;uniform;h2o;streaming-llm"},
        {"seeds", "3"},
        {"rates", "0.5,0.25,0.125,0.0625"}},
       {},
       {less("BalanceKV's error below uniform's", "error", "balancekv", "uniform", kNone, kNone)}},
      {"figure-3",
       "Figure 3",
       "ablation",
       {{"files", "{prompts}"}, {"seeds", "3"}},
       {},
       {less("error: blocks of 256 below 64 (layer 15 at 1/2)", "error", "256", "64", 0.1107,
             0.1141, "block"),
        timed(less("time: blocks of 64 below 256 (layer 15 at 1/2, s)", "compress_seconds", "64",
                   "256", 0.3592, 0.3920, "block"))}},
      {"table-3",
       "Table 3",
       "norms",
       {{"files", "{prompts}"}},
       {},
       {less("values shorter than keys", "", "value", "key_shifted", 3.34, 15.3, ""),
        less("queries shorter than keys", "", "query", "key_shifted", 14.5, 15.3, "")}},
      {"figure-4",
       "Figure 4",
       "needle",
       {{"model", "{model}"},
        {"lengths", "{lengths}"},
        {"depth-count", "5"},
        {"repeat", "3"},
        {"methods",
         "exact;balancekv:outliers=yes;balancekv;uniform;snapkv;pyramidkv;streaming-llm;h2o;"
         "kcenter"},
        {"cache", "0.25"}},
       {},
       {more("BalanceKV above uniform", "score", "balancekv:outliers=yes", "uniform", 0.99, 0.90),
        more("BalanceKV above PyramidKV", "score", "balancekv:outliers=yes", "pyramidkv", 0.99,
             0.90),
        more("BalanceKV above SnapKV", "score", "balancekv:outliers=yes", "snapkv", 0.99, 0.83),
        more("BalanceKV above StreamingLLM", "score", "balancekv:outliers=yes", "streaming-llm",
             0.99, 0.31)}},
      {"table-1",
       "Tables 1 and 6",
       "longbench",
       {{"model", "{model}"},
        {"data", "{files}"},
        {"longest", "{longest}"},
        {"rates", "0.25"},
        {"methods", "exact;balancekv;uniform;snapkv;pyramidkv;streaming-llm;clustergen"}},
       longbench(true),
       {more("BalanceKV above StreamingLLM (mean, Llama-3.1-8B)", "score", "balancekv",
             "streaming-llm", 46.77, 39.79),
        more("BalanceKV above PyramidKV", "score", "balancekv", "pyramidkv", 46.77, 45.64),
        more("BalanceKV above SnapKV", "score", "balancekv", "snapkv", 46.77, 46.12),
        more("BalanceKV above uniform", "score", "balancekv", "uniform", 46.77, 46.38)}},
      {"table-5",
       "Table 5",
       "light",
       {{"model", "{model}"}, {"data", "{files}"}, {"longest", "{longest}"}},
       {"longbench/hotpotqa.jsonl", "longbench/triviaqa.jsonl", "longbench/multifieldqa_en.jsonl",
        "longbench/qasper.jsonl", "longbench/lcc.jsonl", "longbench/passage_count.jsonl"},
       {more("BalanceKV above uniform (HotpotQA at 0.8)", "score", "balancekv", "uniform", 50.2,
             48.4)}},
      {"table-5-lines",
       "Table 5, on lines",
       "lines",
       {{"model", "{model}"},
        {"lines", "120"},
        {"repeat", "20"},
        {"rates", "0.8,0.9,0.95"},
        {"methods", "exact;balancekv;uniform:from=oldest;uniform"}},
       {},
       {more("BalanceKV above uniform (HotpotQA at 0.8)", "score", "balancekv", "uniform", 50.2,
             48.4),
        more("BalanceKV above the uniform that it describes", "score", "balancekv",
             "uniform:from=oldest", 50.2, 48.4)}},
      {"table-2",
       "Table 2",
       "efficiency",
       {{"model", "{model}"},
        {"prompt", "{prompt}"},
        {"generate", "256"},
        {"repeat", "3"},
        {"rates", "0.25"}},
       {},
       {timed(less("BalanceKV's prefill below SnapKV's (s)", "prefill_seconds", "balancekv 0.25",
                   "snapkv 0.25", 3.66, 3.76, "name")),
        timed(less("BalanceKV decodes faster than SnapKV (s)", "decode_seconds", "balancekv 0.25",
                   "snapkv 0.25", 38.1, 40.4, "name"))}},
      {"table-4",
       "Table 4",
       "captions",
       {{"model", "{model}"},
        {"data", "{files}"},
        {"rates", "0.25,0.0625"},
        {"methods", "exact;balancekv;uniform"}},
       {"coco/captions_val2014.json"},
       {more("BalanceKV above uniform (CIDEr at 1/4, InternVL2.5-8B)", "score", "balancekv",
             "uniform", 1.251, 1.247)}},
  };
}

std::vector<PaperRow> clustergen() {
  auto lines = [](const char* name, const char* label, const char* file, const char* share,
                  double ours, double h2o, double sink) {
    return PaperRow{
        name,
        label,
        "lines",
        {{"model", "{model}"},
         {"data", "{files}"},
         {"limit", "50"},
         {"cache", share},
         {"methods", "exact;kcenter;{windows};h2o;streaming-llm;snapkv;uniform"}},
        {std::string("longeval/") + file},
        {more("k-center, the best of its windows, above H2O", "score", "kcenter*", "h2o", ours,
              h2o),
         more("k-center above StreamingLLM", "score", "kcenter*", "streaming-llm", ours, sink)}};
  };
  return {
      {"figure-1",
       "Figure 1",
       "clusters",
       {{"files", "{kv}"}, {"centres", "1,4,16,64,256"}},
       {},
       {less("keys cluster better than values (radius)", "relative_radius", "keys", "values", kNone,
             kNone, "part")}},
      lines("table-1-200", "Table 1, 5k", "200_lines.jsonl", "0.65", 0.86, 0.66, 0.56),
      lines("table-1-300", "Table 1, 7k", "300_lines.jsonl", "0.58", 0.66, 0.58, 0.56),
      lines("table-1-400", "Table 1, 9k", "400_lines.jsonl", "0.5", 0.44, 0.38, 0.38),
      {"table-2",
       "Table 2",
       "longbench",
       {{"model", "{model}"},
        {"data", "{files}"},
        {"longest", "20000"},
        {"budgets", "2048"},
        {"methods", "exact;streaming-llm;kcenter:window=1024"}},
       longbench(false),
       {more("single-document QA and code: k-center above StreamingLLM (sums of tasks)", "score",
             "kcenter:window=1024", "streaming-llm", 55.96, 54.19)}},
  };
}

std::vector<PaperRow> h2o() {
  const std::vector<std::string> choices = {"choice/copa.jsonl",   "choice/openbookqa.jsonl",
                                            "choice/piqa.jsonl",   "choice/winogrande.jsonl",
                                            "choice/mathqa.jsonl", "choice/rte.jsonl"};
  const std::vector<std::string> texts = {"summarise/xsum.jsonl", "summarise/cnn_dailymail.jsonl",
                                          "longbench/xsum_0shot.jsonl"};
  auto choice = [&](const char* name, const char* label, const char* shots, const char* methods,
                    std::vector<PaperClaim> claims) {
    return PaperRow{name,
                    label,
                    "choice",
                    {{"model", "{model}"},
                     {"data", "{files}"},
                     {"shots", shots},
                     {"rates", "0.2"},
                     {"methods", methods}},
                    choices,
                    std::move(claims)};
  };
  return {
      {"figure-2",
       "Figure 2",
       "heavy",
       {{"files", "{kv}"}, {"model", "{model}"}, {"text", "{text}"}, {"length", "{longest}"}},
       {},
       {above("attention is over 95% sparse in almost all layers", "sparsity", "layer*", 0.95,
              "of"),
        above("a fifth of the tokens gets most of the attention", "share_20", "layer*", 0.5, "of"),
        less("attention kept at 20%: local below H2O", "", "kept_local", "kept_h2o", kNone, kNone,
             ""),
        above("local sums keep nine tenths of what global ones do, and more", "kept_ratio",
              "layer*", 0.9, "of"),
        above("words: attention grows with co-occurrence, the words' frequency taken out",
              "partial_correlation", "words", 0.5, "of"),
        more("nats a token: without heavy hitters above without as many at random",
             "nats_per_token", "without heavy hitters", "without as many at random", kNone, kNone,
             "of")}},
      {"figure-4",
       "Figures 4 and 9",
       "summarise",
       {{"model", "{model}"},
        {"data", "{files}"},
        {"rates", "0.6,0.4,0.2,0.1,0.04"},
        {"methods", "exact;h2o;local"}},
       texts,
       {more("H2O above local", "score", "h2o", "local", kNone, kNone)}},
      {"figure-5",
       "Figure 5",
       "stream",
       {{"files", "{text}"},
        {"model", "{model}"},
        {"budgets", "256,1024"},
        {"methods", "h2o;streaming-llm"}},
       {},
       {less("perplexity of H2O below StreamingLLM's", "perplexity", "h2o", "streaming-llm", kNone,
             kNone)}},
      choice(
          "table-2", "Tables 1, 2, 8, 9, 11", "5",
          "exact;local;h2o;h2o:window=0;strided;strided:heavy=0.5;fixed;fixed:heavy=0.5;topk;"
          "topk:heavy=0.5;spatten:window=0",
          {more("H2O above local (Table 1, OpenBookQA)", "score", "h2o", "local", 43.80, 28.40),
           more("strided gains by heavy hitters (Table 2)", "score", "strided:heavy=0.5", "strided",
                42.6, 24.6),
           more("fixed gains by them", "score", "fixed:heavy=0.5", "fixed", 41.4, 23.8),
           more("top-k gains by them (Table 8)", "score", "topk:heavy=0.5", "topk", 42.8, 41.4),
           more("both halves above heavy hitters alone (Table 9)", "score", "h2o", "h2o:window=0",
                43.0, 26.6),
           more("H2O above SpAtten (Table 11)", "score", "h2o", "spatten:window=0", 43.0, 41.9)}),
      {"table-3",
       "Tables 3 and 5",
       "throughput",
       {{"model", "{model}"},
        {"memory", "{memory}"},
        {"prompt", "512"},
        {"generate", "512"},
        {"batch", "64"},
        {"methods", "exact;h2o"},
        {"rates", "0.2"},
        {"read-once", true}},
       {},
       {timed(more("H2O generates more a second (T4, OPT-6.7B)", "tokens_per_second", "h2o 0.2",
                   "exact", 51.7, 16.8, "name"))}},
      {"table-4",
       "Table 4",
       "throughput",
       {{"model", "{model}"},
        {"data", "{files}"},
        {"memory", "{memory}"},
        {"generate", "64"},
        {"methods", "exact;h2o"},
        {"rates", "0.2"},
        {"read-once", true}},
       {"longbench/xsum_0shot.jsonl", "summarise/xsum.jsonl"},
       {timed(more("H2O generates more a second on XSUM (T4, OPT-6.7B)", "tokens_per_second",
                   "h2o 0.2", "exact", 30.40, 10.80, "name"))}},
      {"table-6",
       "Table 6",
       "quantised",
       {{"model", "{model}"}, {"data", "{files}"}, {"shots", "5"}, {"rates", "0.2"}},
       choices,
       {level("four bits cost nothing (H2O, OpenBookQA)", "score", "int4", "bf16", 43.2, 43.0,
              "cache_type")}},
      {"table-7",
       "Table 7",
       "throughput",
       {{"shape", "type=q4_0"},
        {"memory", "128M"},
        {"prompt", "512"},
        {"generate", "32"},
        {"methods", "exact;h2o"},
        {"rates", "0.2"},
        {"read-once", true}},
       {},
       {timed(more("H2O generates more a second, too, with 4-bit weights (T4, OPT-6.7B)",
                   "tokens_per_second", "h2o 0.2", "exact", 72.5, 16.8, "name"))}},
      choice("table-10", "Table 10", "10", "exact;local;h2o",
             {more("H2O above local with ten examples (OpenBookQA)", "score", "h2o", "local", 42.8,
                   26.6)}),
      choice("figure-8", "Figure 8, no example", "0",
             "exact;local;h2o;h2o:window=0;strided;strided:heavy=0.5;topk;topk:heavy=0.5",
             {more("H2O above local", "score", "h2o", "local", kNone, kNone),
              more("both halves above heavy hitters alone", "score", "h2o", "h2o:window=0", kNone,
                   kNone)}),
      {"appendix-c1",
       "Appendix C.1",
       "diversity",
       {{"model", "{model}"},
        {"data", "{files}"},
        {"rates", "0.2"},
        {"methods", "exact;h2o;local"}},
       texts,
       {less("H2O repeats itself less than the full cache (Self-BLEU)", "score", "h2o", "exact",
             kNone, kNone),
        less("local repeats itself more than H2O", "score", "h2o", "local", kNone, kNone)}},
      {"figure-9",
       "Figure 9, lost in the middle",
       "needle",
       {{"model", "{model}"},
        {"needles", "10"},
        {"lengths", "{length}"},
        {"depth-count", "5"},
        {"repeat", "5"},
        {"methods", "exact;h2o;streaming-llm"},
        {"cache", "0.25"}},
       {},
       {more("of ten facts anywhere in the text, H2O finds more than StreamingLLM", "score", "h2o",
             "streaming-llm", kNone, kNone)}},
      {"table-12",
       "Table 12, Figures 11, 12",
       "neurons",
       {{"model", "{model}"}, {"files", "{texts}"}, {"length", "{longest}"}},
       {},
       {above("the busiest neurons are active in nearly all tokens", "largest", "layer*", 0.95,
              "of"),
        above("most neurons are rarely active", "rare", "layer*", 0.5, "of"),
        less("heavy neurons of other contents are the same: overlap above chance", "",
             "overlap_random", "overlap", kNone, kNone, ""),
        more("nats a token: without the neurons above 20% above the whole model", "nats_per_token",
             "without heavy hitters", "every neuron", std::log(31.78), std::log(19.32), "of"),
        more("without them above without as many at random", "nats_per_token",
             "without heavy hitters", "without as many at random", kNone, kNone, "of")}},
      {"figure-13", "Figure 13", "", {}, {}, {}, "takes checkpoints: eval neurons --checkpoint"},
      {"section-4",
       "Section 4, appendix D",
       "submodular",
       {{"files", "{kv}"}},
       {},
       {above("greedy sets within 1 - 1/e of the best", "greedy_worst", "*",
              1 - 1 / std::numbers::e, "function"),
        above("Algorithm 2's sets within 1 - 1/e of the best", "h2o_worst", "*",
              1 - 1 / std::numbers::e, "function"),
        above("returns of attention diminish", "holds", "output", 0.99, "function"),
        below("Algorithm 4 converges in a logarithmic number of steps (to 1e-8)", "steps_drawn",
              "newton", 60, "function")}},
  };
}

}  // namespace

std::span<const Paper> papers() {
  static const std::vector<Paper> all = {
      {"balancekv", "Kochetkova et al. 2026, BalanceKV (arXiv:2502.07861)", balancekv()},
      {"clustergen", "Zandieh et al. 2024, ClusterGen", clustergen()},
      {"h2o", "Zhang et al. 2023, H2O (arXiv:2306.14048)", h2o()},
  };
  return all;
}

}  // namespace ballast
