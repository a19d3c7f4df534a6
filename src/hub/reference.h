// What one types to name a model: NAME, ORG/REPO[:QUANT] or a URL.
#pragma once

#include <string>
#include <string_view>

#include "hub/catalogue.h"

namespace ballast::hub {

struct Reference {
  const KnownModel* known = nullptr;  ///< of NAME
  std::string repository;             ///< "ORG/REPO"; empty for a URL elsewhere
  std::string revision = "main";
  std::string quant;  ///< "Q4_K_M"; empty: the best that is there
  std::string file;   ///< empty: the hub is asked for the files
  std::string url;    ///< elsewhere than on the hub
};

/// The hub's address: HF_ENDPOINT, or https://huggingface.co.
std::string endpoint();

/// Throws Error, with the nearest known name, if the text has none of the three forms.
Reference parse_reference(std::string_view text);
/// Whether the text has the form ORG/REPO[:QUANT].
bool is_repository(std::string_view text);

/// The type of weights that a file's name ends with, as Q4_K_M; empty if none.
std::string quant_of(std::string_view file);
/// How gladly one takes a file of this type: 0 first.
std::size_t rank_of_quant(std::string_view quant);

/// Of a model in several files: "-00001-of-00003" in the name, which is then 1 and 3; else 0 and 0.
struct Piece {
  std::size_t number = 0;
  std::size_t count = 0;
};
Piece piece_of(std::string_view file);
/// The name of the piece `number` of the same model.
std::string name_of_piece(std::string_view file, std::size_t number);

}  // namespace ballast::hub
