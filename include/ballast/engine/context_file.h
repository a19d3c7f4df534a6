// Texts that a model has read, on disk: a document is compressed once and questioned many times.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/cache.h"
#include "ballast/engine/model.h"

namespace ballast {

/// A number that differs between models, and between the quantizations of one: of its dimensions
/// and of the beginning of every tensor.
std::uint64_t fingerprint(const Model& model);

/// Saves a cache with a note that says which model it is of. `form`: whatever the caller needs to
/// go on, such as the text that follows a question. `text`: the tokens read, or nothing. Throws
/// Error if it cannot be written.
void save_context(const std::filesystem::path& path, const Model& model, const Cache& cache,
                  std::string_view form = {}, std::span<const Token> text = {});

/// Throws Error when the file is damaged, was not written by save_context(), or is of another
/// model, which it names. `text`: is given the tokens read; empty if the file does not have them.
Cache load_context(const std::filesystem::path& path, const Model& model,
                   std::string* form = nullptr, std::vector<Token>* text = nullptr);

}  // namespace ballast
