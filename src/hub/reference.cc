#include "hub/reference.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "base/fail.h"
#include "base/nearest.h"

namespace ballast::hub {
namespace {

constexpr std::string_view kHub = "https://huggingface.co";
constexpr std::string_view kEnding = ".gguf";
constexpr std::size_t kPiece = std::string_view("-00001-of-00003").size();

bool is_name(std::string_view text) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !text.empty() && text.size() <= 96 && text.front() != '.' &&
         text.find_first_not_of(kLetters) == std::string_view::npos;
}

std::vector<std::string> split_path(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// ORG/REPO, or ORG/REPO/resolve/REVISION/FILE, as the hub's pages have it.
Reference of_hub(std::string_view path, std::string_view text) {
  path = path.substr(0, path.find_first_of("?#"));
  const std::vector<std::string> parts = split_path(path);
  const bool whole = parts.size() == 2;
  require(parts.size() >= 2 && is_name(parts[0]) && is_name(parts[1]) &&
              (whole || (parts.size() >= 5 && (parts[2] == "resolve" || parts[2] == "blob"))),
          "{}: not the address of a model or of a file of the hub; give ORG/REPO", text);
  Reference out;
  out.repository = parts[0] + "/" + parts[1];
  if (whole) return out;
  out.revision = parts[3];
  for (std::size_t i = 4; i < parts.size(); ++i) {
    out.file += (i == 4 ? "" : "/") + parts[i];
  }
  require(lower_case(out.file).ends_with(kEnding), "{}: not a GGUF file", text);
  out.quant = quant_of(out.file);
  return out;
}

std::string_view without_ending(std::string_view file) {
  if (lower_case(file).ends_with(kEnding)) file.remove_suffix(kEnding.size());
  return file;
}

}  // namespace

std::string endpoint() {
  const char* given = std::getenv("HF_ENDPOINT");
  std::string out(given == nullptr || *given == '\0' ? kHub : std::string_view(given));
  while (out.ends_with('/')) out.pop_back();
  return out;
}

bool is_repository(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  const std::size_t colon = text.find(':', slash);
  return is_name(text.substr(0, slash)) && is_name(text.substr(slash + 1, colon - slash - 1)) &&
         (colon == std::string_view::npos || is_name(text.substr(colon + 1)));
}

Reference parse_reference(std::string_view text) {
  for (const std::string& hub : {fmt::format("{}/", endpoint()), fmt::format("{}/", kHub)}) {
    if (text.starts_with(hub)) return of_hub(text.substr(hub.size()), text);
  }
  Reference out;
  if (text.starts_with("https://") || text.starts_with("http://")) {
    const std::string_view path = text.substr(0, text.find_first_of("?#"));
    require(lower_case(path).ends_with(kEnding), "{}: not a GGUF file", text);
    out.url = text;
    out.file = path.substr(path.rfind('/') + 1);
    out.quant = quant_of(out.file);
    return out;
  }
  if (const KnownModel* known = find_known(text)) {
    out.known = known;
    out.repository = known->repository;
    out.file = known->file;
    out.quant = quant_of(known->file);
    return out;
  }
  if (!is_repository(text)) {
    std::vector<std::string> names;
    for (const KnownModel& model : catalogue()) names.emplace_back(model.name);
    fail(
        "{}: no model of this name{}; ballast models lists those that can be had, ORG/REPO takes "
        "any other of the hub",
        text, did_you_mean(lower_case(text), names));
  }
  const std::size_t colon = text.find(':');
  out.repository = text.substr(0, colon);
  if (colon != std::string_view::npos) out.quant = text.substr(colon + 1);
  return out;
}

std::string quant_of(std::string_view file) {
  std::string_view stem = without_ending(file);
  stem = stem.substr(stem.rfind('/') + 1);
  if (piece_of(file).count > 0) stem.remove_suffix(kPiece);
  std::string last(stem.substr(stem.find_last_of("-.") + 1));
  for (char& c : last) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  constexpr std::array<std::string_view, 3> kFloats = {"F16", "BF16", "F32"};
  const bool digit = last.size() > 1 &&
                     (last[0] == 'Q' ? last[1] >= '1' && last[1] <= '8' : last.starts_with("IQ"));
  return digit || std::ranges::find(kFloats, last) != kFloats.end() ? last : "";
}

std::size_t rank_of_quant(std::string_view quant) {
  constexpr std::array<std::string_view, 14> kBest = {"Q4_K_M", "Q5_K_M", "Q4_K_S", "Q6_K", "Q8_0",
                                                      "Q5_K_S", "Q4_0",   "Q4_1",   "Q5_0", "Q5_1",
                                                      "Q3_K_M", "BF16",   "F16",    "F32"};
  return static_cast<std::size_t>(std::ranges::find(kBest, quant) - kBest.begin());
}

Piece piece_of(std::string_view file) {
  const std::string_view stem = without_ending(file);
  if (stem.size() <= kPiece) return {};
  const std::string_view mark = stem.substr(stem.size() - kPiece);
  Piece out;
  for (std::size_t i = 0; i < kPiece; ++i) {
    constexpr std::string_view kForm = "-#####-of-#####";
    if (kForm[i] != '#') {
      if (mark[i] != kForm[i]) return {};
      continue;
    }
    if (mark[i] < '0' || mark[i] > '9') return {};
    std::size_t& number = i < 6 ? out.number : out.count;
    number = 10 * number + static_cast<std::size_t>(mark[i] - '0');
  }
  return out;
}

std::string name_of_piece(std::string_view file, std::size_t number) {
  const std::string_view stem = without_ending(file);
  return fmt::format("{}-{:05}-of-{:05}{}", stem.substr(0, stem.size() - kPiece), number,
                     piece_of(file).count, kEnding);
}

}  // namespace ballast::hub
