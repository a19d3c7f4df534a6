#include "cli/run_options.h"

#include <algorithm>

#include "ballast/engine/context_file.h"
#include "base/fail.h"
#include "cli/help.h"
#include "cli/library_asking.h"
#include "cli/pictures.h"

namespace ballast::cli {

void RunOptions::add_to(CLI::App& app) {
  add_model_option(app, model);
  auto text = [&](const char* name, auto& value, const char* help, const char* type) {
    return app.add_option(name, value, help)->type_name(type);
  };
  text("PROMPT", prompt,
       "A question; a model without a chat template continues it as a text. Standard input if "
       "there is no other",
       "");
  text("-f,--prompt-file", prompt_file, "The prompt is in this file; -: standard input", "FILE");
  text(
      "--context", context,
      "Read this once, summarise it, then answer from the summary: a text, PDF, web page, Word "
      "file or folder "
      "of them, -: standard input; may be repeated. Or caches that were saved of texts, which then "
      "stand one behind the other and are not read. Without it what is piped in beside a question",
      "FILE")
      ->allow_extra_args(false);
  text("--image", images,
       "A picture that is asked about, before the context if there is one: JPEG, PNG, WebP, or a "
       "PDF, "
       "whose pages are pictures; for models that see; may be repeated",
       "FILE")
      ->allow_extra_args(false);
  add_mmproj_option(app, mmproj);
  text("--question", questions, "A question; may be repeated", "TEXT")->allow_extra_args(false);
  text("--questions", questions_file, "Questions, one a line", "FILE");
  text("--system", system, "What the model is told first, where its template is used", "TEXT");
  app.add_flag("--chat", chat,
               "Put a chat template around the prompt where the model's file has none");
  app.add_flag("--raw", raw,
               "Use no chat template: continue the text, and do not cut what repeats itself");
  add_cache_to(app);
  app.add_option("--logprobs", logprobs,
                 "In JSON, log-probabilities: of each token made, and of this many likeliest")
      ->transform(whole_number(0, 1000))
      ->type_name("N");
  text("--split", split,
       "Under mpirun: divide the model's layers among the processes, so that none needs the whole "
       "model in memory",
       "layers")
      ->check(one_of({"layers"}))
      ->capture_default_str();
  app.add_flag("--cite", cite,
               "After each answer, the sentences of the context that it rests on, with file, page "
               "and line");
  app.add_flag("--stats", stats, "Report speed, cache and memory on standard error");
  app.add_flag("-q,--quiet", quiet, "Show no progress");
  add_library_option(app, library,
                     {"--context", "--image", "--mmproj", "--system", "--chat", "--raw",
                      "--logprobs", "--split", "--cite", "--stats"});
  json.add_to(app);
}

void RunOptions::add_cache_to(CLI::App& app) {
  cache.add_to(app);
  cache.add_memory_to(app);
  generate.add_to(app);
  app.add_option("--save-cache", save_cache, "Save what is kept of the context")
      ->type_name("FILE")
      ->group("Cache");
  add_pack_option(app, pack, "--save-cache");
  app.add_option(
         "--load-cache", load_cache,
         "Answer from a saved context; may be repeated. Of packed ones --method, --cache-type and "
         "others "
         "say what becomes of them in memory")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->group("Cache");
  app.add_option("--read-again", reread,
                 "Of several saved contexts, how many percent of the later ones' tokens are read "
                 "again, so that they know the texts before")
      ->transform(whole_number(0, 100))
      ->type_name("PERCENT")
      ->capture_default_str()
      ->group("Cache");
}

void RunOptions::check() const {
  require(!chat || !raw, "--chat and --raw exclude each other");
  require(context.empty() || load_cache.empty(),
          "--context and --load-cache exclude each other: the cache is of a context");
  require(images.empty() || load_cache.empty(),
          "--image and --load-cache exclude each other: the cache is of a context");
  require(images.empty() || !raw,
          "--image needs the model's chat template, which says where pictures stand: leave out "
          "--raw");
  require(images.empty() || !cite, "--cite names sentences, and a picture has none");
  require(save_cache.empty() || !context.empty() || !images.empty(),
          "--save-cache needs a --context or an --image to save");
  require(!cache.is_auto() || load_cache.empty(),
          "--cache auto has no effect on a cache that was saved before; give a size, such as 1/8");
  require(system.empty() || load_cache.empty(),
          "--system has no effect on a cache that was saved before");
  require(!cite || load_cache.size() < 2, "--cite names places in one text: load one saved cache");
  require(pack == "off" || !save_cache.empty(), "--pack {} is for a --save-cache", pack);
  require(reread == 0 || load_cache.size() > 1,
          "--read-again {}: only of several saved contexts some tokens are read again", reread);
  require(logprobs < 0 || json.wanted(), "--logprobs needs --json, which shows them");
  if (load_cache.empty()) return;
  require(!chat && !raw, "{} has no effect with --load-cache: the saved context has its form",
          chat ? "--chat" : "--raw");
  if (cache.given() && std::ranges::all_of(load_cache, is_packed_cache)) return;
  cache.refuse_overridden("--load-cache", generate.options.sampling.temperature > 0);
}

std::vector<std::string> RunOptions::all_questions() const {
  require(prompt.empty() || prompt_file.empty(), "give a prompt or --prompt-file, not both");
  std::vector<std::string> all;
  if (!prompt.empty()) all.push_back(prompt);
  if (!prompt_file.empty()) all.push_back(read_text(prompt_file, quiet));
  all.insert(all.end(), questions.begin(), questions.end());
  if (!questions_file.empty()) {
    for (std::string& line : questions_in(questions_file, quiet)) {
      all.push_back(std::move(line));
    }
  }
  if (all.empty() && save_cache.empty()) {
    require(!is_terminal(Stream::in),
            "nothing to run: give a prompt, --prompt-file, --question or standard input");
    all.push_back(read_text("-", quiet));
  }
  for (const std::string& question : all) {
    require(!question.empty(), "an empty {}: give a prompt, --prompt-file or --question",
            has_context() ? "question" : "prompt");
  }
  return all;
}

Documents RunOptions::texts() const {
  if (!context.empty()) return read_documents(context, quiet);
  const bool asks = !prompt.empty() || !questions.empty() ||
                    (!prompt_file.empty() && prompt_file != "-") ||
                    (!questions_file.empty() && questions_file != "-");
  if (!asks || !load_cache.empty() || prompt_file == "-" || questions_file == "-") return {};
  std::string text = piped_text(quiet);
  return {text, text.empty() ? "" : "standard input"};
}

}  // namespace ballast::cli
