// ballast eval captions: pictures described, as in MS-COCO.
#include <algorithm>
#include <filesystem>
#include <map>

#include "ballast/engine/vision.h"
#include "base/fail.h"
#include "experiments/metrics/captions.h"
#include "experiments/tasks/sample_run.h"
#include "experiments/tasks/score_plots.h"
#include "formats/json_file.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

struct Captions : SampleParameters {
  std::vector<std::string> data;
  std::string pictures;
  std::string mmproj;
  std::string question = "Provide a one-sentence caption for the provided image.";
  std::size_t max_tokens = 30;

  void describe(Parameters& p) {
    SampleParameters::describe(p, with_storage_only("balancekv;uniform;snapkv"),
                               {.rates = {0.25, 0.0625}});
    p.add(
        "--data", data,
        "COCO's annotation files (JSON with \"images\" and \"annotations\"), or ones of their form",
        {.type = "FILE", .needed = true});
    p.add("--pictures", pictures,
          "The folder of the pictures; that of the annotations if not given", {.type = "FOLDER"});
    p.add("--mmproj", mmproj, "The vision tower of a GGUF model: llama.cpp's mmproj file",
          {.type = "FILE"});
    p.add("--question", question, "What is asked about each picture", {.type = "TEXT"});
    p.add("--max-tokens", max_tokens, "Of a caption", {.least = 1, .most = 4096});
  }
};

/// A field of an entry of "images" or "annotations"; its text or its number, as text.
std::string field(const SortedJson& entry, const char* name, const std::string& file) {
  const auto at = entry.find(name);
  require(at != entry.end() && (at->is_string() || at->is_number_integer()), ErrorCode::bad_file,
          "{}: an entry has no '{}'", file, name);
  return at->is_string() ? at->get<std::string>() : at->dump();
}

/// A sample for each picture that has captions, in the order of "images"; at most `limit`, if not
/// 0.
std::vector<Sample> read_captions(const fs::path& file, const fs::path& folder,
                                  const Captions& given, const std::string& place) {
  const SortedJson json = read_json(file);
  const auto list = [&](const char* name) -> const SortedJson& {
    require(json.is_object() && json.contains(name) && json[name].is_array(), ErrorCode::bad_file,
            "{}: no list '{}': expected COCO's annotations", file.string(), name);
    return json[name];
  };
  std::map<std::string, Json> captions;
  for (const SortedJson& one : list("annotations")) {
    captions[field(one, "image_id", file.string())].push_back(field(one, "caption", file.string()));
  }
  std::vector<Sample> out;
  for (const SortedJson& image : list("images")) {
    if (given.limit > 0 && out.size() == given.limit) break;
    const auto found = captions.find(field(image, "id", file.string()));
    if (found == captions.end()) continue;
    Sample& sample = out.emplace_back();
    const std::string name = field(image, "file_name", file.string());
    sample.id = file.filename().string() + "/" + name;
    sample.picture = (folder / name).string();
    require(fs::exists(sample.picture), ErrorCode::io,
            "{}: no such picture (of {}); --pictures names "
            "their folder",
            sample.picture, file.string());
    sample.context = place;
    sample.question = given.question;
    sample.expected = found->second;
    sample.max_tokens = given.max_tokens;
    sample.stop = {"\n"};
  }
  return out;
}

std::vector<Words> references_of(const Sample& sample) {
  std::vector<Words> out;
  for (const Json& caption : sample.expected) {
    out.push_back(caption_words(caption.get<std::string>()));
  }
  return out;
}

Result measure(Captions given, Work& work) {
  require(!given.ask.raw, "--raw: pictures need the chat template");
  SampleRun asked(given, work);
  const VisionModel vision(asked.model().model, asked.model().tokenizer, given.mmproj);
  std::vector<Sample> samples;
  for (const std::string& path : given.data) {
    const fs::path folder =
        given.pictures.empty() ? fs::path(path).parent_path() : fs::path(given.pictures);
    for (Sample& sample : read_captions(path, folder, given, vision.place_holder())) {
      samples.push_back(std::move(sample));
    }
  }
  require(!samples.empty(), "eval captions: no pictures with captions");
  std::map<std::string, std::vector<Words>> references;
  std::vector<std::vector<Words>> all;
  for (const Sample& sample : samples) {
    all.push_back(references[sample.id] = references_of(sample));
  }
  const Cider cider(all);
  Result result = asked.run(
      {.name = "captions",
       .title = "Captions of pictures",
       .score_title = "CIDEr",
       .score_unit = Unit::number,
       .settings = {{"data", given.data}, {"question", given.question}},
       .vision = &vision,
       .score_note = "of coco-caption, ± the standard error over pictures",
       .notes = {"Bleu-n, METEOR  of all captions together; METEOR knows equal words and stems, no "
                 "synonyms and paraphrases"}},
      std::move(samples), [&](const Sample& s, const Answered& a) {
        return cider.score(caption_words(a.text), references.at(s.id));
      });
  const auto insert = [&](const std::string& key, const std::string& title, int after,
                          std::string error = "") {
    const auto at = std::ranges::find(result.columns, "score", &ResultColumn::key);
    result.columns.insert(at + after, {key, title, Unit::number, std::move(error)});
  };
  add_scores(
      result.rows, "rouge_l", asked.samples(), asked.variants(), asked.answers(),
      [&](const Sample& s, const Answered& a) {
        return caption_rouge_l(caption_words(a.text), references.at(s.id));
      },
      false);
  insert("rouge_l", "ROUGE-L", 1, "rouge_l_error");
  insert("meteor", "METEOR", 1);
  for (int n = 4; n >= 1; --n) insert(fmt::format("bleu_{}", n), fmt::format("Bleu-{}", n), 1);
  // Scores of a whole set, the mean over seeds.
  for (Json& row : result.rows) {
    std::array<double, 4> bleu{};
    double meteor = 0, seeds = 0;
    for (std::size_t v = 0; v < asked.variants().size(); ++v) {
      if (!asked.variants()[v].is_of_row(row)) continue;
      std::vector<Words> captions;
      Meteor sum;
      for (std::size_t i = 0; i < asked.samples().size(); ++i) {
        captions.push_back(caption_words(asked.answers()[i][v].text));
        sum += Meteor::of(captions.back(), all[i]);
      }
      const std::array<double, 4> one = caption_bleu(captions, all);
      for (std::size_t n = 0; n < one.size(); ++n) bleu[n] += one[n];
      meteor += sum.score();
      ++seeds;
    }
    if (seeds == 0 || row["score"].is_null()) continue;
    for (std::size_t n = 0; n < bleu.size(); ++n) {
      row[fmt::format("bleu_{}", n + 1)] = bleu[n] / seeds;
    }
    row["meteor"] = meteor / seeds;
  }
  return result;
}

}  // namespace

Experiment captions_experiment() {
  return experiment("captions", "MS-COCO: Bleu, METEOR, ROUGE-L and CIDEr of captions of pictures",
                    "BalanceKV, Table 4",
                    "  ballast eval captions -m InternVL2_5-8B --data captions_val2014.json "
                    "--pictures val2014 --limit 1000 --methods 'exact;balancekv;uniform' "
                    "--rates 0.25,0.0625",
                    &measure);
}

}  // namespace ballast
