#include "cli/pictures.h"

#include <fmt/format.h>

#include "base/read_file.h"
#include "base/stopwatch.h"
#include "documents/document.h"
#include "report/progress.h"

namespace ballast::cli {

void add_mmproj_option(CLI::App& app, std::string& path) {
  app.add_option("--mmproj", path,
                 "The vision tower of a GGUF model: llama.cpp's mmproj file. Hugging Face folders "
                 "hold their own")
      ->type_name("FILE");
}

std::string Pictures::read(const std::string& path) {
  if (!vision_) vision_ = std::make_unique<VisionModel>(model_.model, model_.tokenizer, mmproj_);
  const std::string file = read_file(path);
  const std::string_view pdf = pdf_in(file, path);
  if (pdf.empty()) return add(file, path);
  std::string places, page;
  for (std::size_t n = 1; !(page = picture_of_page(pdf, n, path)).empty(); ++n) {
    places += add(page, fmt::format("{}, page {}", path, n));
  }
  return places;
}

std::string Pictures::add(const std::string& file, const std::string& name) {
  const Stopwatch watch;
  Progress progress("reading " + name);
  pictures_.push_back(vision_->read(std::as_bytes(std::span(file)), name, [&](double done) {
    if (!quiet_) progress.update(done);
  }));
  work_.tokens += pictures_.back().tokens.size();
  work_.seconds += watch.seconds();
  return vision_->place_holder();
}

std::vector<Token> Pictures::place(const std::vector<Token>& text) {
  if (placed_ == pictures_.size()) return text;
  std::vector<Token> out = vision_->place(text, std::span(pictures_).subspan(placed_));
  placed_ = pictures_.size();
  return out;
}

void Pictures::forget() {
  pictures_.clear();
  placed_ = 0;
  work_ = {};
}

}  // namespace ballast::cli
